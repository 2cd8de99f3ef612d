//! Both parties, the processes that call them, and what became of it.

use std::fmt::{Debug, Write as _};

use tidegate::core::fleet::Limits;
use tidegate::core::id::{FrontendId, Incarnation, LeaseId, WorkerId};
use tidegate::core::op::{
    Admission, Caller, Configure, Decide, Decided, Drain, Fenced, Heartbeat, Held, Hello, Leave, Page, Pulse,
    Reconcile, Reconciled, Register, Registered, Repair, Report, Snapshot, Source, Sweep, Swept, Verdict,
};
use tidegate::scripts::Operation;

use super::both::Both;
use super::names::{field_of, figures_of, registration, value_of, worker};
use super::real::Real;
use super::steps::{self, Slip, Step};

/// A frontend as a caller.
#[derive(Debug, Clone)]
pub(crate) struct Frontend {
    slot: usize,
    generation: u32,
    epoch: String,
    seq: u64,
    acked: u64,
    seen: u64,
    held: Vec<Held>,
}

impl Frontend {
    fn id(&self) -> FrontendId {
        FrontendId::parse(&format!("f{}-{}", self.slot, self.generation)).expect("a name")
    }
}

/// A sidecar's process.
#[derive(Debug, Clone)]
struct Process {
    worker: WorkerId,
    nonce: String,
    incarnation: Option<Incarnation>,
    number: u64,
    lives: u32,
}

/// Both parties.
pub(crate) struct Parties<'a> {
    both: Both<'a>,
    pub(crate) now: u64,
    frontends: Vec<Frontend>,
    processes: Vec<Process>,
    leases: u32,
    nonces: u32,
    harmed: bool,
    trace: String,
}

type Taken = Result<(), String>;

impl<'a> Parties<'a> {
    pub(crate) fn new(real: &'a Real) -> Self {
        let frontend =
            |slot| Frontend { slot, generation: 0, epoch: String::new(), seq: 0, acked: 0, seen: 0, held: Vec::new() };
        // The last one is a rival of the first.
        let process = |(i, w): (usize, usize)| Process {
            worker: worker(w),
            nonce: format!("n{i}x0"),
            incarnation: None,
            number: 0,
            lives: 0,
        };
        Self {
            both: Both::new(Some(real.model()), Limits::default()),
            now: 1_700_000_000_000,
            frontends: (0..3).map(frontend).collect(),
            processes: [0, 1, 2, 3, 0].into_iter().enumerate().map(process).collect(),
            leases: 0,
            nonces: 0,
            harmed: false,
            trace: String::new(),
        }
    }

    pub(crate) fn trace(&self) -> &str {
        &self.trace
    }

