//! The recovery protocol under faults, in simulated time. Frontends are the real `core::session::Session`, sidecars the
//! real `core::registrar::Registrar`; Redis is the pure model, or the model and the Lua scripts on a real Redis in
//! lock-step. The network loses, delays and repeats; servers fail over, lose writes, freeze, and their clocks jump; keys
//! vanish; processes crash, freeze and meet rivals. After every script the invariants of design section 10 must hold, and
//! after the last fault everything must be right again in time (`verdict.rs`).
//!
//! A failing case shrinks, and the message shows what happened. `TIDEGATE_PROTOCOL_CASES` and
//! `TIDEGATE_PROTOCOL_REAL_CASES` set the number of cases, `TIDEGATE_PROTOCOL_SHOW` prints what each amounted to; see also
//! `crate::parity::effort`. `make check-protocol` searches for hours.

mod case;
mod faults;
mod frontend;
mod sidecar;
mod trace;
mod verdict;
mod wire;
mod world;

use proptest::test_runner::TestCaseError;

use crate::parity::effort::Effort;
use crate::parity::real::Real;
use case::Case;
use world::World;

/// Cases on the pure model in a normal run.
const CASES: u32 = 1_000;
/// Cases in lock-step with the scripts on a real Redis.
const REAL_CASES: u32 = 60;

fn run(effort: &Effort, real: Option<&Real>) {
    let show = std::env::var_os("TIDEGATE_PROTOCOL_SHOW").is_some();
    effort.spend(&case::strategy(), |case: Case| {
        let mut world = World::new(&case, real, false);
        let outcome = world.play();
        if show {
            println!("{}", world.summary());
        }
        outcome.map_err(|violation| {
            let mut again = World::new(&case, real, true);
            let _ = again.play();
            TestCaseError::fail(format!("{violation}\n--- how it came about\n{}", again.trace()))
        })
    });
}

#[test]
fn frontends_and_sidecars_recover_from_any_mix_of_faults() {
    run(&Effort::of("TIDEGATE_PROTOCOL_CASES", CASES, 2_000_000_000), None);
}

#[test]
fn the_scripts_recover_alike() {
    let real = Real::start();
    run(&Effort::of("TIDEGATE_PROTOCOL_REAL_CASES", REAL_CASES, 3_000_000_000), Some(&real));
}
