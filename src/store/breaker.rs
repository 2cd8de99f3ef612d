//! When to stop asking a node that does not answer, and when to try again. A pure state machine: time comes in.

/// Consecutive failures that open a breaker (design section 3.8).
pub const FAILURES: u32 = 3;
/// How often an open breaker lets a call through, in milliseconds, before jitter.
pub const PROBE_MS: u64 = 250;

/// One per node. Failures are those of transport, time and server state; what a script answers never counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    failures: u32,
    /// While open: when the next call may try.
    probe_at: Option<u64>,
}

impl Breaker {
    /// Whether a call may be made at `now`. While open, one call per interval is let through as the probe.
    pub fn allows(&mut self, now: u64, jitter_ms: u64) -> bool {
        match self.probe_at {
            None => true,
            Some(at) if now < at => false,
            Some(_) => {
                self.probe_at = Some(now + PROBE_MS + jitter_ms);
                true
            }
        }
    }

    /// A call was answered.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// A call failed. True if this opened the breaker.
    pub fn failed(&mut self, now: u64, jitter_ms: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = self.failures >= FAILURES && self.probe_at.is_none();
        if opens {
            self.probe_at = Some(now + PROBE_MS + jitter_ms);
        }
        opens
    }

    /// It is open: calls fail at once, but for probes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.probe_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_failure_in_a_row_opens_it() {
        let mut breaker = Breaker::default();
        assert!(!breaker.failed(0, 0));
        assert!(!breaker.failed(1, 0));
        breaker.succeeded();
        assert!(!breaker.failed(2, 0));
        assert!(!breaker.failed(3, 0));
        assert!(breaker.allows(4, 0));
        assert!(breaker.failed(4, 0));
        assert!(breaker.is_open() && !breaker.allows(5, 0));
    }

    #[test]
    fn an_open_one_lets_one_probe_through_per_interval() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.failed(0, 10);
        }
        assert!(!breaker.allows(259, 0));
        assert!(breaker.allows(260, 40), "the probe");
        assert!(!breaker.allows(261, 0) && !breaker.allows(549, 0));
        assert!(!breaker.failed(300, 0), "it is open already");
        assert!(breaker.allows(550, 0));
        breaker.succeeded();
        assert!(!breaker.is_open() && breaker.allows(551, 0));
    }
}
