//! The frontend's side of the recovery protocol: which call to make next, and what an answer means. No I/O, no clock:
//! time comes in as milliseconds of any monotonic clock, chance through [`Chance`]. The rules are those of
//! `recovery-protocol.md` section G with S1 (after an unknown outcome the next call releases all ids of the lost
//! ones), S2 (leases are asserted in parts) and S4 (lost acknowledged writes concern only who lost them).
//!
//! One session serves one model on one ordered connection with at most two calls in flight. The driver asks
//! [`Session::next`] what to send, hands every outcome to [`Session::answer`], calls [`Session::settle`] after
//! anything happened, and comes back at [`Session::due`].

mod answer;
mod call;
mod standby;
#[cfg(test)]
mod tests;
mod view;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::id::{FrontendId, Incarnation, LeaseId, WorkerId};
use super::op::{
    Caller, Decide, Decided, Fenced, Heartbeat, Held, Hello, MAX_GROUP, MAX_LEASES, Pulse, Reconcile, Reconciled,
    Welcome,
};
use super::retry_after::Drain;
pub use call::{Call, Chance, Denied, Effect, Failure, Outcome, Place, Reply, Settings, Waiter};
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
