//! Drives the [`Registrar`]: samples, calls Redis, and tells the rest of the sidecar where the worker stands.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::core::op::{Figure, FigureKind, Registered, Reported};
use crate::core::registrar::{Answer, Call, Registrar, Sample, Standing};
use crate::metrics::worker::Sent;
use crate::scripts::IndexOp;
use crate::store::{CallError, Store};

use super::state::{Engine, Place, State};

/// Between two log lines about the same trouble.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// Between two touches of the index of models, which lives outside the model's shard and may be lost without it.
const TOUCH_PAUSE: Duration = Duration::from_secs(3);

/// Something that must be in Redis before its sender is answered.
#[derive(Debug)]
pub(super) struct Push {
    /// Signals, told this once. May be empty: the registration counts, too.
    pub(super) figures: Vec<Figure>,
    pub(super) done: oneshot::Sender<Result<(), NotTold>>,
}

/// Why a push is not in Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotTold {
    /// The engine has not answered yet, so the worker is not registered.
    NotRegistered,
    /// Another process has the worker's id.
    Superseded,
    /// Redis refused a value.
    Invalid { field: String, value: String },
    /// Redis was not reached, or its answer did not come.
    Store,
}

pub(super) struct Reporter {
    state: Arc<State>,
    store: Store,
    registrar: Registrar,
    pushes: mpsc::Receiver<Push>,
    born: Instant,
    touched: Option<Instant>,
    warned: Option<Instant>,
    failing: bool,
}

impl Reporter {
    pub(super) fn new(state: Arc<State>, store: Store, pushes: mpsc::Receiver<Push>) -> Self {
        let ttl_ms = u64::try_from(state.settings.worker_ttl.as_millis()).unwrap_or(u64::MAX);
        let registrar = Registrar::new(&chance(), ttl_ms);
        Self { state, store, registrar, pushes, born: Instant::now(), touched: None, warned: None, failing: false }
    }

