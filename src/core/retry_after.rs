//! How long a refused client should wait (design section 5).

use super::refusal::Reason;

/// What is known of how fast the model's requests end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drain {
    /// Releases per second (EWMA), fleet-wide.
    pub per_second: f64,
    /// Refusals of the last 5 s, fleet-wide.
    pub shed: u64,
}

/// A wait of 1 to 60 s, for `Retry-After` and `retry-after-ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfter {
    ms: u32,
}

impl RetryAfter {
    /// For all that is neither `at_capacity` nor `max_inflight`.
    const SHORT: f64 = 1.0;

    /// The wait before the next try. `jitter` is a random number from -1 to 1: it moves the wait by up to 20 %, so that
    /// those refused together do not return together.
    ///
    /// When all places are taken, the wait is the time in which the fleet gives back as many places as it has refused
    /// lately. While nothing has ever been given back that time is not known.
    #[must_use]
    pub fn new(reason: Option<Reason>, drain: Option<Drain>, jitter: f64) -> Self {
        let seconds = match (reason, drain) {
            (Some(Reason::AtCapacity | Reason::MaxInflight), Some(drain)) if drain.per_second > 0.0 => {
                drain.shed as f64 / drain.per_second
            }
            _ => Self::SHORT,
        };
        let ms = seconds * 1000.0 * (1.0 + 0.2 * jitter.clamp(-1.0, 1.0));
        // A float cast saturates, and takes NaN for 0.
        Self { ms: (ms as u32).clamp(1000, 60_000) }
    }

    /// For `Retry-After`: seconds, rounded up.
    #[must_use]
    pub fn seconds(self) -> u32 {
        self.ms.div_ceil(1000)
    }

    /// For `retry-after-ms`.
    #[must_use]
    pub fn ms(self) -> u32 {
        self.ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(reason: Reason, per_second: f64, shed: u64, jitter: f64) -> (u32, u32) {
        let wait = RetryAfter::new(Some(reason), Some(Drain { per_second, shed }), jitter);
        (wait.seconds(), wait.ms())
    }

    #[test]
    fn the_wait_is_what_the_fleet_needs_to_give_back_as_many_places() {
        assert_eq!(wait(Reason::AtCapacity, 10.0, 100, 0.0), (10, 10_000));
        assert_eq!(wait(Reason::MaxInflight, 8.0, 20, 0.0), (3, 2500));
        assert_eq!(wait(Reason::AllWorkersBusy, 10.0, 100, 0.0), (1, 1000));
        assert_eq!(wait(Reason::NoWorkers, 10.0, 100, 0.0), (1, 1000));
    }

    #[test]
    fn the_wait_is_clamped_after_the_jitter() {
        assert_eq!(wait(Reason::AtCapacity, 1.0, 10, 1.0), (12, 12_000));
        assert_eq!(wait(Reason::AtCapacity, 1.0, 10, -1.0), (8, 8000));
        assert_eq!(wait(Reason::AtCapacity, 1.0, 1_000_000, -1.0), (60, 60_000));
        assert_eq!(wait(Reason::AtCapacity, 1000.0, 0, 1.0), (1, 1000));
        assert_eq!(wait(Reason::NoWorkers, 0.0, 0, 1.0), (2, 1200));
        assert_eq!(wait(Reason::NoWorkers, 0.0, 0, -1.0), (1, 1000));
    }

    #[test]
    fn odd_figures_give_a_wait_too() {
        for per_second in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            for jitter in [f64::NAN, 5.0, -5.0] {
                let (seconds, ms) = wait(Reason::AtCapacity, per_second, u64::MAX, jitter);
                assert!((1..=60).contains(&seconds) && (1000..=60_000).contains(&ms), "{per_second} {jitter}");
                assert_eq!(seconds, ms.div_ceil(1000));
            }
        }
    }
}
