//! The frontend's side of the recovery protocol: which call to make next, and what an answer means. No I/O, no clock:
//! time comes in as milliseconds of any monotonic clock, chance through [`Chance`]. The rules are those of
//! `recovery-protocol.md` section G with S1 (after an unknown outcome the next call releases all ids of the lost
//! ones), S2 (leases are asserted in parts) and S4 (lost acknowledged writes concern only who lost them).
//!
//! One session serves one model on one ordered connection with at most two calls in flight. The driver asks
//! [`Session::next`] what to send, hands every outcome to [`Session::answer`], calls [`Session::settle`] after
//! anything happened, and comes back at [`Session::due`].

mod answer;
mod standby;
#[cfg(test)]
mod tests;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::id::{FrontendId, Incarnation, LeaseId, WorkerId};
use super::op::{
    Admission, Caller, Cause, Decide, Decided, Fenced, Heartbeat, Held, Hello, MAX_GROUP, MAX_LEASES, Pulse, Reconcile,
    Reconciled, Welcome,
};
use super::retry_after::Drain;
pub use standby::{Fleet, Standby, Standing};

/// A map whose order depends on nothing but what was put in: runs can be repeated.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// How often a frontend gives a sign of life.
pub const HEARTBEAT_MS: u64 = 2_000;
/// How soon a failed heartbeat is sent again, and an open breaker is probed (plus jitter).
pub const RETRY_MS: u64 = 250;
/// Consecutive failures that open the breaker (design section 3.8).
pub const FAILURES: u32 = 3;
/// Most skips of one call.
const MAX_SKIPS: usize = 64;
/// The least pause after a failed call; doubles with each further one, up to [`RETRY_MS`].
const PAUSE_MS: u64 = 20;

/// What the session needs of chance.
pub trait Chance {
    /// A frontend id that nobody had before.
    fn frontend_id(&mut self) -> FrontendId;
    /// For the name of a new epoch.
    fn nonce(&mut self) -> String;
    /// 1 to 2^31-2.
    fn seed(&mut self) -> u32;
    /// 0 to 50: spreads the probes of many frontends.
    fn jitter_ms(&mut self) -> u64;
}

/// A request that waits for its lease.
pub trait Waiter {
    /// Nobody waits for the answer any more: it is dropped unsent.
    fn gone(&self) -> bool;
    /// What it asks for; the same lease id every time.
    fn admission(&self) -> Admission;
}

/// What is fixed for the life of a session.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For how long after the last good contact static mode admits; none: it never does (`--on-store-loss closed`).
    pub static_max_age_ms: Option<u64>,
    /// In trouble, a request that has waited this long is told so.
    pub patience_ms: u64,
}

/// A call to make.
#[derive(Debug, Clone)]
pub enum Call {
    /// Makes this frontend known.
    Hello(Hello),
    /// Asserts leases.
    Reconcile(Reconcile),
    /// A sign of life.
    Heartbeat(Heartbeat),
    /// A group of releases and admissions.
    Decide(Decide),
}

/// The reply of a script.
#[derive(Debug, Clone)]
pub enum Reply {
    /// To [`Call::Hello`].
    Hello(Fenced<Welcome>),
    /// To [`Call::Reconcile`].
    Reconcile(Fenced<Reconciled>),
    /// To [`Call::Heartbeat`].
    Heartbeat(Fenced<Pulse>),
    /// To [`Call::Decide`].
    Decide(Fenced<Decided>),
}

/// What became of a call.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The script replied.
    Reply(Reply),
    /// It was certainly not applied.
    Failed(Failure),
    /// Nobody knows; the connection is closed, and what else was in flight on it is unknown too.
    Unknown,
}

/// Why a call was certainly not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The server does not know the script; the driver will send its text. Nothing is wrong.
    NoScript,
    /// Not sent, or the server is not in a state to serve: counts towards the breaker, what waited goes on waiting.
    Passing,
    /// The server will not do this (no memory, no permission): waiting requests are told at once.
    Refused,
}

