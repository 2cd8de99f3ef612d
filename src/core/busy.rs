//! When a worker is busy (design section 3.1). Strict comparisons, an OR of the configured checks per data-parallel
//! rank, an AND over the declared ranks. Nothing latches: the answer depends on what is passed in, and on nothing else.

use std::fmt;

use super::op::FigureKind;
use super::thresholds::{Config, MAX_INTEGER};

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
    /// Redis time, in milliseconds.
    pub now_ms: u64,
    /// `load_ttl_ms`: a signal of this age no longer counts.
    pub ttl_ms: u64,
    /// Redis itself was away: the time in which it was does not age a signal while that is being made up for.
    pub away: Option<Away>,
}

/// An absence of Redis that is being made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// How long it was, in milliseconds.
    pub lasted_ms: u64,
    /// Until when it is made up for, in milliseconds.
    pub until_ms: u64,
}

impl Freshness {
    /// When a signal ceases to count, in milliseconds. One from the future is as of now.
    #[must_use]
    pub fn ends(&self, signal: Signal) -> u64 {
        let end = signal.at_ms.min(self.now_ms) + self.ttl_ms;
        match self.away {
            Some(away) => end.max(away.until_ms.min(end + away.lasted_ms)),
            None => end,
        }
    }
}

/// What is stored of one data-parallel rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rank {
    /// Its number.
    pub rank: u32,
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

/// Why a rank is busy: the first check that fired, on which figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reason {
    /// Which rank.
    pub rank: u32,
    /// Which check.
    pub check: Check,
    /// The figure it fired on: the larger fresh one.
    pub figure: FigureKind,
    /// That figure.
    pub value: u64,
    /// The capacity it was held against; of no meaning for [`Check::Prefill`].
    pub capacity: u64,
}

impl Reason {
    /// As in `busy_reason`: `0:decode 86/100>0.85 active_decode_blocks`. `threshold`: the text in force.
    pub(super) fn write(&self, threshold: &str, out: &mut impl fmt::Write) -> fmt::Result {
        let Self { rank, check, figure, value, capacity } = self;
        match check {
            Check::Decode => write!(out, "{rank}:decode {value}/{capacity}>{threshold} ")?,
            Check::Prefill => write!(out, "{rank}:prefill {value}>{threshold} ")?,
            Check::PrefillFraction => write!(out, "{rank}:prefill {value}>{threshold}*{capacity} ")?,
        }
        out.write_str(figure.field())
    }
}

/// The larger of two sources' fresh signals, and the earliest end of them. What the engine says wins a tie.
#[derive(Debug, Clone, Copy)]
struct Larger {
    value: u64,
    said: bool,
    ends: u64,
}

fn larger(said: Option<Signal>, counted: Option<Signal>, fresh: &Freshness) -> Option<Larger> {
    let counts = |signal: Option<Signal>, said| {
        let signal = signal?;
        let ends = fresh.ends(signal);
        (fresh.now_ms < ends).then_some(Larger { value: signal.value, said, ends })
    };
    match (counts(said, true), counts(counted, false)) {
        (Some(a), Some(b)) => {
            let ends = a.ends.min(b.ends);
            Some(Larger { ends, ..if b.value > a.value { b } else { a } })
        }
        (a, b) => a.or(b),
    }
}

/// Integers up to 2^53-1 are exact as doubles; Lua has nothing else.
#[expect(clippy::cast_precision_loss, reason = "figures are at most 2^53-1")]
fn double(x: u64) -> f64 {
    x as f64
}

impl Rank {
    fn decode(&self, fresh: &Freshness) -> Option<Larger> {
        larger(self.active_decode_blocks, self.tracked_decode_blocks, fresh)
    }

    fn prefill(&self, fresh: &Freshness) -> Option<Larger> {
        larger(self.active_prefill_tokens, self.tracked_prefill_tokens, fresh)
    }

    /// Why the rank is busy, if it is. A missing or zero capacity, a missing or stale signal: that check cannot fire.
    #[must_use]
    pub fn busy(&self, config: &Config, fresh: &Freshness) -> Option<Reason> {
        let reason = |check, said: bool, value, capacity| {
            let figure = match (check, said) {
                (Check::Decode, true) => FigureKind::ActiveDecodeBlocks,
                (Check::Decode, false) => FigureKind::TrackedDecodeBlocks,
                (_, true) => FigureKind::ActivePrefillTokens,
                (_, false) => FigureKind::TrackedPrefillTokens,
            };
            Some(Reason { rank: self.rank, check, figure, value, capacity })
        };
        if let (Some(threshold), Some(l), Some(total)) =
            (config.active_decode_blocks_threshold, self.decode(fresh), self.kv_total_blocks.filter(|t| *t > 0))
            && double(l.value) / double(total) > threshold
        {
            return reason(Check::Decode, l.said, l.value, total);
        }
        let l = self.prefill(fresh)?;
        if config.active_prefill_tokens_threshold.is_some_and(|threshold| l.value > threshold) {
            return reason(Check::Prefill, l.said, l.value, 0);
        }
        let step = self.max_num_batched_tokens.filter(|t| *t > 0)?;
        let most = config.active_prefill_tokens_threshold_frac? * double(step);
        if double(l.value) > most { reason(Check::PrefillFraction, l.said, l.value, step) } else { None }
    }
}

/// What the stored figures of a worker amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Judgement {
    /// All declared ranks are busy.
    pub busy: bool,
    /// Of each busy rank, in order.
    pub reasons: Vec<Reason>,
    /// When that may change by itself, in milliseconds; none if no rank is busy.
    pub due_ms: Option<u64>,
    /// KV blocks in use, all ranks; at most 2^53-1.
    pub blocks: u64,
    /// Prompt tokens not yet prefilled, all ranks; at most 2^53-1.
    pub tokens: u64,
}

/// Judges a worker by its declared ranks. No rank, not busy.
#[must_use]
pub fn judge(ranks: &[Rank], config: &Config, fresh: &Freshness) -> Judgement {
    let mut out = Judgement::default();
    let mut due: Option<u64> = None;
    for rank in ranks {
        out.reasons.extend(rank.busy(config, fresh));
        let (decode, prefill) = (rank.decode(fresh), rank.prefill(fresh));
        out.blocks = MAX_INTEGER.min(out.blocks + decode.map_or(0, |l| l.value));
        out.tokens = MAX_INTEGER.min(out.tokens + prefill.map_or(0, |l| l.value));
        due = [decode, prefill].into_iter().flatten().map(|l| l.ends).chain(due).min();
    }
    out.busy = !ranks.is_empty() && out.reasons.len() == ranks.len();
    out.due_ms = due.filter(|_| !out.reasons.is_empty());
    out
}

#[cfg(test)]
mod tests;
