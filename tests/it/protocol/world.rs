//! Time, chance, servers and processes: a discrete-event simulation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::fmt::{Display, Write as _};

use tidegate::core::fleet::Limits;
use tidegate::core::id::LeaseId;

use super::case::{Case, Fault};
use super::frontend::Frontend;
use super::sidecar::Sidecar;
use super::wire::{Answer, Connection, Sent};
use crate::parity::both::Both;
use crate::parity::real::Real;

/// Redis time at the start.
const EPOCH_MS: u64 = 1_700_000_000_000;

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A frontend or sidecar looks what there is to do.
    Wake(Owner),
    /// A call reaches its server.
    Arrive(usize),
    /// Its outcome reaches the caller.
    Outcome(usize, Answer),
    /// Nobody answered.
    Timeout(usize),
    /// A request asks a frontend for a lease.
    Request(usize, LeaseId, u64),
    /// An admitted request reaches a sidecar.
    Reach(usize, LeaseId),
    /// A stream has been sent whole.
    Finish(usize, LeaseId),
    /// A frontend sees the end of a request; refused: its worker did not take it.
    End(usize, LeaseId, Option<Refused>),
    /// The next request.
    Load,
    /// A fault begins.
    Fault(usize),
    /// What a fault does later.
    Later(Later),
}

/// Why a sidecar did not take a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// N are running: the worker is skipped.
    Capacity,
    /// Another incarnation, or nobody there.
    Elsewhere,
}

/// The second part of a fault.
#[derive(Debug)]
pub(super) enum Later {
    Up(usize),
    Thaw(usize),
    Promote { state: usize, away: u64, jump: i64, split: Vec<Owner> },
    Kill(usize),
    Start { worker: usize, url: String, cap: u64 },
    Die(usize),
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Owner {
    Frontend(usize),
    Sidecar(usize),
}

/// A Redis server.
pub(super) struct Server<'a> {
    pub(super) state: Both<'a>,
    /// Its clock, against simulated time.
    pub(super) offset: i64,
    pub(super) up: bool,
    pub(super) dead: bool,
    pub(super) frozen_until: u64,
    pub(super) queue: Vec<usize>,
    /// Something was deleted: its state need not be consistent before the next epoch.
    pub(super) tampered: Option<String>,
    pub(super) decided: HashMap<(String, u64), bool>,
    pub(super) revision: u64,
}

impl<'a> Server<'a> {
    pub(super) fn new(state: Both<'a>, offset: i64) -> Self {
        Self {
            state,
            offset,
            up: true,
            dead: false,
            frozen_until: 0,
            queue: Vec::new(),
            tampered: None,
            decided: HashMap::new(),
            revision: 0,
        }
    }
}

/// Faults that befall one process's calls, each until when.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Trouble {
    pub(super) stalled: u64,
    pub(super) late: u64,
    pub(super) moved: u64,
    pub(super) repeated: u64,
    pub(super) unanswered: u64,
    /// Stays with an old server.
    pub(super) split: Option<(u64, usize)>,
    pub(super) frozen: u64,
    /// Nothing that happens to it before this time is held against anybody.
    pub(super) touched: u64,
}

/// Chance, the same for the same seed.
pub(super) struct Dice {
    state: u64,
    words: u64,
}

impl Dice {
    /// A number in `least..=most`.
    pub(super) fn draw(&mut self, least: u64, most: u64) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + (z ^ (z >> 31)) % (most - least + 1)
    }

    /// A word that nobody had before.
    pub(super) fn word(&mut self) -> String {
        self.words += 1;
        format!("{:08x}", self.words)
    }
}

/// Everything.
pub(crate) struct World<'a> {
    pub(super) now: u64,
    pub(super) case: Case,
    pub(super) real: Option<&'a Real>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    what: HashMap<u64, (Option<Owner>, Event)>,
    count: u64,
    pub(super) dice: Dice,
    pub(super) servers: Vec<Server<'a>>,
    pub(super) current: usize,
    pub(super) connections: Vec<Connection>,
    pub(super) sent: Vec<Sent>,
    pub(super) frontends: Vec<Frontend>,
    pub(super) sidecars: Vec<Sidecar>,
    pub(super) trouble: BTreeMap<Owner, Trouble>,
    pub(super) loading: bool,
    pub(super) losses: u32,
    /// Until then nobody's reaping is held against anybody.
    pub(super) excused: u64,
    pub(super) epochs: u32,
    pub(super) threshold: bool,
    pub(super) violation: Option<String>,
    /// Copies of states, and of what had been deleted from them.
    pub(super) replicas: Vec<(Both<'a>, Option<String>)>,
    leases: u64,
    pub(super) tracing: bool,
    trace: String,
}