/// Where a lease is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The worker.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Where its sidecar listens.
    pub url: Arc<str>,
}

/// Why a request was not given a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The gate is shut.
    Shut(Cause),
    /// Redis cannot be asked, and static mode is over or off.
    NoStore,
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Effect<W> {
    /// Hand out a lease.
    Admit {
        /// To whom.
        waiter: W,
        /// Its place.
        place: Arc<Place>,
        /// The revision that the admission created; none in static mode.
        revision: Option<u64>,
    },
    /// Hand out a refusal.
    Refuse {
        /// To whom.
        waiter: W,
        /// Why.
        denied: Denied,
        /// The revision it was decided on; none if Redis did not decide.
        revision: Option<u64>,
        /// How fast requests end; none if Redis did not decide.
        drain: Option<Drain>,
    },
    /// Sweep these, on any connection, again while the reply says `more`.
    Sweep {
        /// Workers whose state changes by itself about now.
        workers: Vec<WorkerId>,
        /// Frontends that are silent.
        frontends: Vec<FrontendId>,
    },
    /// Close the connection: answers still under way on it are of no use.
    Close,
}

/// A lease of this frontend.
#[derive(Debug)]
struct Entry {
    place: Arc<Place>,
    tokens: u64,
    /// Redis answered that it has it.
    known: bool,
    /// Redis may have it: it was in a part whose outcome is not known (yet).
    maybe: bool,
    /// Redis will not have it: another incarnation has taken over. The stream goes on without a lease.
    unlisted: bool,
}

#[derive(Debug)]
struct Flight<W> {
    ticket: u64,
    frontend: FrontendId,
    call: Call,
    /// Who waits for the admissions of a `Decide`, in their order, and since when.
    waiters: Vec<(W, u64)>,
}

/// See the module.
#[derive(Debug)]
pub struct Session<W> {
    settings: Settings,
    id: FrontendId,
    epoch: String,
    mem: bool,
    seq: u64,
    acked: u64,
    seen: u64,
    /// The next part is the first one of this id in this epoch.
    first: bool,
    /// `Hello` is to be said.
    hello: bool,
    /// Leases are to be asserted before anything else.
    assert: bool,
    /// Leases may have been taken without Redis: assert them before the first decision after that.
    assert_after: bool,
    held: Map<LeaseId, Entry>,
    releases: VecDeque<LeaseId>,
    skips: Vec<(WorkerId, Incarnation)>,
    waiting: VecDeque<(W, u64)>,
    flying: Vec<Flight<W>>,
    tickets: u64,
    failures: u32,
    open: bool,
    probe_at: u64,
    /// Consecutive calls that came to nothing, whatever the reason.
    trouble: u32,
    pause_until: u64,
    heartbeat_at: u64,
    healing_until: u64,
    good_at: Option<u64>,
    standby: Standby,
    pulse: Option<Arc<Pulse>>,
    drain: Option<Drain>,
    healed: u64,
    opened: u64,
}

impl<W: Waiter> Session<W> {
    /// A session that has yet to say `Hello` under this id.
    #[must_use]
    pub fn new(settings: Settings, id: FrontendId) -> Self {
        Self {
            settings,
            id,
            epoch: String::new(),
            mem: false,
            seq: 0,
            acked: 0,
            seen: 0,
            first: true,
            hello: true,
            assert: true,
            assert_after: false,
            held: Map::default(),
            releases: VecDeque::new(),
            skips: Vec::new(),
            waiting: VecDeque::new(),
            flying: Vec::new(),
            tickets: 0,
            failures: 0,
            open: false,
            probe_at: 0,
            trouble: 0,
            pause_until: 0,
            heartbeat_at: 0,
            healing_until: 0,
            good_at: None,
            standby: Standby::default(),
            pulse: None,
            drain: None,
            healed: 0,
            opened: 0,
        }
    }

    /// A request asks for a lease.
    pub fn ask(&mut self, now: u64, waiter: W) {
        self.waiting.push_back((waiter, now));
    }

