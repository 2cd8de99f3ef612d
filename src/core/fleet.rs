//! The sequential model of one model's shared state: the specification of the Lua scripts. Every operation of
//! [`super::op`] is one function of the state, its arguments and the time; a property test drives both with the same
//! operations and compares every answer and the whole state. It also serves where there is no Redis (`store::memory`).
//!
//! What holds after every operation (design section 10): for each worker `inflight` is the number of counted leases on
//! its gate's incarnation, `inflight_total` their sum; `eligible` are the workers that may take a request; `busy` those
//! whose declared ranks are all busy; revisions never fall.

mod config;
mod decide;
mod fence;
mod frontends;
mod gate;
mod invariants;
mod lease;
mod repair;
mod script;
pub mod shard;
mod snapshot;
mod stats;
mod workers;
pub mod zset;

use std::collections::BTreeMap;

use super::op::{
    Configure, Configured, Decide, Decided, Drain, Fenced, Heartbeat, Hello, Leave, MAX_LEASES, Page, Pulse, Reconcile,
    Reconciled, Register, Registered, Repair, Report, Reported, Snapshot, Sweep, Swept, Welcome,
};
use script::{Further, Origin, Script};
use shard::{Held, Shard};

/// Bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most leases that one call gives back.
    pub leases: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { leases: MAX_LEASES }
    }
}

/// One model's shared state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    /// Its keys. Anybody may write to them, as with Redis.
    pub shard: Shard,
    limits: Limits,
}

impl Fleet {
    /// A state with nothing in it, as after FLUSHALL.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { shard: Shard::default(), limits }
    }

    /// The whole state, by the name of the key behind `P:`.
    #[must_use]
    pub fn dump(&self) -> BTreeMap<String, Held> {
        self.shard.dump()
    }

    /// `lua/hello.lua`.
    pub fn hello(&mut self, op: &Hello, now_ms: u64) -> Fenced<Welcome> {
        fence::run(&mut self.shard, now_ms, &op.0, Further::default(), |s| s.hello(&op.0))
    }

    /// `lua/decide.lua`.
    pub fn decide(&mut self, op: &Decide, now_ms: u64) -> Fenced<Decided> {
        fence::run(&mut self.shard, now_ms, &op.caller, Further::default(), |s| s.decide(op))
    }

    /// `lua/heartbeat.lua`.
    pub fn heartbeat(&mut self, op: &Heartbeat, now_ms: u64) -> Fenced<Pulse> {
        fence::run(&mut self.shard, now_ms, &op.0, Further::default(), |s| s.heartbeat(&op.0))
    }

    /// `lua/reconcile.lua`.
    pub fn reconcile(&mut self, op: &Reconcile, now_ms: u64) -> Fenced<Reconciled> {
        let workers = op.leases.iter().map(|lease| lease.worker.to_string()).collect();
        let further = Further { workers, ..Further::default() };
        let limits = self.limits;
        fence::run(&mut self.shard, now_ms, &op.caller, further, |s| s.reconcile(op, limits))
    }

    /// `lua/sweep.lua`.
    pub fn sweep(&mut self, op: &Sweep, now_ms: u64) -> Swept {
        let further = Further {
            workers: op.workers.iter().map(ToString::to_string).collect(),
            leases: op.frontends.iter().map(ToString::to_string).collect(),
        };
        let limits = self.limits;
        let origin = remembering(&op.nonce);
        Script::run(&mut self.shard, now_ms, origin, &further, |s| s.sweep(op, limits)).unwrap_or(Swept::Epoch)
    }

    /// `lua/register.lua`.
    pub fn register(&mut self, op: &Register, now_ms: u64) -> Registered {
        let further = of_worker(op.registration.worker.as_str());
        let origin = Origin { mem: op.known, seen: 0, nonce: op.nonce.clone() };
        Script::run(&mut self.shard, now_ms, origin, &further, |s| s.register(op)).unwrap_or(Registered::Again)
    }

    /// `lua/report.lua`.
    pub fn report(&mut self, op: &Report, now_ms: u64) -> Reported {
        let further = of_worker(op.registration.worker.as_str());
        let origin = remembering(&op.nonce);
        Script::run(&mut self.shard, now_ms, origin, &further, |s| s.report(op)).unwrap_or(Reported::Register)
    }

    /// `lua/drain.lua`.
    pub fn drain(&mut self, op: &Drain, now_ms: u64) {
        let further = of_worker(op.worker.as_str());
        let _ = Script::run(&mut self.shard, now_ms, remembering("drain"), &further, |s| s.drain(op));
    }

    /// `lua/leave.lua`.
    pub fn leave(&mut self, op: &Leave, now_ms: u64) {
        let origin = remembering("leave");
        let _ = Script::run(&mut self.shard, now_ms, origin, &Further::default(), |s| {
            s.prologue(false)?;
            s.mark_gone(op.worker.as_str(), &op.incarnation)
        });
    }

    /// `lua/configure.lua`.
    pub fn configure(&mut self, op: &Configure, now_ms: u64) -> Configured {
        let origin = remembering("configure");
        Script::run(&mut self.shard, now_ms, origin, &Further::default(), |s| s.configure(op))
            .unwrap_or(Configured::Unknown)
    }

    /// `lua/repair.lua`; how long the new epoch heals, in milliseconds.
    pub fn repair(&mut self, op: &Repair, now_ms: u64) -> u64 {
        let further = Further {
            workers: op.workers.iter().map(ToString::to_string).collect(),
            leases: op.frontends.iter().map(ToString::to_string).collect(),
        };
        let origin = remembering(&op.nonce);
        Script::run(&mut self.shard, now_ms, origin, &further, |s| s.repair(op)).unwrap_or_else(|healing_ms| healing_ms)
    }

    /// `lua/snapshot.lua`; always one page.
    pub fn snapshot(&mut self, _: &Snapshot, now_ms: u64) -> Page {
        snapshot::page(&self.shard, now_ms)
    }
}

/// Others may hold leases: a new epoch heals.
fn remembering(nonce: &str) -> Origin {
    Origin { mem: true, seen: 0, nonce: nonce.to_owned() }
}

fn of_worker(w: &str) -> Further {
    Further { workers: vec![w.to_owned()], leases: Vec::new() }
}
