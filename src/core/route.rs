//! The choice of a worker among the eligible ones (design section 3.6; `lua/include/place.lua` and `pick.lua`). Lowest score first:
//! the load, ties to the least recently chosen. Exact in a double: 24 bits of load above 29 bits of the last choice.

use super::thresholds::RouterMode;

const LOAD_MAX: i64 = 16_777_215;
const CHOSEN: i64 = 536_870_912;

/// What routing remembers of a worker (`P:route`): `chosen|blocks|prefill`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remembered {
    /// Number of its last choice, fleet-wide.
    pub chosen: i64,
    /// KV blocks last known.
    pub blocks: i64,
    /// Prefill blocks not yet done, last known.
    pub prefill: i64,
}

impl Remembered {
    /// As stored; none if that is garbled.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|').map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        });
        let (chosen, blocks, prefill) = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(Self { chosen, blocks, prefill })
    }
}

impl std::fmt::Display for Remembered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}|{}|{}", self.chosen, self.blocks, self.prefill)
    }
}

/// The mode goes by scores; the others draw lots or are told.
#[must_use]
pub const fn is_scored(mode: RouterMode) -> bool {
    matches!(mode, RouterMode::RoundRobin | RouterMode::LeastLoaded | RouterMode::Kv)
}

/// Least-loaded: the share of the cap in use, in 2^-20; without a cap each request counts as much as 2^-10 of one.
#[must_use]
pub fn slot_load(count: i64, cap: Option<u64>) -> i64 {
    match cap.map(|cap| i64::try_from(cap).unwrap_or(i64::MAX)) {
        Some(cap) if cap > 0 => count.saturating_mul(1_048_576) / cap,
        Some(_) => LOAD_MAX,
        None => count.saturating_mul(1_024),
    }
}

/// `kv`: the larger of the blocks last reported and those that live leases reserved, and what is not prefilled yet.
#[must_use]
pub fn kv_load(remembered: &Remembered, reserved: i64) -> i64 {
    remembered.blocks.max(reserved).saturating_add(remembered.prefill)
}

/// The place in `P:eligible`.
#[must_use]
pub fn score(mode: RouterMode, load: i64, remembered: &Remembered) -> i64 {
    match mode {
        RouterMode::RoundRobin => remembered.chosen,
        RouterMode::LeastLoaded | RouterMode::Kv => load.min(LOAD_MAX) * CHOSEN + remembered.chosen % CHOSEN,
        RouterMode::Random | RouterMode::PowerOfTwo | RouterMode::Direct => 0,
    }
}

/// Park and Miller's generator: exact in doubles, seeded by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Dice(u64);

impl Dice {
    /// `seed`: 1 to 2^31-2.
    #[must_use]
    pub const fn new(seed: u32) -> Self {
        Self(seed as u64)
    }

    /// A whole number in [0, n); 0 if n is 0.
    pub const fn below(&mut self, n: usize) -> usize {
        self.0 = self.0 * 16_807 % 2_147_483_647;
        if n == 0 { 0 } else { (self.0 % n as u64) as usize }
    }
}

/// The first of the eligible (`order`) from rank `from` on that is not excluded, wrapping once. Looks at no more than
/// one more than `excluded`, the length of the list of excluded ones.
#[must_use]
pub fn first_from<'a>(
    order: &[&'a str],
    from: usize,
    excluded: usize,
    is_excluded: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let ahead = order.iter().skip(from);
    let behind = order.iter().take(from);
    ahead.chain(behind).take(excluded + 1).copied().find(|w| !is_excluded(w))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_order_by_load_then_by_last_choice() {
        let chosen = |chosen| Remembered { chosen, ..Remembered::default() };
        let mode = RouterMode::LeastLoaded;
        let (idle_old, idle_new) = (score(mode, slot_load(0, Some(4)), &chosen(7)), score(mode, 0, &chosen(8)));
        let half = score(mode, slot_load(2, Some(4)), &chosen(1));
        assert!(idle_old < idle_new && idle_new < half);
        assert_eq!(slot_load(1, Some(4)), slot_load(2, Some(8)));
        let most = score(mode, i64::MAX, &chosen(CHOSEN - 1));
        assert!(most < 1 << 53, "exact in a double");
        assert_eq!(score(RouterMode::RoundRobin, 5, &chosen(9)), 9);
    }

    #[test]
    fn what_is_remembered_comes_back() {
        let r = Remembered { chosen: 12, blocks: 3, prefill: 4 };
        assert_eq!(Remembered::parse(&r.to_string()), Some(r));
        for garbled in ["", "1|2", "1|2|3|4", "a|2|3", "-1|2|3", "1||3"] {
            assert_eq!(Remembered::parse(garbled), None, "{garbled:?}");
        }
    }

    #[test]
    fn first_from_wraps_and_passes_over_excluded_ones() {
        let order = ["a", "b", "c"];
        let none = |_: &str| false;
        assert_eq!(first_from(&order, 1, 0, none), Some("b"));
        assert_eq!(first_from(&order, 2, 1, |w| w == "c"), Some("a"));
        assert_eq!(first_from(&order, 0, 3, |_| true), None);
        assert_eq!(first_from(&[], 0, 0, none), None);
    }

    #[test]
    fn dice_follow_park_and_miller() {
        let mut dice = Dice::new(1);
        let drawn: Vec<usize> = (0..3).map(|_| dice.below(1_000_000_000)).collect();
        assert_eq!(drawn, [16_807, 282_475_249, 622_650_073]);
    }
}
