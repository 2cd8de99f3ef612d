//! One task per model: it drives the model's session over one ordered connection, and groups what queued while the
//! last call was under way (design section 3.4).

mod side;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::chance::Dice;
use super::lease::Lease;
use super::snapshot::Snapshot;
use crate::core::id::{FrontendId, Incarnation, LeaseId, ModelName, WorkerId};
use crate::core::op::{Admission, Cause, Pulse};
use crate::core::refusal::{Reason, Refusal};
use crate::core::retry_after::Drain;
use crate::core::session::{self, Call, Denied, Effect, Failure, Outcome, Place, Reply, Session};
use crate::metrics::admission::AdmissionMetrics;
use crate::store::{Answer, CallError, Link, Store};

/// Most events taken in before the next look at what can be sent.
const BATCH: usize = 512;

/// What the committer is told.
#[derive(Debug)]
pub(super) enum Event {
    /// A request asks for a place.
    Ask(Waiter),
    /// A lease is over.
    Ended(LeaseId),
    /// A worker refused an admitted request.
    Skip(WorkerId, Incarnation),
    /// A snapshot was read, or could not be.
    Read(Option<Snapshot>),
}

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) admission: Admission,
    pub(super) reply: oneshot::Sender<Result<Lease, Refusal>>,
    /// For the guard of its lease.
    pub(super) back: UnboundedSender<Event>,
}

impl session::Waiter for Waiter {
    fn gone(&self) -> bool {
        self.reply.is_closed()
    }

    fn admission(&self) -> Admission {
        self.admission.clone()
    }
}

/// How a model is decided on now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// No answer from Redis yet.
    #[default]
    Starting,
    /// By Redis.
    Deciding,
    /// From the last snapshot: the breaker is open, or an epoch heals.
    Static,
    /// Not at all: static mode is over, or off.
    Closed,
}

/// What a committer shows of itself.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// How it decides.
    pub mode: Mode,
    /// Its present id.
    pub frontend: Option<FrontendId>,
    /// The epoch it has adopted.
    pub epoch: String,
    /// The highest revision it has seen.
    pub revision: u64,
    /// Leases it holds.
    pub held: usize,
    /// How fast requests end, fleet-wide, as last told.
    pub drain: Option<Drain>,
    /// The last reply to a heartbeat.
    pub pulse: Option<Arc<Pulse>>,
}

/// What a committer shares with the rest of the process.
#[derive(Debug, Default)]
pub(super) struct Shared {
    live: Mutex<Live>,
    pub(super) snapshot: ArcSwap<Snapshot>,
}

