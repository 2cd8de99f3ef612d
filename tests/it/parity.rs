//! The pure model and the Lua scripts, driven with the same random operations, the same simulated clock and the same
//! damage: every answer and the whole state must be the same after every step.
//!
//! `TIDEGATE_PARITY_CASES` sets the number of cases (default 192). A failing case shrinks to a short list of steps, and the
//! message shows every operation and answer on the way.

pub(crate) mod both;
mod damage;
mod fleet;
mod names;
pub(crate) mod real;
mod steps;

use proptest::test_runner::{Config, TestCaseError, TestRunner};

use fleet::Parties;
use real::Real;

const CASES: u32 = 192;

pub(crate) fn number(variable: &str, default: u32) -> u32 {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn run(cases: u32, damage: bool) {
    let real = Real::start();
    let config = Config {
        cases,
        max_shrink_iters: 3_000,
        failure_persistence: None,
        max_global_rejects: 0,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&steps::strategy(damage), |steps| {
        let mut parties = Parties::new(&real);
        for step in &steps {
            parties.take(step).map_err(|difference| {
                TestCaseError::fail(format!("{difference}\n--- how it came about\n{}", parties.trace()))
            })?;
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn model_and_scripts_agree() {
    run(number("TIDEGATE_PARITY_CASES", CASES), false);
}

#[test]
fn model_and_scripts_agree_on_damaged_state() {
    run(number("TIDEGATE_PARITY_CASES", CASES), true);
}