    /// A lease has ended: its request is over, or its worker did not take it. Unknown ids do nothing.
    pub fn end(&mut self, id: &LeaseId) {
        let Some(entry) = self.held.remove(id) else { return };
        self.standby.ended(&entry.place.worker);
        // The reply of a part under way says whether it is in Redis.
        let asserting = entry.maybe && self.flying.iter().any(|f| f.asserts(id));
        if entry.known || (entry.maybe && !asserting) {
            self.releases.push_back(id.clone());
        }
    }

    /// A worker refused a request that was admitted to it.
    pub fn skip(&mut self, worker: WorkerId, incarnation: Incarnation) {
        if self.skips.len() < MAX_SKIPS && !self.skips.iter().any(|(w, i)| *w == worker && *i == incarnation) {
            self.skips.push((worker, incarnation));
        }
    }

    /// What the fleet looks like, for static mode. Not taken (false) while an epoch heals: the new state is not whole
    /// yet.
    pub fn learn(&mut self, now: u64, fleet: Arc<Fleet>) -> bool {
        let whole = now >= self.healing_until;
        if whole {
            self.standby.learn(fleet);
        }
        whole
    }

    /// The next call to send, if one is to be sent now.
    pub fn next(&mut self, now: u64, chance: &mut impl Chance) -> Option<(u64, &Call)> {
        if self.open {
            if now < self.probe_at || !self.flying.is_empty() {
                return None;
            }
            self.probe_at = now + RETRY_MS + chance.jitter_ms();
        } else if now < self.pause_until {
            return None;
        }
        if self.flying.len() >= 2 || self.flying.iter().any(Flight::is_alone) {
            return None;
        }
        let idle = self.flying.is_empty();
        if self.hello {
            return if idle { self.send(chance, Vec::new(), |caller, _| Call::Hello(Hello(caller))) } else { None };
        }
        if self.assert || self.leaving_static(now) {
            return if idle { self.send_part(now, chance) } else { None };
        }
        if now >= self.heartbeat_at || self.open {
            self.heartbeat_at = now + HEARTBEAT_MS;
            return self.send(chance, Vec::new(), |caller, _| Call::Heartbeat(Heartbeat(caller)));
        }
        if self.is_static(now) {
            return None;
        }
        self.send_group(chance)
    }

    /// Leases taken in static mode are asserted before the first decision after it (H7).
    fn leaving_static(&mut self, now: u64) -> bool {
        if !self.assert_after || self.is_static(now) {
            return false;
        }
        self.assert_after = self.held.values().any(Entry::unsaid);
        self.assert_after
    }

    fn send_part(&mut self, now: u64, chance: &mut impl Chance) -> Option<(u64, &Call)> {
        if !self.is_static(now) {
            self.assert_after = false;
        }
        let mut leases = Vec::new();
        self.assert = false;
        for (id, entry) in &mut self.held {
            if !entry.unsaid() {
                continue;
            }
            if leases.len() == MAX_LEASES {
                self.assert = true;
                break;
            }
            entry.maybe = true;
            leases.push(Held {
                id: id.clone(),
                worker: entry.place.worker.clone(),
                incarnation: entry.place.incarnation.clone(),
                url: entry.place.url.to_string(),
                tokens: entry.tokens,
            });
        }
        let first = self.first;
        self.send(chance, Vec::new(), move |caller, _| Call::Reconcile(Reconcile { caller, first, leases }))
    }

    fn send_group(&mut self, chance: &mut impl Chance) -> Option<(u64, &Call)> {
        let many = self.releases.len().min(MAX_GROUP);
        let mut waiters = Vec::new();
        while waiters.len() < MAX_GROUP - many {
            match self.waiting.pop_front() {
                Some((waiter, _)) if waiter.gone() => {}
                Some(waiter) => waiters.push(waiter),
                None => break,
            }
        }
        if many == 0 && waiters.is_empty() && self.skips.is_empty() {
            return None;
        }
        let releases = self.releases.drain(..many).collect();
        let skips = std::mem::take(&mut self.skips);
        let seed = chance.seed();
        self.send(chance, waiters, move |caller, waiters| {
            let admissions = waiters.iter().map(|(w, _)| w.admission()).collect();
            Call::Decide(Decide { caller, seed, releases, skips, admissions })
        })
    }

