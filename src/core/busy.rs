//! When a worker is busy (design section 3.1). Strict comparisons, an OR of the configured checks per data-parallel
//! rank, an AND over the declared ranks. Nothing latches: the answer depends on what is passed in, and on nothing else.

use std::fmt;

use super::op::FigureKind;
use super::thresholds::Config;

/// A signal with the Redis time of its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    /// 0 to 2^53-1.
    pub value: u64,
    /// Milliseconds.
    pub at_ms: u64,
}

/// Until when signals count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// The time against which age is taken, in milliseconds: now, or, while the fleet is forgiven a silence that was
    /// Redis's own, the time at which that began.
    pub as_of_ms: u64,
    /// `load_ttl_ms`: a signal of this age no longer counts.
    pub ttl_ms: u64,
}

impl Freshness {
    /// The signal still counts. One from the future is as of now.
    #[must_use]
    pub const fn covers(&self, signal: Signal) -> bool {
        self.as_of_ms.saturating_sub(signal.at_ms) < self.ttl_ms
    }
}

/// What is stored of one data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rank {
    /// Said by the engine.
    pub active_decode_blocks: Option<Signal>,
    /// Counted by the sidecar.
    pub tracked_decode_blocks: Option<Signal>,
    /// Said by the engine.
    pub active_prefill_tokens: Option<Signal>,
    /// Counted by the sidecar.
    pub tracked_prefill_tokens: Option<Signal>,
    /// Capacity; does not age.
    pub kv_total_blocks: Option<u64>,
    /// Capacity; does not age.
    pub max_num_batched_tokens: Option<u64>,
}

/// One of the three checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// `active_decode_blocks / kv_total_blocks > active_decode_blocks_threshold`
    Decode,
    /// `active_prefill_tokens > active_prefill_tokens_threshold`
    Prefill,
    /// `active_prefill_tokens > active_prefill_tokens_threshold_frac * max_num_batched_tokens`
    PrefillFraction,
}

impl Check {
    /// As in `busy_reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Prefill => "prefill",
            Self::PrefillFraction => "prefill_frac",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a rank is busy: the first check that fired, on which figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Which check.
    pub check: Check,
    /// The figure it fired on: the larger fresh one.
    pub figure: FigureKind,
    /// That figure.
    pub value: u64,
}

/// The larger of two sources' fresh signals; what the engine says wins a tie.
fn larger(said: Option<Signal>, counted: Option<Signal>, fresh: Freshness) -> Option<(bool, u64)> {
    let said = said.filter(|s| fresh.covers(*s)).map(|s| (true, s.value));
    let counted = counted.filter(|s| fresh.covers(*s)).map(|s| (false, s.value));
    match (said, counted) {
        (Some(a), Some(b)) => Some(if b.1 > a.1 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Integers up to 2^53-1 are exact as doubles; Lua has nothing else.
#[expect(clippy::cast_precision_loss, reason = "figures are at most 2^53-1")]
fn double(x: u64) -> f64 {
    x as f64
}

impl Rank {
    /// Why the rank is busy, if it is. A missing or zero total, or a missing or stale signal: that check cannot fire.
    #[must_use]
    pub fn busy(&self, config: &Config, fresh: Freshness) -> Option<Reason> {
        let decode = larger(self.active_decode_blocks, self.tracked_decode_blocks, fresh);
        let prefill = larger(self.active_prefill_tokens, self.tracked_prefill_tokens, fresh);
        if let (Some(threshold), Some((said, value)), Some(total)) =
            (config.active_decode_blocks_threshold, decode, self.kv_total_blocks.filter(|t| *t > 0))
            && double(value) / double(total) > threshold
        {
            let figure = if said { FigureKind::ActiveDecodeBlocks } else { FigureKind::TrackedDecodeBlocks };
            return Some(Reason { check: Check::Decode, figure, value });
        }
        let (said, value) = prefill?;
        let figure = if said { FigureKind::ActivePrefillTokens } else { FigureKind::TrackedPrefillTokens };
        if config.active_prefill_tokens_threshold.is_some_and(|threshold| value > threshold) {
            return Some(Reason { check: Check::Prefill, figure, value });
        }
        let batch = self.max_num_batched_tokens.filter(|t| *t > 0)?;
        let most = config.active_prefill_tokens_threshold_frac? * double(batch);
        (double(value) > most).then_some(Reason { check: Check::PrefillFraction, figure, value })
    }

    /// When, by itself, the next of this rank's signals ceases to count, in milliseconds; none if none counts now.
    #[must_use]
    pub fn next_stale(&self, fresh: Freshness) -> Option<u64> {
        [self.active_decode_blocks, self.tracked_decode_blocks, self.active_prefill_tokens, self.tracked_prefill_tokens]
            .into_iter()
            .flatten()
            .filter(|s| fresh.covers(*s))
            .map(|s| s.at_ms + fresh.ttl_ms)
            .min()
    }
}

/// A worker is busy if all its declared ranks are: then the reason of each, in order. No rank, not busy.
#[must_use]
pub fn worker_busy(ranks: &[Rank], config: &Config, fresh: Freshness) -> Option<Vec<Reason>> {
    if ranks.is_empty() {
        return None;
    }
    ranks.iter().map(|rank| rank.busy(config, fresh)).collect()
}

#[cfg(test)]
mod tests;