    pub(crate) fn say(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.trace, "{:>7} {line}", self.now - 1_700_000_000_000_u64.min(self.now));
    }

    /// Runs an operation on both; the answers and the states must be the same.
    fn both<O: Operation + Debug>(&mut self, op: &O) -> Result<O::Reply, String>
    where
        O::Reply: Debug + PartialEq,
    {
        self.both_as(op, |reply| reply)
    }

    fn both_as<O: Operation + Debug>(
        &mut self,
        op: &O,
        normal: impl Fn(O::Reply) -> O::Reply,
    ) -> Result<O::Reply, String>
    where
        O::Reply: Debug + PartialEq,
    {
        self.say(format_args!("{op:?}"));
        let reply = self.both.call(op, self.now, normal)?;
        self.say(format_args!("   -> {reply:?}"));
        self.both.same_state()?;
        Ok(reply)
    }

    fn nonce(&mut self) -> String {
        self.nonces += 1;
        format!("r{}", self.nonces)
    }

    fn caller(&mut self, f: usize, slip: Slip) -> Caller {
        let nonce = self.nonce();
        let frontend = &mut self.frontends[f];
        if slip != Slip::OldSeq {
            frontend.seq += 1;
        }
        let epoch = match slip {
            Slip::OldEpoch => "1-old".to_owned(),
            Slip::NoEpoch => String::new(),
            _ => frontend.epoch.clone(),
        };
        Caller {
            frontend: frontend.id(),
            mem: !epoch.is_empty(),
            epoch,
            seq: frontend.seq,
            acked: if slip == Slip::Lost { frontend.seq + 3 } else { frontend.acked },
            seen: frontend.seen,
            nonce,
        }
    }

    /// What every answer means to its caller.
    fn heard<T>(&mut self, f: usize, caller: &Caller, reply: Fenced<T>) -> Option<T> {
        let frontend = &mut self.frontends[f];
        match reply {
            Fenced::Done(done) => {
                frontend.acked = frontend.acked.max(caller.seq);
                Some(done)
            }
            Fenced::Stale { stored } => {
                frontend.seq = frontend.seq.max(stored);
                None
            }
            Fenced::Gone => {
                frontend.generation += 1;
                frontend.seq = 0;
                frontend.acked = 0;
                None
            }
            Fenced::Epoch { .. } | Fenced::Healing { .. } => None,
        }
    }

    /// Takes one step.
    pub(crate) fn take(&mut self, step: &Step) -> Taken {
        match step {
            Step::Wait(ms) => self.now = self.now.saturating_add_signed(*ms),
            Step::Hello { f, renew } => self.hello(usize::from(*f), *renew)?,
            Step::Decide { f, slip, releases, skips, asks, seed } => {
                self.decide(usize::from(*f), *slip, releases, skips, asks, *seed)?;
            }
            Step::Heartbeat { f, slip, sweep } => self.heartbeat(usize::from(*f), *slip, *sweep)?,
            Step::Reconcile { f, slip, first, own, more } => {
                self.reconcile(usize::from(*f), *slip, *first, *own, more)?;
            }
            Step::Sweep { workers, frontends } => {
                let workers = workers.iter().map(|w| worker(usize::from(*w))).collect();
                let frontends = self.named(frontends);
                self.sweep(workers, frontends)?;
            }
            Step::Repair { workers, frontends } => {
                let workers = workers.iter().map(|w| worker(usize::from(*w))).collect();
                let (frontends, nonce) = (self.named(frontends), self.nonce());
                self.both(&Repair { workers, frontends, nonce })?;
            }
            Step::Register { p, anew, keep, known, yields, number, shape, figures } => {
                let p = usize::from(*p);
                let process = &mut self.processes[p];
                if *anew {
                    process.lives += 1;
                    process.nonce = format!("n{p}x{}", process.lives);
                    process.incarnation = None;
                    process.number = 0;
                }
                process.number = if *number < 12 { process.number.saturating_sub(1) } else { process.number + 1 };
                let process = process.clone();
                let op = Register {
                    registration: registration(&process.worker, p, shape),
                    nonce: process.nonce,
                    incarnation: process.incarnation.filter(|_| *keep),
                    known: *known,
                    yields: *yields,
                    number: process.number,
                    figures: figures_of(figures),
                };
                if let Registered::Ok { incarnation } = self.both(&op)? {
                    self.processes[p].incarnation = Some(incarnation);
                }
            }
            Step::Report { p, back, room, shape, figures } => {
                let p = usize::from(*p);
                let nonce = self.nonce();
                let process = &mut self.processes[p];
                let Some(incarnation) = process.incarnation.clone() else { return Ok(()) };
                process.number += 1;
                let number = if *back { process.number.saturating_sub(2) } else { process.number };
                let registration = registration(&process.worker, p, shape);
                let figures = figures_of(figures);
                self.both(&Report { registration, incarnation, number, room: *room, figures, nonce })?;
            }
            Step::Drain { p, on } => {
                let process = self.processes[usize::from(*p)].clone();
                let Some(incarnation) = process.incarnation else { return Ok(()) };
                self.both(&Drain { worker: process.worker, incarnation, on: *on })?;
            }
            Step::Leave { p } => {
                let process = self.processes[usize::from(*p)].clone();
                let Some(incarnation) = process.incarnation else { return Ok(()) };
                self.both(&Leave { worker: process.worker, incarnation })?;
            }
            Step::Configure { source, changes } => {
                let source = [Source::Cli, Source::Api, Source::Seed][usize::from(*source)];
                let changes = changes.iter().map(|(field, value)| {
                    let text = value_of(*value);
                    (field_of(*field).to_owned(), (!text.is_empty()).then(|| text.to_owned()))
                });
                let changes = changes.collect();
                self.both(&Configure { source, changes })?;
            }
            Step::Hset { field, value } => self.hset(field_of(*field), value.map(value_of))?,
            // A read-only script cannot mend what it finds: it answers with an error.
            Step::Snapshot if self.harmed => {}
            Step::Snapshot => {
                let op = Snapshot { cursor: "0".into() };
                self.both_as(&op, |mut page: Page| {
                    page.stats.sort();
                    page.applied.sort();
                    page.frontends.sort();
                    page.workers.sort_by(|a, b| a.worker.cmp(&b.worker));
                    page
                })?;
            }
            Step::Damage(damage) => {
                if let Some(done) = self.both.damage(damage, self.now) {
                    self.harmed = true;
                    self.say(done);
                }
                self.both.same_state()?;
            }
        }
        Ok(())
    }

    /// Frontends by their present ids, or by those they had before.
    fn named(&self, frontends: &[u8]) -> Vec<FrontendId> {
        let id = |f: &u8| {
            let mut frontend = self.frontends[usize::from(*f) % 3].clone();
            frontend.generation = frontend.generation.saturating_sub(u32::from(*f) / 3);
            frontend.id()
        };
        frontends.iter().map(id).collect()
    }

    fn hello(&mut self, f: usize, renew: bool) -> Taken {
        if renew {
            self.frontends[f].generation += 1;
            self.frontends[f].seq = 0;
            self.frontends[f].acked = 0;
        }
        let caller = self.caller(f, Slip::None);
        let reply = self.both(&Hello(caller.clone()))?;
        self.heard(f, &caller, reply);
        Ok(())
    }

    fn decide(
        &mut self,
        f: usize,
        slip: Slip,
        releases: &[u8],
        skips: &[(u8, u8)],
        asks: &[steps::Ask],
        seed: u32,
    ) -> Taken {
        let caller = self.caller(f, slip);
        let held = self.frontends[f].held.clone();
        let pick = |i: u8| held.get(usize::from(i) % held.len().max(1)).map(|lease| lease.id.clone());
        let releases: Vec<LeaseId> = releases.iter().filter_map(|i| pick(*i)).collect();
        let skips = skips.iter().filter_map(|(w, i)| {
            let incarnation = self.incarnation(usize::from(*w), *i)?;
            Some((worker(usize::from(*w)), incarnation))
        });
        let skips = skips.collect();
        let mut admissions = Vec::new();
        for ask in asks {
            let again = ask.again.and_then(pick);
            self.leases += 1;
            let id = again.unwrap_or_else(|| LeaseId::parse(&format!("L{}", self.leases)).expect("an id"));
            admissions.push(Admission {
                id,
                tokens: u64::from(ask.tokens),
                pin: ask.pin.map(|w| worker(usize::from(w))),
                exclude: ask.exclude.iter().map(|w| worker(usize::from(*w))).collect(),
            });
        }
        let op = Decide { caller: caller.clone(), seed, releases: releases.clone(), skips, admissions };
        let reply: Fenced<Decided> = self.both(&op)?;
        let Some(decided) = self.heard(f, &caller, reply) else { return Ok(()) };
        let frontend = &mut self.frontends[f];
        frontend.seen = frontend.seen.max(decided.revision);
        frontend.held.retain(|lease| !releases.contains(&lease.id));
        for (verdict, ask) in decided.verdicts.into_iter().zip(op.admissions) {
            if let Verdict::Admitted { worker, incarnation, url, .. } = verdict
                && !frontend.held.iter().any(|lease| lease.id == ask.id)
            {
                frontend.held.push(Held { id: ask.id, worker, incarnation, url, tokens: ask.tokens });
            }
        }
        Ok(())
    }

    /// An incarnation that the worker has, had, or never had.
    fn incarnation(&self, w: usize, which: u8) -> Option<Incarnation> {
        let mut known = self.processes.iter().filter(|p| p.worker == worker(w));
        match which {
            0 | 1 => known.find_map(|p| p.incarnation.clone()),
            2 => known.rev().find_map(|p| p.incarnation.clone()),
            _ => Some(Incarnation::new(self.now, "other")),
        }
    }

    fn heartbeat(&mut self, f: usize, slip: Slip, sweep: bool) -> Taken {
        let caller = self.caller(f, slip);
        let reply: Fenced<Pulse> = self.both_as(&Heartbeat(caller.clone()), |mut reply| {
            if let Fenced::Done(pulse) = &mut reply {
                pulse.inflight.sort();
                pulse.due_workers.sort();
                pulse.due_frontends.sort();
            }
            reply
        })?;
        let Some(pulse) = self.heard(f, &caller, reply) else { return Ok(()) };
        self.frontends[f].seen = self.frontends[f].seen.max(pulse.revision);
        if sweep {
            self.sweep(pulse.due_workers, pulse.due_frontends)?;
        }
        Ok(())
    }

    fn sweep(&mut self, workers: Vec<WorkerId>, frontends: Vec<FrontendId>) -> Taken {
        let nonce = self.nonce();
        let reply = self.both(&Sweep { workers, frontends, nonce })?;
        if let Swept::Done { more } = reply
            && !more.is_empty()
        {
            return Err(format!("no case holds so many leases: {more:?}"));
        }
        Ok(())
    }

    fn reconcile(&mut self, f: usize, slip: Slip, first: bool, own: bool, more: &[(u8, u8, u8)]) -> Taken {
        let caller = self.caller(f, slip);
        let mut leases = if own { self.frontends[f].held.clone() } else { Vec::new() };
        for (w, i, tokens) in more {
            let Some(incarnation) = self.incarnation(usize::from(*w), *i) else { continue };
            self.leases += 1;
            leases.push(Held {
                id: LeaseId::parse(&format!("S{}", self.leases)).expect("an id"),
                worker: worker(usize::from(*w)),
                incarnation,
                url: format!("http://static:{w}"),
                tokens: u64::from(*tokens),
            });
        }
        let reply = self.both(&Reconcile { caller: caller.clone(), first, leases: leases.clone() })?;
        if let Some(Reconciled::Done { epoch, revision, dropped, .. }) = self.heard(f, &caller, reply) {
            let frontend = &mut self.frontends[f];
            frontend.epoch = epoch;
            frontend.seen = frontend.seen.max(revision);
            for lease in leases {
                let known = frontend.held.iter().any(|held| held.id == lease.id);
                if !known && !dropped.contains(&lease.id) {
                    frontend.held.push(lease);
                }
            }
        }
        Ok(())
    }

    fn hset(&mut self, field: &str, value: Option<&str>) -> Taken {
        self.say(format_args!("HSET config {field} {value:?}"));
        self.both.configure_by_hand(field, value);
        self.both.same_state()
    }
}
