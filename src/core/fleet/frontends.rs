//! What frontends call beside `decide`: `lua/hello.lua`, `heartbeat.lua`, `reconcile.lua`, `sweep.lua`.

use std::collections::{BTreeMap, BTreeSet};

use super::Limits;
use super::fence::{Fence, Kind};
use super::gate::{Closed, Gate, Late, Letter, Registry};
use super::lease::Leases;
use super::script::{Script, Step, broken};
use super::stats::unsigned;
use super::zset::double;
use crate::core::id::{FrontendId, Incarnation, LeaseId, WorkerId};
use crate::core::op::{Caller, Fenced, Held, Pulse, Reconcile, Reconciled, Sweep, Swept, Welcome};

/// Up to so many workers, sums are checked whole.
const FEW: usize = 256;

/// What the check of the sums finds; empty in large fleets.
#[derive(Debug, Default)]
struct Sums {
    inflight: Vec<(WorkerId, u64)>,
    /// Not closed as expired, and not in `P:workers`: nobody would notice their silence.
    unheard: Vec<String>,
}

impl Script<'_> {
    pub(super) fn hello(&mut self, c: &Caller) -> Step<Fenced<Welcome>> {
        self.prologue(true)?;
        if let Fence::Answer(answer) = self.fence(c, Kind::Hello)? {
            return Ok(answer);
        }
        self.heal_for(c);
        self.keep_alive(c.frontend.as_str())?;
        let entry = Registry { epoch: "new".into(), seq: i64::try_from(c.seq).unwrap_or(i64::MAX), leases: 0 };
        self.save_registry(c.frontend.as_str(), &entry)?;
        let (epoch, healing_ms, revision) = (self.epoch(), self.healing_left(), self.revision());
        Ok(Fenced::Done(Welcome { epoch, healing_ms, revision }))
    }

    pub(super) fn heartbeat(&mut self, c: &Caller) -> Step<Fenced<Pulse>> {
        self.prologue(true)?;
        let member = match self.fence(c, Kind::Call)? {
            Fence::Go(member) => member,
            Fence::Answer(answer) => return Ok(answer),
        };
        let f = c.frontend.as_str();
        let leases = member.map_or(0, |m| m.leases);
        let Sums { inflight, unheard } = self.check_sums(f, leases)?;
        self.notice()?;
        self.keep_alive(f)?;
        self.acknowledge(c, leases)?;

        let mut due = self.d.skips.read()?.until(self.now, FEW);
        due.extend(self.d.due.read()?.until(self.now, FEW));
        let mut silent = Vec::new();
        if !self.grace() {
            due.extend(self.d.workers.read()?.before(self.now, FEW));
            due.extend(unheard);
            silent = self.d.frontends.read()?.before(self.now, 8);
        }
        let mut named = BTreeSet::new();
        due.retain(|w| named.insert(w.clone()));
        due.truncate(FEW);
        Ok(Fenced::Done(Pulse {
            revision: self.revision(),
            healing_ms: self.healing_left(),
            frontends: self.d.frontends.read()?.len() as u64,
            config_version: self.config_version()?,
            fleet_version: unsigned(self.s.fleet_version),
            inflight_total: unsigned(self.s.inflight_total.unwrap_or(0)),
            inflight,
            due_workers: due.iter().filter_map(|w| WorkerId::parse(w).ok()).collect(),
            due_frontends: silent.iter().filter_map(|f| FrontendId::parse(f).ok()).collect(),
        }))
    }

    /// State that is not the sum of its parts has lost writes, or was written by hand.
    fn check_sums(&mut self, f: &str, leases: i64) -> Step<Sums> {
        if self.stored_leases(f)? != leases {
            return broken(format!("leases of {f}"));
        }
        if self.d.frontends.read()?.len() != self.d.seq.read()?.len() {
            return broken("registries");
        }
        let workers: Vec<String> = self.d.inflight.read()?.keys().cloned().collect();
        if self.d.gate.read()?.len() != workers.len() {
            return broken("gates and counts");
        }
        if workers.len() > FEW {
            return Ok(Sums::default());
        }
        let (mut sum, mut live, mut live_busy) = (0, 0, 0);
        let (mut inflight, mut open) = (Vec::with_capacity(workers.len()), Vec::new());
        for w in workers {
            let n = self.count(&w)?;
            let Some(gate) = self.gate(&w)? else { return broken("count without gate") };
            sum += n;
            live += i64::from(gate.live());
            live_busy += i64::from(gate.live_busy());
            inflight.extend(WorkerId::parse(&w).map(|w| (w, unsigned(n))));
            if !gate.closed.has(Letter::Expired) {
                open.push(w);
            }
        }
        if self.s.inflight_total != Some(sum) {
            return broken("total");
        }
        self.s.live = Some(live);
        self.s.live_busy = Some(live_busy);
        let heard = self.d.workers.read()?;
        if open.len() > heard.len() {
            open.retain(|w| heard.score(w).is_none());
        } else {
            open.clear();
        }
        Ok(Sums { inflight, unheard: open })
    }

    pub(super) fn reconcile(&mut self, op: &Reconcile, limits: Limits) -> Step<Fenced<Reconciled>> {
        let c = &op.caller;
        let f = c.frontend.as_str();
        self.prologue(true)?;
        let member = match self.fence(c, Kind::Reconcile { first: op.first })? {
            Fence::Go(member) => member.unwrap_or_else(Registry::none),
            Fence::Answer(answer) => return Ok(answer),
        };
        if c.epoch != self.epoch() {
            self.heal_for(c);
            if !op.first {
                // A part must not pass for the whole.
                return Ok(Fenced::Epoch { healing_ms: self.healing_left() });
            }
        }
        let mut held = Self::leases(f, member.leases);
        if member.epoch != self.epoch() {
            self.drop_leases(f);
            held.n = 0;
        } else if op.first && held.n > 0 {
            if self.stored_leases(f)? != held.n {
                return broken(format!("leases of {f}"));
            }
            let ids = self.lease_ids(f, limits.leases)?;
            self.del_all(&mut held, &ids)?;
            if held.n > 0 {
                self.settle()?;
                self.flush_leases(&mut held)?;
                self.acknowledge(c, held.n)?;
                return Ok(Fenced::Done(Reconciled::Again));
            }
        }
        let seen = i64::try_from(c.seen).unwrap_or(i64::MAX - 1);
        self.s.revision = Some(self.s.revision.unwrap_or(0).max(seen) + 1);
        let dropped = self.assert_leases(&mut held, &op.leases)?;
        self.settle()?;
        self.flush_leases(&mut held)?;
        self.keep_alive(f)?;
        self.acknowledge(c, held.n)?;
        if !op.leases.is_empty() {
            let why = format!("{} leases", op.leases.len() - dropped.len());
            self.transition("healed", f, &why);
        }
        let frontends = self.d.frontends.read()?.len() as u64;
        let (epoch, healing_ms, revision) = (self.epoch(), self.healing_left(), self.revision());
        Ok(Fenced::Done(Reconciled::Done { epoch, healing_ms, revision, frontends, dropped }))
    }

    fn assert_leases(&mut self, held: &mut Leases, asserted: &[Held]) -> Step<Vec<LeaseId>> {
        let mut largest: BTreeMap<&str, &Held> = BTreeMap::new();
        for lease in asserted {
            let top = largest.entry(lease.worker.as_str()).or_insert(lease);
            if top.incarnation < lease.incarnation {
                *top = lease;
            }
            // There already, with an incarnation that another one has replaced: judged afresh.
            if let Some(old) = self.lease(held, lease.id.as_str())?
                && self.gate(&old.worker)?.is_none_or(|gate| gate.incarnation.as_str() != old.incarnation)
            {
                self.del(held, lease.id.as_str())?;
            }
        }
        // In the order in which the call names them.
        let mut done = BTreeSet::new();
        for lease in asserted {
            if done.insert(lease.worker.as_str())
                && let Some(top) = largest.get(lease.worker.as_str())
            {
                self.ensure_gate(top)?;
            }
        }
        let mut dropped = Vec::new();
        for lease in asserted {
            let w = lease.worker.as_str();
            if self.gate(w)?.is_some_and(|gate| gate.incarnation == lease.incarnation) {
                self.add(held, lease.id.as_str(), w, &lease.incarnation, lease.tokens)?;
            } else {
                dropped.push(lease.id.clone());
            }
        }
        Ok(dropped)
    }

    /// A lease on a worker that Redis does not know (yet), or that is larger than the gate's incarnation: the gate becomes
    /// a closed one of that incarnation, so that the lease is counted until its worker has registered again.
    fn ensure_gate(&mut self, lease: &Held) -> Step<()> {
        let w = lease.worker.as_str();
        let before = self.gate(w)?;
        if before.as_ref().is_some_and(|gate| gate.incarnation >= lease.incarnation) {
            return Ok(());
        }
        let remembered = self.worker_field(w, "incarnation")?.and_then(|text| Incarnation::parse(&text));
        if remembered.is_some_and(|remembered| lease.incarnation < remembered) {
            return Ok(());
        }
        if before.is_some() {
            self.s.inflight_total = Some(self.s.inflight_total.unwrap_or(0) - self.count(w)?);
        } else if self.d.inflight.read()?.contains_key(w) {
            return broken("count without gate");
        }
        let gate =
            Gate { incarnation: lease.incarnation.clone(), cap: None, closed: Closed::EXPIRED, url: lease.url.clone() };
        self.save_gate(w, before.as_ref(), &gate);
        self.set(Late::Inflight, w, "0".into());
        self.set(Late::Reserved, w, "0".into());
        for key in [&mut self.d.workers, &mut self.d.skips, &mut self.d.due] {
            key.write()?.remove(w);
        }
        self.d.busy.write()?.remove(w);
        self.revise_fleet();
        self.touched.insert(w.to_owned());
        Ok(())
    }

    pub(super) fn sweep(&mut self, op: &Sweep, limits: Limits) -> Step<Swept> {
        self.prologue(false)?;
        let mut budget = limits.leases;
        let mut more = Vec::new();
        for f in &op.frontends {
            if self.reap(f.as_str(), &mut budget)? {
                more.push(f.clone());
            }
        }
        for w in &op.workers {
            self.check(w.as_str())?;
        }
        Ok(Swept::Done { more })
    }

    /// Gives back what a dead frontend held. True if it held more than one call may give back.
    fn reap(&mut self, f: &str, budget: &mut usize) -> Step<bool> {
        let Some(until) = self.d.frontends.read()?.score(f) else { return Ok(false) };
        if until >= double(self.now) || (self.grace() && until > 0.0) {
            return Ok(false);
        }
        let Some(member) = self.registered(f)? else { return broken(format!("registry of {f}")) };
        if member.epoch == self.epoch() {
            if self.stored_leases(f)? != member.leases {
                return broken(format!("leases of {f}"));
            }
            let mut held = Self::leases(f, member.leases);
            let ids = self.lease_ids(f, *budget)?;
            *budget -= ids.len();
            let ended = self.del_all(&mut held, &ids)?;
            self.released(ended)?;
            self.settle()?;
            self.flush_leases(&mut held)?;
            if held.n > 0 {
                self.d.frontends.write()?.insert(f, 0.0);
                self.save_registry(f, &Registry { leases: held.n, ..member })?;
                return Ok(true);
            }
        } else {
            // Not counted in this epoch.
            self.drop_leases(f);
        }
        self.d.frontends.write()?.remove(f);
        self.d.seq.write()?.remove(f);
        self.revise();
        self.transition("reaped", f, "silent");
        Ok(false)
    }

    /// Whatever is due of a worker: its end, the end of a skip, stale signals.
    fn check(&mut self, w: &str) -> Step<()> {
        if !self.alive(w)? && !self.grace() {
            self.expire(w)?;
        }
        if self.gate(w)?.is_none() {
            self.d.due.write()?.remove(w);
            self.d.skips.write()?.remove(w);
            return Ok(());
        }
        let skipped = self.d.skips.read()?.score(w);
        if skipped.is_none_or(|t| t <= double(self.now)) {
            self.end_skip(w)?;
        }
        self.recompute(w)?;
        self.place(w)
    }

    pub(super) fn mark_gone(&mut self, w: &str, incarnation: &Incarnation) -> Step<()> {
        if self.gate(w)?.is_none_or(|gate| gate.incarnation != *incarnation) {
            return Ok(());
        }
        self.d.workers.write()?.remove(w);
        self.mark(w, Letter::Expired, true, "goodbye")?;
        if self.count(w)? == 0 { self.forget(w) } else { self.place(w) }
    }
}