impl Shared {
    pub(super) fn live(&self) -> Live {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all committers of a process have in common.
#[derive(Debug, Clone)]
pub(super) struct Common {
    pub(super) store: Store,
    pub(super) settings: session::Settings,
    pub(super) seeds: Arc<Vec<(String, String)>>,
    pub(super) metrics: Arc<AdmissionMetrics>,
    pub(super) start: Instant,
}

impl Common {
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

type Flight = Pin<Box<dyn Future<Output = (u64, Outcome, f64)> + Send>>;

pub(super) struct Committer {
    common: Common,
    model: ModelName,
    session: Session<Waiter>,
    chance: Dice,
    link: Link,
    flying: FuturesUnordered<Flight>,
    shared: Arc<Shared>,
    side: side::Side,
    effects: Vec<Effect<Waiter>>,
    /// Figures already added to the metrics: healed, opened, held.
    counted: (u64, u64, usize),
}

impl Committer {
    pub(super) fn new(common: Common, model: ModelName, id: FrontendId, chance: Dice, shared: Arc<Shared>) -> Self {
        Self {
            session: Session::new(common.settings, id),
            link: common.store.link(&model),
            flying: FuturesUnordered::new(),
            side: side::Side::default(),
            effects: Vec::new(),
            counted: (0, 0, 0),
            common,
            model,
            chance,
            shared,
        }
    }

    /// Runs until nobody can send any more and all leases are back.
    pub(super) async fn run(
        mut self,
        mut events: UnboundedReceiver<Event>,
        back: tokio::sync::mpsc::WeakUnboundedSender<Event>,
    ) {
        let timer = sleep_until(Instant::now());
        tokio::pin!(timer);
        let mut open = true;
        loop {
            let now = self.common.now_ms();
            // All that has queued goes into the next group.
            for _ in 0..BATCH {
                let Ok(event) = events.try_recv() else { break };
                self.take(now, event);
            }
            self.session.settle(now, &mut self.effects);
            self.apply(now);
            self.send(now);
            self.side.tend(now, &self.common, &self.model, &self.session, &back);
            self.publish(now);
            if !open && self.session.is_idle() {
                break;
            }
            let due = self.common.start + Duration::from_millis(self.session.due(now).max(now + 1));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            tokio::select! {
                biased;
                Some((ticket, outcome, seconds)) = self.flying.next(), if !self.flying.is_empty() => {
                    self.common.metrics.call_seconds.observe(seconds);
                    let now = self.common.now_ms();
                    self.session.answer(now, ticket, outcome, &mut self.chance, &mut self.effects);
                    self.apply(now);
                }
                event = events.recv(), if open => match event {
                    Some(event) => self.take(self.common.now_ms(), event),
                    None => open = false,
                },
                () = &mut timer => {}
            }
        }
    }

    fn take(&mut self, now: u64, event: Event) {
        match event {
            Event::Ask(waiter) => self.session.ask(now, waiter),
            Event::Ended(id) => self.session.end(&id),
            Event::Skip(worker, incarnation) => self.session.skip(worker, incarnation),
            Event::Read(snapshot) => {
                let whole = snapshot.as_ref().is_some_and(|s| self.session.learn(now, Arc::new(s.fleet())));
                // One that was read while an epoch heals is shown, but read again.
                self.side.read(now, snapshot.as_ref(), whole);
                if let Some(snapshot) = snapshot {
                    self.shared.snapshot.store(Arc::new(snapshot));
                }
            }
        }
    }

    fn send(&mut self, now: u64) {
        while self.link.is_connected() || self.flying.is_empty() {
            let Some((ticket, call)) = self.session.next(now, &mut self.chance) else { break };
            if let Call::Decide(group) = call {
                self.common.metrics.group_size.observe((group.releases.len() + group.admissions.len()) as f64);
            }
            let outcome = start(&mut self.link, call);
            let sent = Instant::now();
            self.flying.push(Box::pin(async move { (ticket, outcome.await, sent.elapsed().as_secs_f64()) }));
        }
    }

    fn apply(&mut self, now: u64) {
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Admit { waiter, place, revision } => {
                    if revision.is_none() {
                        self.common.metrics.static_leases.inc();
                    }
                    admit(waiter, &place, revision);
                }
                Effect::Refuse { waiter, denied, revision, drain } => {
                    // Static mode has not decided what nobody decided.
                    let by_copy = revision.is_none() && self.session.is_static(now);
                    let degraded = by_copy && !matches!(denied, Denied::NoStore);
                    let refusal = Refusal { reason: reason(denied), revision, drain, degraded };
                    let _ = waiter.reply.send(Err(refusal));
                }
                Effect::Sweep { workers, frontends } => {
                    self.side.sweep(&self.common, &self.model, workers, frontends);
                }
                Effect::Close => {
                    self.link.close();
                    self.flying.clear();
                    self.common.metrics.unknown_outcomes.inc();
                }
            }
        }
    }

    fn publish(&mut self, now: u64) {
        let session = &self.session;
        let metrics = &self.common.metrics;
        let figures = (session.healed(), session.opened(), session.held_count());
        if figures != self.counted {
            metrics.healed.inc_by(figures.0 - self.counted.0);
            metrics.breaker_opened.inc_by(figures.1 - self.counted.1);
            metrics.leases.add(figures.2 as i64 - self.counted.2 as i64);
            self.counted = figures;
        }
        let max_age = self.common.settings.static_max_age_ms;
        let mode = match session.good_at() {
            _ if session.is_settled() && !session.is_static(now) => Mode::Deciding,
            None => Mode::Starting,
            Some(good) if session.is_static(now) => match max_age {
                Some(age) if now <= good + age => Mode::Static,
                _ => Mode::Closed,
            },
            Some(_) => Mode::Starting,
        };
        let mut live = self.shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        if live.mode != mode {
            tracing::info!(model = %self.model, from = ?live.mode, to = ?mode, "mode of deciding");
            live.mode = mode;
        }
        if live.epoch != session.epoch() {
            tracing::info!(model = %self.model, epoch = session.epoch(), "epoch adopted");
            session.epoch().clone_into(&mut live.epoch);
        }
        if live.frontend.as_ref() != Some(session.id()) {
            live.frontend = Some(session.id().clone());
        }
        live.revision = session.revision();
        live.held = session.held_count();
        live.drain = session.drain();
        let same = match (&live.pulse, session.pulse()) {
            (Some(shown), Some(last)) => Arc::ptr_eq(shown, last),
            (shown, last) => shown.is_none() && last.is_none(),
        };
        if !same {
            live.pulse = session.pulse().cloned();
            let counts = live.pulse.as_ref().map(|pulse| self.shared.snapshot.load().counting(&pulse.inflight));
            drop(live);
            if let Some(newer) = counts.flatten() {
                self.shared.snapshot.store(Arc::new(newer));
            }
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.common.metrics.leases.sub(self.counted.2 as i64);
    }
}

fn admit(waiter: Waiter, place: &Place, revision: Option<u64>) {
    let lease = Lease::new(place, revision, waiter.admission.id, waiter.back);
    // If nobody waits any more the lease comes back here, and its drop gives it back.
    drop(waiter.reply.send(Ok(lease)));
}

fn reason(denied: Denied) -> Reason {
    match denied {
        Denied::NoStore => Reason::StoreUnavailable,
        Denied::Shut(Cause::MaxInflight) => Reason::MaxInflight,
        Denied::Shut(Cause::AllWorkersBusy) => Reason::AllWorkersBusy,
        Denied::Shut(Cause::WorkerRefused) => Reason::WorkerRefused,
        Denied::Shut(Cause::AtCapacity) => Reason::AtCapacity,
        Denied::Shut(Cause::NoWorkers | Cause::NoPin) => Reason::NoWorkers,
    }
}

/// Puts a call on the wire.
fn start(link: &mut Link, call: &Call) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
    match call {
        Call::Hello(op) => Box::pin(outcome(link.call(op), Reply::Hello)),
        Call::Reconcile(op) => Box::pin(outcome(link.call(op), Reply::Reconcile)),
        Call::Heartbeat(op) => Box::pin(outcome(link.call(op), Reply::Heartbeat)),
        Call::Decide(op) => Box::pin(outcome(link.call(op), Reply::Decide)),
    }
}

async fn outcome<T>(answer: Answer<T>, reply: fn(T) -> Reply) -> Outcome {
    match answer.await {
        Ok(value) => Outcome::Reply(reply(value)),
        Err(e) => failure(&e).map_or(Outcome::Unknown, Outcome::Failed),
    }
}

/// What an error means to a session; none: nobody knows whether the call ran.
#[must_use]
pub(super) fn failure(error: &CallError) -> Option<Failure> {
    use crate::store::ServerError::{Auth, Memory, Moved, NoScript, Other, ReadOnly, State};
    match error {
        CallError::Unknown(_) => None,
        CallError::NotSent(_) => Some(Failure::Passing),
        CallError::Rejected { kind: NoScript, .. } => Some(Failure::NoScript),
        CallError::Rejected { kind: ReadOnly | Moved | State, .. } => Some(Failure::Passing),
        CallError::Rejected { kind: Memory | Auth | Other, .. } => Some(Failure::Refused),
    }
}