    fn send(
        &mut self,
        chance: &mut impl Chance,
        waiters: Vec<(W, u64)>,
        call: impl FnOnce(Caller, &[(W, u64)]) -> Call,
    ) -> Option<(u64, &Call)> {
        self.seq += 1;
        self.tickets += 1;
        let caller = Caller {
            frontend: self.id.clone(),
            epoch: self.epoch.clone(),
            seq: self.seq,
            acked: self.acked,
            seen: self.seen,
            mem: self.mem,
            nonce: chance.nonce(),
        };
        let call = call(caller, &waiters);
        let flight = Flight { ticket: self.tickets, frontend: self.id.clone(), call, waiters };
        self.flying.push(flight);
        self.flying.last().map(|f| (f.ticket, &f.call))
    }

    /// When something may have to be done without a further event. Never in the past by more than what `next` refuses.
    #[must_use]
    pub fn due(&self, now: u64) -> u64 {
        let mut due = if self.hello || self.assert { now } else { self.heartbeat_at };
        let queued = !self.waiting.is_empty() || !self.releases.is_empty() || !self.skips.is_empty();
        if queued || self.assert_after {
            due = due.min(self.healing_until.max(now));
        }
        due = if self.open { self.probe_at } else { due.max(self.pause_until) };
        // Nothing more can be sent before an answer comes.
        let alone = self.open || self.hello || self.assert || self.assert_after && !self.is_static(now);
        let full = self.flying.len() >= 2 || self.flying.iter().any(Flight::is_alone);
        if full || alone && !self.flying.is_empty() {
            due = now + RETRY_MS;
        }
        match self.waiting.front() {
            Some((_, since)) if self.trouble > 0 => due.min(since + self.settings.patience_ms),
            _ => due,
        }
    }

    /// Redis does not decide now: its breaker is open, or an epoch heals.
    #[must_use]
    pub fn is_static(&self, now: u64) -> bool {
        self.open || now < self.healing_until
    }

    /// Nothing is held, waits, or is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.releases.is_empty() && self.flying.is_empty()
    }

    /// It has been answered in an adopted epoch, and may decide.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.hello && !self.assert && !self.first && !self.open
    }

    /// The breaker is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The present id.
    #[must_use]
    pub fn id(&self) -> &FrontendId {
        &self.id
    }

    /// The epoch adopted; empty before the first.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The highest revision seen.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.seen
    }

    /// Time of the last good contact.
    #[must_use]
    pub fn good_at(&self) -> Option<u64> {
        self.good_at
    }

    /// The last reply to a heartbeat.
    #[must_use]
    pub fn pulse(&self) -> Option<&Arc<Pulse>> {
        self.pulse.as_ref()
    }

    /// How fast requests end, as last told.
    #[must_use]
    pub fn drain(&self) -> Option<Drain> {
        self.drain
    }

    /// Leases held now: id, place, and whether Redis holds (or will be told of) it.
    pub fn held(&self) -> impl Iterator<Item = (&LeaseId, &Place, bool)> {
        self.held.iter().map(|(id, e)| (id, &*e.place, !e.unlisted))
    }

    /// How many leases are held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Leases that Redis had lost, or did not have yet, and that were put back, since the start.
    #[must_use]
    pub fn healed(&self) -> u64 {
        self.healed
    }

    /// How often the breaker opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }
}

impl Entry {
    /// Redis has yet to be told of it.
    fn unsaid(&self) -> bool {
        !self.known && !self.unlisted
    }
}

impl<W> Flight<W> {
    /// Nothing else is sent while it is under way.
    fn is_alone(&self) -> bool {
        matches!(self.call, Call::Hello(_) | Call::Reconcile(_))
    }

    fn asserts(&self, id: &LeaseId) -> bool {
        matches!(&self.call, Call::Reconcile(part) if part.leases.iter().any(|l| l.id == *id))
    }
}
