//! How much a search with random cases may try.
//!
//! `TIDEGATE_PROTOCOL_SECONDS` lets a search run that long instead of a number of cases; `TIDEGATE_PROTOCOL_SEED` is where it
//! begins (a failure names the seed that it was found with). Without them the same cases are tried every time.

use std::time::{Duration, Instant};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Cases of one seed, and between two looks at the time.
const CHUNK: u32 = 100;

/// See the module.
#[derive(Debug)]
pub(crate) struct Effort {
    seed: u64,
    cases: u32,
    end: Option<Instant>,
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}: {text:?} is not a whole number")))
}

impl Effort {
    /// As many cases as the variable says, or `cases`; `seed` sets searches apart.
    pub(crate) fn of(variable: &str, cases: u32, seed: u64) -> Self {
        let seconds = number("TIDEGATE_PROTOCOL_SECONDS");
        let asked = number(variable).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            seed: number("TIDEGATE_PROTOCOL_SEED").unwrap_or(seed),
            cases: asked.unwrap_or(if seconds.is_some() { u32::MAX } else { cases }),
            end: seconds.map(|s| Instant::now() + Duration::from_secs(s)),
        }
    }

    /// Tries cases until the effort is spent, or one fails.
    pub(crate) fn spend<S: Strategy>(&self, strategy: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
        let mut done = 0;
        while done < self.cases && self.end.is_none_or(|end| Instant::now() < end) {
            let seed = self.seed + u64::from(done / CHUNK);
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            let cases = CHUNK.min(self.cases - done);
            let config = Config { cases, max_shrink_iters: 2_000, failure_persistence: None, ..Config::default() };
            let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
            if let Err(error) = runner.run(strategy, &test) {
                panic!("TIDEGATE_PROTOCOL_SEED={seed}: {error}");
            }
            done += cases;
        }
        println!("{done} cases");
    }
}
