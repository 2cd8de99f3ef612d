//! One data-parallel rank: a scheduler with its own KV blocks.

use std::collections::VecDeque;

use super::{Event, Finish, Job, Limits, Micros, RequestId};

/// What a rank shows of itself: the figures behind `/metrics`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures {
    /// Sequences that run.
    pub running: u64,
    /// Sequences that wait.
    pub waiting: u64,
    /// KV blocks in use.
    pub used_blocks: u64,
    /// KV blocks in all.
    pub total_blocks: u64,
    /// Prompt tokens that are not prefilled yet, of running and waiting sequences.
    pub prefill_tokens: u64,
    /// Sequences that were pushed back, so far.
    pub preemptions: u64,
    /// Tokens prefilled so far.
    pub prompt_tokens: u64,
    /// Tokens generated so far.
    pub generated_tokens: u64,
    /// Requests that ended so far, by [`Finish`]: stop, length.
    pub finished: [u64; 2],
}

#[derive(Debug)]
struct Sequence {
    id: RequestId,
    prompt: u64,
    output: u64,
    finish: Finish,
    generated: u64,
    /// Tokens whose keys and values are in its blocks.
    computed: u64,
    blocks: u64,
}

impl Sequence {
    /// Tokens to compute before it can decode: after a preemption the generated ones too.
    fn context(&self) -> u64 {
        self.prompt + self.generated
    }

    fn decodes(&self) -> bool {
        self.computed >= self.context()
    }
}

/// A prefill batch under way.
#[derive(Debug)]
struct Batch {
    ends_at: Micros,
    parts: Vec<(RequestId, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Rank {
    waiting: VecDeque<Sequence>,
    /// In order of admission: the last one is preempted first.
    running: Vec<Sequence>,
    used: u64,
    batch: Option<Batch>,
    /// When the sequences that decode have their next token, all in one step.
    step_at: Option<Micros>,
    done: Figures,
}

impl Rank {
    /// How much there is to do; waiting requests weigh more, as vLLM's balancer has it.
    pub(super) fn load(&self) -> usize {
        self.waiting.len() * 4 + self.running.len()
    }

    pub(super) fn submit(&mut self, limits: &Limits, now: Micros, id: RequestId, job: &Job) {
        self.waiting.push_back(Sequence {
            id,
            prompt: job.prompt_tokens.max(1),
            output: job.output_tokens.max(1),
            finish: job.finish,
            generated: 0,
            computed: 0,
            blocks: 0,
        });
        self.schedule(limits, now);
    }

    pub(super) fn cancel(&mut self, limits: &Limits, now: Micros, id: RequestId) {
        self.waiting.retain(|sequence| sequence.id != id);
        if self.remove(id).is_some() {
            self.schedule(limits, now);
        }
    }

    pub(super) fn next_at(&self) -> Option<Micros> {
        let batch = self.batch.as_ref().map(|batch| batch.ends_at);
        [batch, self.step_at].into_iter().flatten().min()
    }

    pub(super) fn advance(&mut self, limits: &Limits, now: Micros, events: &mut Vec<Event>) {
        while let Some(at) = self.next_at().filter(|at| *at <= now) {
            if let Some(batch) = self.batch.take_if(|batch| batch.ends_at == at) {
                self.end_batch(limits, batch, events);
            } else {
                self.step_at = None;
                let decoding: Vec<RequestId> = self.running.iter().filter(|s| s.decodes()).map(|s| s.id).collect();
                for id in decoding {
                    self.token(limits, id, events);
                }
            }
            self.schedule(limits, at);
        }
    }

    pub(super) fn figures(&self, limits: &Limits) -> Figures {
        let left = |sequence: &Sequence| sequence.context() - sequence.computed.min(sequence.context());
        Figures {
            running: self.running.len() as u64,
            waiting: self.waiting.len() as u64,
            used_blocks: self.used,
            total_blocks: limits.kv_total_blocks,
            prefill_tokens: self.running.iter().chain(&self.waiting).map(left).sum(),
            ..self.done.clone()
        }
    }

    /// Takes a running sequence out, with its blocks and its part of the batch.
    fn remove(&mut self, id: RequestId) -> Option<Sequence> {
        let index = self.running.iter().position(|sequence| sequence.id == id)?;
        let mut sequence = self.running.remove(index);
        self.used -= std::mem::take(&mut sequence.blocks);
        if let Some(batch) = &mut self.batch {
            batch.parts.retain(|(part, _)| *part != id);
        }
        Some(sequence)
    }

    /// Lets waiting sequences in while there is room, strictly in order, and starts the next batch and step.
    fn schedule(&mut self, limits: &Limits, now: Micros) {
        while (self.running.len() as u64) < limits.max_num_seqs.max(1) {
            // Room for the next token too, or it would be pushed back at once.
            let Some(next) = self.waiting.front() else { break };
            let blocks = limits.blocks(next.context() + 1).min(limits.kv_total_blocks);
            if blocks > limits.kv_total_blocks - self.used {
                break;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            sequence.blocks = blocks;
            self.used += blocks;
            self.running.push(sequence);
        }
        if self.batch.is_none() {
            let mut room = limits.max_num_batched_tokens.max(1);
            let mut parts = Vec::new();
            for sequence in self.running.iter().filter(|sequence| !sequence.decodes()) {
                let part = room.min(sequence.context() - sequence.computed);
                if part > 0 {
                    parts.push((sequence.id, part));
                    room -= part;
                }
            }
            let tokens = parts.iter().map(|(_, part)| part).sum();
            self.batch =
                (!parts.is_empty()).then(|| Batch { ends_at: now.saturating_add(limits.prefill_time(tokens)), parts });
        }
        if self.step_at.is_none() && self.running.iter().any(Sequence::decodes) {
            self.step_at = Some(now.saturating_add(limits.step_time()));
        }
    }

    fn end_batch(&mut self, limits: &Limits, batch: Batch, events: &mut Vec<Event>) {
        for (id, tokens) in batch.parts {
            let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == id) else { continue };
            sequence.computed += tokens;
            self.done.prompt_tokens += tokens;
            if sequence.decodes() {
                self.token(limits, id, events);
            }
        }
    }

    /// One more token for a sequence: ends it, or finds it a block if it needs another.
    fn token(&mut self, limits: &Limits, id: RequestId, events: &mut Vec<Event>) {
        let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == id) else { return };
        sequence.generated += 1;
        sequence.computed += 1;
        self.done.generated_tokens += 1;
        events.push(Event::Token(id));
        if sequence.generated >= sequence.output {
            let finish = sequence.finish;
            match finish {
                Finish::Stop => self.done.finished[0] += 1,
                Finish::Length => self.done.finished[1] += 1,
            }
            self.remove(id);
            events.push(Event::Finished(id, finish));
            return;
        }
        let need = limits.blocks(sequence.context() + 1).min(limits.kv_total_blocks);
        while self.running.iter().any(|sequence| sequence.id == id && sequence.blocks < need) {
            if self.used < limits.kv_total_blocks {
                self.used += 1;
                if let Some(sequence) = self.running.iter_mut().find(|sequence| sequence.id == id) {
                    sequence.blocks += 1;
                }
            } else if let Some(mut last) = self.running.last().map(|s| s.id).and_then(|victim| self.remove(victim)) {
                last.computed = 0;
                self.done.preemptions += 1;
                self.waiting.push_front(last);
            }
        }
    }
}
