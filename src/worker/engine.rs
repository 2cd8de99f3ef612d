//! What an engine says of its own load: one reader per kind of engine (design section 6).
//!
//! A reader turns a page into [`Facts`] per rank. Blocks are counted in the unit of `--kv-block-size`, whatever the
//! engine's own pages are, so that they can be compared with the prompt blocks of leases (design section 3.6).

mod sglang;
mod trtllm;
mod vllm;

use crate::core::op::{Figure, FigureKind};
use crate::worker::settings::{EngineMetrics, MAX_FIGURE, Settings};

/// What was read of one rank. What the page does not say is none.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Facts {
    /// The rank as the engine counts; none: the page does not tell ranks apart.
    pub(super) rank: Option<u32>,
    /// Share of the KV cache in use, 0 to 1.
    pub(super) usage: Option<f64>,
    /// KV cache in all, in tokens.
    pub(super) cache_tokens: Option<f64>,
    /// KV cache in use, in tokens; without it, `usage` counts.
    pub(super) used_tokens: Option<f64>,
    /// Prompt tokens that wait or are being prefilled.
    pub(super) prefill_tokens: Option<f64>,
    /// Most tokens of one engine step.
    pub(super) max_batched_tokens: Option<f64>,
    /// Requests that run in the engine.
    pub(super) running: Option<f64>,
    /// Requests that wait in the engine.
    pub(super) waiting: Option<f64>,
}

/// A page to be asked for, and how to read it.
pub(super) struct Source {
    /// Path behind the engine's base URL.
    pub(super) path: &'static str,
    /// None: this is not the page it should be.
    pub(super) read: fn(&str) -> Option<Vec<Facts>>,
}

/// The pages of an engine, best first. The first that can be read counts.
pub(super) fn sources(engine: EngineMetrics) -> &'static [Source] {
    match engine {
        EngineMetrics::Vllm => &[Source { path: "/metrics", read: vllm::read }],
        EngineMetrics::Sglang => {
            &[Source { path: "/v1/loads", read: sglang::read_loads }, Source { path: "/metrics", read: sglang::read }]
        }
        EngineMetrics::Trtllm => &[
            Source { path: "/prometheus/metrics", read: trtllm::read },
            Source { path: "/metrics", read: trtllm::read },
        ],
        EngineMetrics::None => &[],
    }
}

/// What one scrape says, in the terms of a report.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scraped {
    /// Signals and capacities.
    pub(super) figures: Vec<Figure>,
    /// Requests that run in the engine, over all ranks.
    pub(super) running: Option<f64>,
    /// Requests that wait in the engine, over all ranks.
    pub(super) waiting: Option<f64>,
}

/// Puts facts into the terms of a report. A capacity that the settings name wins over the engine's own.
pub(super) fn figures(facts: &[Facts], settings: &Settings) -> Scraped {
    let total = |get: fn(&Facts) -> Option<f64>| facts.iter().filter_map(get).reduce(|a, b| a + b);
    let mut scraped = Scraped { figures: Vec::new(), running: total(|f| f.running), waiting: total(|f| f.waiting) };
    for (rank, facts) in by_rank(facts, settings) {
        let mut push = |kind, value: Option<f64>| {
            if let Some(value) = value.and_then(whole) {
                scraped.figures.push(Figure { rank, kind, value });
            }
        };
        let block = settings.kv_block_size as f64;
        let own_total = facts.cache_tokens.map(|tokens| tokens / block).filter(|blocks| *blocks > 0.0);
        let total = settings.kv_total_blocks.map(|blocks| blocks as f64).or(own_total);
        // The share holds for whatever total is in force, also for an operator's.
        let usage = facts.usage.or_else(|| Some(facts.used_tokens? / facts.cache_tokens.filter(|t| *t > 0.0)?));
        let exact = facts.used_tokens.filter(|_| settings.kv_total_blocks.is_none()).map(|tokens| tokens / block);
        let used = exact.or_else(|| Some(usage? * total?));
        push(FigureKind::ActiveDecodeBlocks, used.map(f64::round));
        push(FigureKind::ActivePrefillTokens, facts.prefill_tokens);
        if settings.kv_total_blocks.is_none() {
            push(FigureKind::KvTotalBlocks, own_total.map(f64::floor));
        }
        if settings.max_num_batched_tokens.is_none() {
            push(FigureKind::MaxNumBatchedTokens, facts.max_batched_tokens);
        }
    }
    scraped
}

/// Which declared rank each fact is about. Engines count from 0 or from the declared first rank; a page without ranks
/// speaks for all of them.
fn by_rank(facts: &[Facts], settings: &Settings) -> Vec<(u32, Facts)> {
    let (start, size) = (settings.data_parallel_start_rank, settings.data_parallel_size);
    let declared = start..start.saturating_add(size);
    let global = facts.iter().filter_map(|f| f.rank).all(|rank| declared.contains(&rank));
    let mut ranks: Vec<(u32, Facts)> = Vec::new();
    for fact in facts {
        match fact.rank {
            Some(rank) if global => ranks.push((rank, *fact)),
            Some(rank) if rank < size => ranks.push((start + rank, *fact)),
            Some(_) => {}
            None if size == 1 => ranks.push((start, *fact)),
            None => {
                // Counts are shared out evenly; shares and capacities are the same for every rank.
                let share = |value: Option<f64>| value.map(|v| v / f64::from(size));
                let part = Facts {
                    prefill_tokens: share(fact.prefill_tokens),
                    used_tokens: share(fact.used_tokens),
                    cache_tokens: share(fact.cache_tokens),
                    ..*fact
                };
                ranks.extend(declared.clone().map(|rank| (rank, part)));
            }
        }
    }
    ranks
}

fn whole(value: f64) -> Option<u64> {
    (0.0..=MAX_FIGURE as f64).contains(&value).then_some(value as u64)
}

#[cfg(test)]
mod tests;
