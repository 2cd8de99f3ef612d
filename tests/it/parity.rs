//! The pure model and the Lua scripts, driven with the same random operations, the same simulated clock and the same
//! damage: every answer and the whole state must be the same after every step.
//!
//! A failing case shrinks to a short list of steps, and the message shows every operation and answer on the way.
//! `TIDEGATE_PARITY_CASES` sets the number of cases; see also [`effort`].

pub(crate) mod both;
mod damage;
pub(crate) mod doctor;
pub(crate) mod effort;
mod fleet;
mod many;
mod names;
pub(crate) mod real;
mod steps;

use proptest::test_runner::TestCaseError;

use effort::Effort;
use fleet::Parties;
use real::Real;

const CASES: u32 = 192;

fn run(effort: &Effort, harm: bool) {
    let real = Real::start();
    effort.spend(&steps::strategy(harm), |steps| {
        let mut parties = Parties::new(&real);
        for step in &steps {
            parties.take(step).map_err(|difference| {
                TestCaseError::fail(format!("{difference}\n--- how it came about\n{}", parties.trace()))
            })?;
        }
        Ok(())
    });
}

#[test]
fn model_and_scripts_agree() {
    run(&Effort::of("TIDEGATE_PARITY_CASES", CASES, 0), false);
}

#[test]
fn model_and_scripts_agree_on_damaged_state() {
    run(&Effort::of("TIDEGATE_PARITY_CASES", CASES, 1_000_000_000), true);
}
