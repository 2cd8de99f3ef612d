//! The recovery protocol under faults, in simulated time. Frontends are the real `core::session::Session`, sidecars the
//! real `core::registrar::Registrar`; Redis is the pure model, or the model and the Lua scripts on a real Redis in lock-step.
//! The network loses, delays and repeats; servers fail over, lose writes, freeze, and their clocks jump; keys vanish;
//! processes crash, freeze and meet rivals. After every script the invariants of design section 10 must hold, and after
//! the last fault everything must be right again in time (`verdict.rs`).
//!
//! A failing case shrinks, and the message shows what happened. `TIDEGATE_PROTOCOL_CASES`, `_SEED`, `_SECONDS` and
//! `_REAL_CASES` set how much is tried; `make check-protocol` tries for hours.

mod case;
mod faults;
mod frontend;
mod sidecar;
mod trace;
mod verdict;
mod wire;
mod world;

use std::time::{Duration, Instant};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::parity::number;
use crate::parity::real::Real;
use case::Case;
use world::World;

/// Cases on the pure model in a normal run.
const CASES: u32 = 1_500;
/// Cases in lock-step with the scripts on a real Redis.
const REAL_CASES: u32 = 60;
/// Cases between two looks at the time.
const CHUNK: u32 = 100;

fn run(first_seed: u32, cases: u32, seconds: u64, real: Option<&Real>) -> u32 {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut done = 0;
    while done < cases && Instant::now() < end {
        let chunk = CHUNK.min(cases - done);
        let seed = u64::from(first_seed) + u64::from(done / CHUNK);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let config = Config { cases: chunk, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let outcome = runner.run(&case::strategy(), |case: Case| {
            let mut world = World::new(&case, real, false);
            let outcome = world.play();
            if std::env::var_os("TIDEGATE_PROTOCOL_SHOW").is_some() {
                println!("{}", world.summary());
            }
            outcome.map_err(|violation| {
                let mut again = World::new(&case, real, true);
                let _ = again.play();
                TestCaseError::fail(format!("{violation}\n--- how it came about\n{}", again.trace()))
            })
        });
        if let Err(error) = outcome {
            panic!("seed {seed}: {error}");
        }
        done += chunk;
    }
    done
}

#[test]
fn frontends_and_sidecars_recover_from_any_mix_of_faults() {
    let cases = number("TIDEGATE_PROTOCOL_CASES", CASES);
    let seconds = number("TIDEGATE_PROTOCOL_SECONDS", 3_600);
    let done = run(number("TIDEGATE_PROTOCOL_SEED", 1), cases, u64::from(seconds), None);
    println!("{done} cases");
}

#[test]
fn the_scripts_recover_alike() {
    let real = Real::start();
    let cases = number("TIDEGATE_PROTOCOL_REAL_CASES", REAL_CASES);
    let seconds = number("TIDEGATE_PROTOCOL_SECONDS", 3_600);
    let done = run(number("TIDEGATE_PROTOCOL_SEED", 1_000_000), cases, u64::from(seconds), Some(&real));
    println!("{done} cases");
}