impl<'a> World<'a> {
    pub(crate) fn new(case: &Case, real: Option<&'a Real>, tracing: bool) -> Self {
        // The scripts' own limits are fixed.
        let limits = if real.is_some() { Limits::default() } else { Limits { leases: case.limit } };
        let server = Server::new(Both::new(real.map(Real::model), limits), 0);
        let mut world = Self {
            now: 0,
            case: case.clone(),
            real,
            events: BinaryHeap::new(),
            what: HashMap::new(),
            count: 0,
            dice: Dice { state: case.seed, words: 0 },
            servers: vec![server],
            current: 0,
            connections: Vec::new(),
            sent: Vec::new(),
            frontends: Vec::new(),
            sidecars: Vec::new(),
            trouble: BTreeMap::new(),
            loading: true,
            losses: 0,
            excused: 0,
            epochs: 0,
            threshold: case.threshold,
            violation: None,
            replicas: Vec::new(),
            leases: 0,
            tracing,
            trace: String::new(),
        };
        world.configure();
        for _ in 0..case.frontends {
            world.start_frontend();
        }
        for worker in 0..case.workers {
            world.start_sidecar(worker, format!("http://a{worker}"), case.cap);
        }
        world.at(300, None, Event::Load);
        for (i, (at, _)) in case.faults.iter().enumerate() {
            world.at(*at, None, Event::Fault(i));
        }
        world
    }

    /// What the operator has written.
    pub(super) fn configure(&mut self) {
        let most = self.case.most.map(|n| n.to_string());
        let server = &mut self.servers[self.current];
        let threshold = self.threshold.then_some("0.5");
        server.state.configure_by_hand("active_decode_blocks_threshold", threshold);
        server.state.configure_by_hand("max_inflight", most.as_deref());
    }

    pub(super) fn limits(&self) -> Limits {
        if self.real.is_some() { Limits::default() } else { Limits { leases: self.case.limit } }
    }

    pub(super) fn server_time(&self, server: usize) -> u64 {
        (EPOCH_MS + self.now).saturating_add_signed(self.servers[server].offset)
    }

    pub(super) fn at(&mut self, time: u64, owner: Option<Owner>, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time.max(self.now), self.count)));
        self.what.insert(self.count, (owner, event));
    }

    pub(super) fn after(&mut self, delay: u64, owner: Option<Owner>, event: Event) {
        self.at(self.now + delay, owner, event);
    }

    pub(super) fn draw(&mut self, least: u64, most: u64) -> u64 {
        self.dice.draw(least, most)
    }

    pub(super) fn word(&mut self) -> String {
        self.dice.word()
    }

    pub(super) fn say(&mut self, line: impl Display) {
        if self.tracing {
            let _ = writeln!(self.trace, "{:>7} {line}", self.now);
        }
    }

    pub(crate) fn trace(&self) -> String {
        const MOST: usize = 60_000;
        let cut = self.trace.len().saturating_sub(MOST);
        let start = self.trace[cut..].find('\n').map_or(cut, |n| if cut == 0 { 0 } else { cut + n + 1 });
        self.trace[start..].to_owned()
    }

    /// Runs what happens until a time.
    pub(super) fn go(&mut self, until: u64) -> Result<(), String> {
        while let Some(Reverse((time, n))) = self.events.peek().copied() {
            if time > until {
                break;
            }
            self.events.pop();
            self.now = self.now.max(time);
            let Some((owner, event)) = self.what.remove(&n) else { continue };
            if let Some(owner) = owner {
                let frozen = self.trouble.get(&owner).map_or(0, |t| t.frozen);
                if frozen > self.now {
                    self.at(frozen, Some(owner), event);
                    continue;
                }
            }
            self.happen(event);
            if let Some(violation) = self.violation.take() {
                self.say(&violation);
                return Err(violation);
            }
        }
        self.now = until;
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(Owner::Frontend(f)) => self.woken(f),
            Event::Wake(Owner::Sidecar(p)) => self.sample(p),
            Event::Arrive(i) => self.arrive(i),
            Event::Outcome(i, answer) => self.outcome(i, answer),
            Event::Timeout(i) => self.outcome(i, Answer::Unknown),
            Event::Request(f, id, last) => self.request(f, id, last),
            Event::Reach(f, id) => self.reach(f, id),
            Event::Finish(p, id) => self.finish(p, id),
            Event::End(f, id, refused) => self.end(f, id, refused),
            Event::Load => self.load(),
            Event::Fault(i) => {
                let fault: Fault = self.case.faults[i].1.clone();
                self.say(format_args!("## {fault:?}"));
                self.fault(&fault);
            }
            Event::Later(later) => self.later(later),
        }
    }

    /// Requests arrive.
    fn load(&mut self) {
        if self.loading {
            let f = usize::try_from(self.draw(0, self.frontends.len() as u64 - 1)).expect("small");
            let long = self.draw(0, 99) >= 93;
            let last = [20, 60, 200, 500, 1_500, 4_000][usize::try_from(self.draw(0, 5)).expect("small")];
            self.leases += 1;
            let id = LeaseId::parse(&format!("L{}", self.leases)).expect("an id");
            if !self.frontends[f].dead {
                self.after(0, Some(Owner::Frontend(f)), Event::Request(f, id, if long { 20_000 } else { last }));
            }
        }
        let pause = self.draw(1, 2 * self.case.pace);
        self.after(pause, None, Event::Load);
    }
}