    /// Reports until `end`.
    pub(super) async fn run(mut self, end: CancellationToken) {
        let pause = Duration::from_millis(self.registrar.pause_ms());
        let mut tick = tokio::time::interval(self.state.settings.report_interval.min(pause));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let push = tokio::select! {
                biased;
                () = end.cancelled() => return,
                push = self.pushes.recv() => push,
                () = self.state.changed.notified() => None,
                _ = tick.tick() => None,
            };
            let mut pushes: Vec<Push> = push.into_iter().collect();
            while let Ok(push) = self.pushes.try_recv() {
                pushes.push(push);
            }
            self.sample(pushes).await;
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(Instant::now().saturating_duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }

    /// One sample, and the calls that it asks for.
    async fn sample(&mut self, mut pushes: Vec<Push>) {
        if self.state.engine() == Engine::Unknown {
            settle(&mut pushes, &Err(NotTold::NotRegistered));
            return;
        }
        if !pushes.is_empty() {
            self.registrar.hurry();
        }
        loop {
            let sample = self.with(&pushes);
            let Some(call) = self.registrar.poll(self.now(), &sample, &chance()) else { break };
            let answer = self.send(&call).await;
            self.registrar.answer(self.now(), &answer);
            self.publish(&answer);
            if let Some(outcome) = outcome(&answer) {
                settle(&mut pushes, &outcome);
            }
            self.touch(&answer).await;
            if !self.registrar.eager() {
                break;
            }
        }
        settle(&mut pushes, &Err(NotTold::Store));
    }

    /// The sample, with what is told this once.
    fn with(&self, pushes: &[Push]) -> Sample {
        let mut sample = self.state.sample();
        for figure in pushes.iter().flat_map(|push| &push.figures) {
            sample.figures.retain(|f| (f.rank, f.kind) != (figure.rank, figure.kind));
            sample.figures.push(figure.clone());
        }
        sample
    }

    async fn send(&mut self, call: &Call) -> Answer {
        let model = &self.state.settings.model;
        let outcome = match call {
            Call::Register(register) => self.store.call(model, register).await.map(Answer::Registered),
            Call::Report(report) => self.store.call(model, report).await.map(Answer::Reported),
        };
        match outcome {
            Ok(answer) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("Redis takes reports again");
                }
                answer
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    log_failure(&error);
                }
                Answer::Failed
            }
        }
    }

    fn publish(&mut self, answer: &Answer) {
        let sent = match answer {
            Answer::Registered(Registered::Ok { .. }) | Answer::Reported(Reported::Ok { .. }) => Sent::Ok,
            Answer::Registered(Registered::Superseded | Registered::Vacant)
            | Answer::Reported(Reported::Superseded | Reported::Vacant) => Sent::Superseded,
            Answer::Registered(Registered::Again) | Answer::Reported(Reported::Register | Reported::Ignored) => {
                Sent::Unknown
            }
            Answer::Registered(Registered::Invalid { field, value })
            | Answer::Reported(Reported::Invalid { field, value }) => {
                if self.may_log() {
                    tracing::error!(field, value, "Redis refuses what this worker reports");
                }
                Sent::Invalid
            }
            Answer::Failed => Sent::Failed,
        };
        self.state.metrics.sent(sent);
        if let Answer::Reported(Reported::Ok { busy, track_output_blocks, .. }) = answer {
            self.state.metrics.busy.set((*busy).into());
            self.state.tracker.count_output(*track_output_blocks);
        }
        let place = Place { standing: self.registrar.standing(), incarnation: self.registrar.incarnation().cloned() };
        let before = self.state.place.load();
        if **before != place {
            let incarnation = place.incarnation.as_ref().map(ToString::to_string).unwrap_or_default();
            match place.standing {
                Standing::Held => tracing::info!(worker = %self.state.settings.worker, incarnation, "registered"),
                Standing::Unknown => tracing::info!(worker = %self.state.settings.worker, "registers again"),
                Standing::Lost => {}
            }
            self.state.place.store(Arc::new(place));
        }
        if self.registrar.standing() == Standing::Lost && self.may_log() {
            tracing::error!(
                worker = %self.state.settings.worker,
                "another process has this worker's id: not ready until it is gone"
            );
        }
    }

    /// One line a minute about what may last for hours.
    fn may_log(&mut self) -> bool {
        let now = Instant::now();
        let may = self.warned.is_none_or(|at| now.saturating_duration_since(at) >= LOG_PAUSE);
        if may {
            self.warned = Some(now);
        }
        may
    }

    async fn touch(&mut self, answer: &Answer) {
        let now = Instant::now();
        let due = match answer {
            Answer::Registered(Registered::Ok { .. }) => true,
            Answer::Reported(Reported::Ok { .. }) => {
                self.touched.is_none_or(|at| now.saturating_duration_since(at) >= TOUCH_PAUSE)
            }
            _ => false,
        };
        if !due {
            return;
        }
        match self.store.index(&IndexOp::Touch(self.state.settings.model.clone())).await {
            Ok(_) => self.touched = Some(now),
            // Tried again with the next report.
            Err(error) if self.may_log() => tracing::warn!(%error, "the index of models is not told of this one"),
            Err(_) => {}
        }
    }
}

/// What an answer means for those who wait for it; none: another call follows at once.
fn outcome(answer: &Answer) -> Option<Result<(), NotTold>> {
    match answer {
        Answer::Registered(Registered::Ok { .. }) | Answer::Reported(Reported::Ok { .. }) => Some(Ok(())),
        Answer::Registered(Registered::Superseded | Registered::Vacant)
        | Answer::Reported(Reported::Superseded | Reported::Vacant) => Some(Err(NotTold::Superseded)),
        Answer::Registered(Registered::Invalid { field, value })
        | Answer::Reported(Reported::Invalid { field, value }) => {
            Some(Err(NotTold::Invalid { field: field.clone(), value: value.clone() }))
        }
        Answer::Failed => Some(Err(NotTold::Store)),
        Answer::Registered(Registered::Again) | Answer::Reported(Reported::Register | Reported::Ignored) => None,
    }
}

fn settle(pushes: &mut Vec<Push>, outcome: &Result<(), NotTold>) {
    for push in pushes.drain(..) {
        // The sender may have gone; its figures are told all the same.
        let _ = push.done.send(outcome.clone());
    }
}

fn log_failure(error: &CallError) {
    tracing::warn!(%error, "cannot report to Redis; trying again at every sample");
}

/// Eight random hex digits.
fn chance() -> String {
    format!("{:08x}", rand::random::<u32>())
}

/// The figures of the engine whose absence is shown.
pub(super) const WATCHED: [FigureKind; 4] = [
    FigureKind::ActiveDecodeBlocks,
    FigureKind::ActivePrefillTokens,
    FigureKind::KvTotalBlocks,
    FigureKind::MaxNumBatchedTokens,
];
