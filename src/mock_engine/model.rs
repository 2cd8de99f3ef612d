//! The engine as a function of virtual time, without I/O and without a clock: requests wait, are prefilled in
//! batches, decode step by step, hold KV blocks meanwhile, and are preempted when the blocks run out.

mod rank;

pub use rank::Figures;
use rank::Rank;

/// Virtual time in microseconds.
pub type Micros = u64;

/// A request in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// What an engine can do; all figures are per data-parallel rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// KV blocks in all.
    pub kv_total_blocks: u64,
    /// Tokens per block.
    pub kv_block_size: u64,
    /// Most sequences that run at a time; the others wait.
    pub max_num_seqs: u64,
    /// Most tokens of one prefill batch.
    pub max_num_batched_tokens: u64,
    /// Prefilled tokens per second, all sequences together.
    pub prefill_tokens_per_s: f64,
    /// Generated tokens per second, each sequence.
    pub decode_tokens_per_s: f64,
    /// Data-parallel ranks.
    pub data_parallel_size: u32,
}

impl Limits {
    /// Tokens that the largest possible sequence has, prompt and output together.
    #[must_use]
    pub fn max_model_len(&self) -> u64 {
        self.kv_total_blocks.saturating_mul(self.kv_block_size.max(1))
    }

    fn blocks(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.kv_block_size.max(1))
    }

    fn prefill_time(&self, tokens: u64) -> Micros {
        micros(tokens as f64 / self.prefill_tokens_per_s)
    }

    fn step_time(&self) -> Micros {
        micros(1.0 / self.decode_tokens_per_s)
    }
}

/// At least one microsecond, so that time moves on. (The cast saturates; a rate of zero means "never".)
fn micros(seconds: f64) -> Micros {
    ((seconds * 1e6) as Micros).max(1)
}

/// Why generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finish {
    /// The text was complete.
    Stop,
    /// The request's own limit was reached.
    Length,
}

impl Finish {
    /// As in `finish_reason` and `finished_reason`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// What happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It has one more token.
    Token(RequestId),
    /// It had its last token.
    Finished(RequestId, Finish),
}

/// A request for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Tokens to prefill.
    pub prompt_tokens: u64,
    /// Tokens to generate, at least one.
    pub output_tokens: u64,
    /// What the end is called.
    pub finish: Finish,
    /// On this rank, or on the one with the least to do.
    pub rank: Option<u32>,
}

/// Why a request cannot be taken at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It would not fit if it were alone.
    #[error("prompt and output are {tokens} tokens, the longest possible context is {max}")]
    TooLong {
        /// Prompt and output together.
        tokens: u64,
        /// See [`Limits::max_model_len`].
        max: u64,
    },
    /// There is no such rank.
    #[error("data-parallel rank {rank} does not exist, there are {size}")]
    NoRank {
        /// The one asked for.
        rank: u32,
        /// How many there are.
        size: u32,
    },
}

/// All ranks of one engine.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    ranks: Vec<Rank>,
    last: u64,
}

impl Engine {
    /// An idle engine.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let ranks = (0..limits.data_parallel_size.max(1)).map(|_| Rank::default()).collect();
        Self { limits, ranks, last: 0 }
    }

    /// What it can do.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a request at time `now`, up to which [`Self::advance`] has run.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn submit(&mut self, now: Micros, job: &Job) -> Result<RequestId, Unfit> {
        let tokens = job.prompt_tokens.saturating_add(job.output_tokens);
        let max = self.limits.max_model_len();
        if tokens > max {
            return Err(Unfit::TooLong { tokens, max });
        }
        let size = self.limits.data_parallel_size.max(1);
        let least = || self.ranks.iter().enumerate().min_by_key(|(_, rank)| rank.load()).map(|(index, _)| index);
        let chosen = match job.rank {
            Some(rank) if rank >= size => return Err(Unfit::NoRank { rank, size }),
            Some(rank) => Some(rank as usize),
            None => least(),
        };
        self.last += 1;
        let id = RequestId(self.last);
        if let Some(rank) = chosen.and_then(|index| self.ranks.get_mut(index)) {
            rank.submit(&self.limits, now, id, job);
        }
        Ok(id)
    }

    /// Takes a request out, wherever it is; one that is not there (any more) is no error.
    pub fn cancel(&mut self, now: Micros, id: RequestId) {
        for rank in &mut self.ranks {
            rank.cancel(&self.limits, now, id);
        }
    }

    /// Runs up to and including time `now`; what happened is added to `events`, in order.
    pub fn advance(&mut self, now: Micros, events: &mut Vec<Event>) {
        for rank in &mut self.ranks {
            rank.advance(&self.limits, now, events);
        }
    }

    /// When something will happen by itself next; none while it is idle.
    #[must_use]
    pub fn next_at(&self) -> Option<Micros> {
        self.ranks.iter().filter_map(Rank::next_at).min()
    }

    /// What each rank shows of itself, in order of the ranks.
    pub fn figures(&self) -> impl Iterator<Item = Figures> + '_ {
        self.ranks.iter().map(|rank| rank.figures(&self.limits))
    }
}

#[cfg(test)]
mod tests;
