//! Tells when the gate shuts and when it opens again, from what the frontends answer.

use std::time::Duration;

/// No refusal for this long: the gate is open again.
const CALM: Duration = Duration::from_millis(1_500);

/// What has just changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The first refusal.
    Shut,
    /// None for a while.
    Open,
}

/// The gate as seen from outside.
#[derive(Debug, Default)]
pub(super) struct Watch {
    refusals: u64,
    /// While it is shut: the time of the last refusal.
    shut: Option<Duration>,
}

impl Watch {
    /// Takes the number of refusals so far; says what that means at time `now`.
    pub(super) fn see(&mut self, now: Duration, refusals: u64) -> Option<Turn> {
        let more = refusals > self.refusals;
        self.refusals = refusals;
        match self.shut {
            None if more => {
                self.shut = Some(now);
                Some(Turn::Shut)
            }
            Some(_) if more => {
                self.shut = Some(now);
                None
            }
            Some(last) if now.saturating_sub(last) >= CALM => {
                self.shut = None;
                Some(Turn::Open)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_turns_once_each_way() {
        let mut watch = Watch::default();
        let ms = Duration::from_millis;
        assert_eq!(watch.see(ms(0), 0), None);
        assert_eq!(watch.see(ms(100), 2), Some(Turn::Shut));
        assert_eq!(watch.see(ms(900), 3), None);
        assert_eq!(watch.see(ms(2_300), 3), None, "1.4 s of calm");
        assert_eq!(watch.see(ms(2_400), 3), Some(Turn::Open));
        assert_eq!(watch.see(ms(2_500), 3), None);
        assert_eq!(watch.see(ms(2_600), 4), Some(Turn::Shut));
    }
}
