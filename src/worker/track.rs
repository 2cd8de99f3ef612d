//! What the sidecar counts of the requests it has forwarded (design sections 3.1 and 3.6): prompt tokens that have no
//! response byte yet, and KV blocks of prompts and streamed output.

mod events;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::core::op::{Figure, FigureKind};
use events::DataLines;

/// The counts of all requests in the engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tracker {
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    prefill_tokens: AtomicU64,
    decode_blocks: AtomicU64,
    block: u64,
    counts_output: AtomicBool,
}

impl Tracker {
    /// Nothing in the engine. `block` is `--kv-block-size`.
    #[must_use]
    pub fn new(block: u64) -> Self {
        Self {
            counts: Arc::new(Counts {
                prefill_tokens: AtomicU64::new(0),
                decode_blocks: AtomicU64::new(0),
                block: block.max(1),
                counts_output: AtomicBool::new(false),
            }),
        }
    }

    /// `track_output_blocks` of the shared configuration, as the last report was answered.
    pub fn count_output(&self, on: bool) {
        self.counts.counts_output.store(on, Ordering::Relaxed);
    }

    /// A request with a prompt of so many tokens goes to the engine now.
    #[must_use]
    pub fn forward(&self, prompt_tokens: u64) -> Tracked {
        let counts = Arc::clone(&self.counts);
        let blocks = prompt_tokens.div_ceil(counts.block);
        counts.prefill_tokens.fetch_add(prompt_tokens, Ordering::Relaxed);
        counts.decode_blocks.fetch_add(blocks, Ordering::Relaxed);
        Tracked { counts, prefilling: prompt_tokens, tokens: prompt_tokens, blocks, lines: None }
    }

    /// Prompt tokens of forwarded requests that have no response byte yet.
    #[must_use]
    pub fn prefill_tokens(&self) -> u64 {
        self.counts.prefill_tokens.load(Ordering::Relaxed)
    }

    /// KV blocks of prompts and streamed output, if they are to be counted.
    #[must_use]
    pub fn decode_blocks(&self) -> Option<u64> {
        let on = self.counts.counts_output.load(Ordering::Relaxed);
        on.then(|| self.counts.decode_blocks.load(Ordering::Relaxed))
    }

    /// The counts as signals, spread evenly over the ranks: which of them serves a request is not known here.
    #[must_use]
    pub fn figures(&self, start_rank: u32, size: u32) -> Vec<Figure> {
        let mut figures = spread(FigureKind::TrackedPrefillTokens, self.prefill_tokens(), start_rank, size);
        if let Some(blocks) = self.decode_blocks() {
            figures.extend(spread(FigureKind::TrackedDecodeBlocks, blocks, start_rank, size));
        }
        figures
    }
}

fn spread(kind: FigureKind, total: u64, start_rank: u32, size: u32) -> Vec<Figure> {
    let (each, left) = (total / u64::from(size.max(1)), total % u64::from(size.max(1)));
    let value = |i: u32| each + u64::from(u64::from(i) < left);
    (0..size).map(|i| Figure { rank: start_rank.saturating_add(i), kind, value: value(i) }).collect()
}

/// One request in the engine. Its share of the counts ends with it.
#[derive(Debug)]
pub struct Tracked {
    counts: Arc<Counts>,
    prefilling: u64,
    tokens: u64,
    blocks: u64,
    lines: Option<DataLines>,
}

impl Tracked {
    /// Its answer is a stream of events: data lines count as tokens.
    pub fn streams(&mut self) {
        self.lines = Some(DataLines::default());
    }

    /// Some of its answer has come.
    pub fn received(&mut self, bytes: &[u8]) {
        let prefilled = std::mem::take(&mut self.prefilling);
        if prefilled > 0 {
            self.counts.prefill_tokens.fetch_sub(prefilled, Ordering::Relaxed);
        }
        // Counted also while the counts are not wanted: they may be wanted before the stream ends.
        let Some(lines) = &mut self.lines else { return };
        self.tokens = self.tokens.saturating_add(lines.count(bytes));
        let blocks = self.tokens.div_ceil(self.counts.block);
        if blocks > self.blocks {
            self.counts.decode_blocks.fetch_add(blocks - self.blocks, Ordering::Relaxed);
            self.blocks = blocks;
        }
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.counts.prefill_tokens.fetch_sub(self.prefilling, Ordering::Relaxed);
        self.counts.decode_blocks.fetch_sub(self.blocks, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(tracker: &Tracker, kind: FigureKind) -> Vec<(u32, u64)> {
        tracker.figures(4, 3).into_iter().filter(|f| f.kind == kind).map(|f| (f.rank, f.value)).collect()
    }

    #[test]
    fn prefill_counts_until_the_first_byte_and_is_spread_evenly() {
        let tracker = Tracker::new(16);
        let mut a = tracker.forward(10);
        let b = tracker.forward(1);
        assert_eq!(values(&tracker, FigureKind::TrackedPrefillTokens), [(4, 4), (5, 4), (6, 3)]);
        a.received(b"x");
        a.received(b"y");
        assert_eq!(tracker.prefill_tokens(), 1);
        drop(b);
        assert_eq!(tracker.prefill_tokens(), 0);
        drop(a);
        assert_eq!(tracker.prefill_tokens(), 0);
    }

    #[test]
    fn decode_blocks_are_those_of_prompt_and_output_and_only_told_if_wanted() {
        let tracker = Tracker::new(4);
        let mut stream = tracker.forward(5);
        let mut whole = tracker.forward(4);
        assert_eq!(values(&tracker, FigureKind::TrackedDecodeBlocks), []);
        tracker.count_output(true);
        assert_eq!(tracker.decode_blocks(), Some(3));
        stream.streams();
        stream.received(b"data: 1\n\ndata: 2\n\ndata: 3\n\n");
        whole.received(b"data: no stream\n\n");
        assert_eq!(tracker.decode_blocks(), Some(3), "8 + 4 tokens");
        stream.received(b"data: 4\n\n");
        assert_eq!(values(&tracker, FigureKind::TrackedDecodeBlocks), [(4, 2), (5, 1), (6, 1)]);
        drop((stream, whole));
        assert_eq!(tracker.decode_blocks(), Some(0));
    }
}
