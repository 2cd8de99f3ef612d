//! What must hold after every script, and what must be right in the end.

use std::collections::BTreeMap;

use tidegate::core::fleet::shard::Held;
use tidegate::core::op::{Fenced, Page, Pulse, Verdict};
use tidegate::core::session;

use crate::parity::doctor::doctor;

use super::case::Fault;
use super::wire::{Answer, Command};
use super::world::{Owner, World};

/// How long nothing that happens to a process is held against its reaper, after what befell it.
pub(super) const EXCUSED_MS: u64 = 16_000;

/// A state before a call, as far as it is compared.
pub(super) struct Before {
    inflight: BTreeMap<String, u64>,
    transitions: usize,
    epoch: String,
}

/// Lists without an order of their own.
pub(super) fn sorted(mut reply: Fenced<Pulse>) -> Fenced<Pulse> {
    if let Fenced::Done(pulse) = &mut reply {
        pulse.inflight.sort();
        pulse.due_workers.sort();
        pulse.due_frontends.sort();
    }
    reply
}

/// Lists without an order of their own.
pub(super) fn sorted_page(mut page: Page) -> Page {
    page.stats.sort();
    page.applied.sort();
    page.frontends.sort();
    page.workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    page
}

impl World<'_> {
    /// What a case amounted to.
    pub(crate) fn summary(&self) -> String {
        let sum = |of: fn(&super::frontend::Frontend) -> u64| self.frontends.iter().map(of).sum::<u64>();
        format!(
            "{} faults, {} losses, {} epochs, {} servers, {} admitted, {} refused, {} calls, {} s",
            self.case.faults.len(),
            self.losses,
            self.epochs,
            self.servers.len(),
            sum(|f| f.admitted),
            sum(|f| f.refused),
            self.sent.len(),
            self.now / 1_000,
        )
    }

    pub(super) fn stat(&self, server: usize, name: &str) -> Option<String> {
        self.servers[server].state.model.shard.stats.read().ok()?.get(name).cloned()
    }

    fn inflight(&self, server: usize) -> BTreeMap<String, u64> {
        let hash = self.servers[server].state.model.shard.inflight.read().ok();
        hash.into_iter().flatten().map(|(w, n)| (w.clone(), n.parse().unwrap_or(u64::MAX))).collect()
    }

    fn transitions(&self, server: usize) -> usize {
        self.servers[server].state.model.shard.transitions.read().map_or(0, |journal| journal.0.len())
    }

    pub(super) fn before(&self, server: usize) -> Before {
        Before {
            inflight: self.inflight(server),
            transitions: self.transitions(server),
            epoch: self.stat(server, "epoch").unwrap_or_default(),
        }
    }

    /// After every script.
    pub(super) fn inspect(&mut self, server: usize, command: &Command, answer: &Answer, before: &Before) {
        let epoch = self.stat(server, "epoch").unwrap_or_default();
        if epoch != before.epoch {
            self.servers[server].tampered = None;
        }
        self.journalled(server, before);
        // Compared with Redis now and then: it takes time.
        if self.real.is_some()
            && self.draw(0, 3) == 0
            && let Err(difference) = self.servers[server].state.same_state()
        {
            self.violation = Some(difference);
        }
        let tampered = self.servers[server].tampered.is_some();
        if tampered || self.violation.is_some() {
            return;
        }
        if let Err(broken) = self.servers[server].state.model.check() {
            self.violation = Some(format!("after {command:?}: {broken}"));
            return;
        }
        // Now and then: it takes time.
        if self.sent.len().is_multiple_of(16)
            && let Err(broken) = doctor(&self.servers[server].state.model.dump(), self.server_time(server))
        {
            self.violation = Some(format!("after {command:?}: {broken}"));
            return;
        }
        let revision = self.stat(server, "revision").and_then(|text| text.parse().ok()).unwrap_or(0);
        let last = self.servers[server].revision;
        if revision < last {
            self.violation = Some(format!("the revision fell from {last} to {revision}"));
        }
        self.servers[server].revision = revision;
        if let (Command::Session(_, session::Call::Decide(op)), Answer::Session(session::Reply::Decide(reply))) =
            (command, answer)
            && let Fenced::Done(decided) = reply
        {
            self.judged(server, &epoch, &decided.verdicts, before, op.releases.is_empty());
        }
    }

    /// One answer per epoch and revision; nobody is admitted at the cap.
    fn judged(&mut self, server: usize, epoch: &str, verdicts: &[Verdict], before: &Before, only_up: bool) {
        for verdict in verdicts {
            let (on, admitted) = match verdict {
                Verdict::Admitted { revision, .. } => (revision - 1, true),
                Verdict::Refused { revision, .. } => (*revision, false),
            };
            let known = *self.servers[server].decided.entry((epoch.to_owned(), on)).or_insert(admitted);
            if known != admitted {
                self.violation = Some(format!("on revision {on} of {epoch}: both admitted and refused"));
            }
        }
        let shard = &self.servers[server].state.model.shard;
        for (w, n) in self.inflight(server) {
            let cap = shard.gate.read().ok().and_then(|gates| gates.get(&w)?.split('|').nth(1)?.parse::<u64>().ok());
            let rose = n > before.inflight.get(&w).copied().unwrap_or(0);
            if only_up && rose && cap.is_some_and(|cap| n > cap) {
                self.violation = Some(format!("{w} was given request {n} of at most {cap:?}"));
            }
        }
    }

    /// Nobody is reaped who is alive and whom nothing has befallen.
    fn journalled(&mut self, server: usize, before: &Before) {
        let Ok(journal) = self.servers[server].state.model.shard.transitions.read() else { return };
        let new: Vec<(String, String, String)> = journal
            .0
            .iter()
            .skip(before.transitions)
            .map(|(_, entry)| {
                let field = |i: usize| entry.get(i).map(|(_, v)| v.clone()).unwrap_or_default();
                (field(0), field(1), field(2))
            })
            .collect();
        for (kind, who, why) in new {
            match (kind.as_str(), why.as_str()) {
                ("epoch", _) => {
                    self.epochs += u32::from(server == self.current);
                    self.say(format_args!("** new epoch {who}: {why}"));
                }
                ("reaped", _) | ("left", "silent") if server == self.current => {
                    self.say(format_args!("** {kind} {who}"));
                    if let Some(owner) = self.live(&who, server) {
                        let touched = self.trouble.get(&owner).map_or(0, |t| t.touched.max(t.frozen));
                        if self.now >= self.excused && (self.now > touched + EXCUSED_MS || touched == 0) {
                            self.violation = Some(format!("{who} is alive, nothing befell it, and it was {kind}"));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// The live process of this name, if there is one.
    fn live(&self, who: &str, server: usize) -> Option<Owner> {
        if let Some(f) = self.frontends.iter().position(|f| !f.dead && f.session.id().as_str() == who) {
            return Some(Owner::Frontend(f));
        }
        let gates = self.servers[server].state.model.shard.gate.read().ok()?;
        let incarnation = gates.get(who)?.split('|').next()?.to_owned();
        let held = |p: &super::sidecar::Sidecar| {
            !p.dead && p.worker.as_str() == who && p.registrar.incarnation().map(|i| i.as_str()) == Some(&incarnation)
        };
        self.sidecars.iter().position(held).map(Owner::Sidecar)
    }

    /// Plays the case to its end.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        let last = self.case.faults.iter().map(|(at, fault)| at + duration(fault)).max().unwrap_or(0);
        self.go(last.max(self.case.stop))?;
        let any = |is: fn(&Fault) -> bool| self.case.faults.iter().any(|(_, fault)| is(fault));
        // Healing, two heartbeats, detection and retry; the reaper and grace if somebody may have died.
        let mut slack = 4_000 + 4_000 + 2_500;
        if any(may_kill) {
            slack += 10_000 + 4_000;
        }
        if any(|fault| matches!(fault, Fault::Delete { .. })) {
            slack += 2_000;
        }
        self.say("-- the last fault is over");
        self.go(self.now + slack)?;
        self.settled()?;
        let epochs = self.epochs;
        self.say("-- all must be right now");
        self.go(self.now + 9_000)?;
        if self.epochs > epochs {
            return Err("a new epoch after everything had settled".into());
        }
        self.loading = false;
        self.go(self.now + 400)?;
        self.settled()?;
        if self.epochs > 1 + 2 * self.losses {
            return Err(format!("{} epochs for {} losses", self.epochs, self.losses));
        }
        Ok(())
    }

    /// Everything is right, but for calls that are under way: looked at several times, without new requests.
    fn settled(&mut self) -> Result<(), String> {
        let loading = std::mem::replace(&mut self.loading, false);
        self.go(self.now + 350)?;
        let mut outcome = Ok(());
        for _ in 0..14 {
            outcome = self.look();
            if outcome.is_ok() {
                break;
            }
            self.go(self.now + 25)?;
        }
        self.loading = loading;
        outcome.map_err(|wrong| {
            let dump = self.servers[self.current].state.model.dump();
            let shown = |(name, held): (&String, &Held)| match held {
                Held::Stream(_) => String::new(),
                _ => format!("    {name}: {held:?}\n"),
            };
            format!("{wrong}\n{}", dump.iter().map(shown).collect::<String>())
        })
    }

    fn look(&self) -> Result<(), String> {
        self.servers[self.current].state.model.check()?;
        doctor(&self.servers[self.current].state.model.dump(), self.server_time(self.current))?;
        self.servers[self.current].state.same_state()?;
        self.look_at_frontends()?;
        self.look_at_workers()
    }

    fn look_at_frontends(&self) -> Result<(), String> {
        let dump = self.servers[self.current].state.model.dump();
        let fields = |name: &str| match dump.get(name) {
            Some(Held::Hash(hash)) => hash.keys().cloned().collect(),
            Some(Held::Zset(scores)) => scores.keys().cloned().collect(),
            _ => Vec::new(),
        };
        let mut ids = Vec::new();
        for (f, frontend) in self.frontends.iter().enumerate().filter(|(_, frontend)| !frontend.dead) {
            let session = &frontend.session;
            if session.is_static(self.now) || !session.is_settled() {
                return Err(format!("F{f} does not decide (open {})", session.is_open()));
            }
            let mut held: Vec<String> =
                session.held().filter(|(_, _, listed)| *listed).map(|(id, ..)| id.to_string()).collect();
            held.sort();
            let stored = fields(&format!("leases:{}", session.id()));
            if held != stored {
                return Err(format!("{} holds {held:?}, Redis has {stored:?}", session.id()));
            }
            if session.held_count() != frontend.streams.len() {
                return Err(format!("F{f}: {} leases, {} streams", session.held_count(), frontend.streams.len()));
            }
            ids.push(session.id().to_string());
        }
        ids.sort();
        for name in ["frontends", "seq"] {
            let known = fields(name);
            if known != ids {
                return Err(format!("P:{name} has {known:?}, alive are {ids:?}"));
            }
        }
        let orphan = dump.keys().filter_map(|key| key.strip_prefix("leases:")).find(|f| !ids.iter().any(|id| id == f));
        orphan.map_or(Ok(()), |f| Err(format!("leases of {f}, who is gone")))
    }

    fn look_at_workers(&self) -> Result<(), String> {
        let shard = &self.servers[self.current].state.model.shard;
        let wrong = |_| "a wrong type".to_owned();
        let (gates, alive) = (shard.gate.read().map_err(wrong)?, shard.workers.read().map_err(wrong)?);
        let (eligible, skips) = (shard.eligible.read().map_err(wrong)?, shard.skips.read().map_err(wrong)?);
        let inflight = self.inflight(self.current);
        let busy_set = shard.busy.read().map_err(wrong)?;
        let live: Vec<_> = self.sidecars.iter().filter(|p| !p.dead).collect();
        for p in &live {
            let w = p.worker.as_str();
            let Some(gate) = gates.get(w).filter(|_| alive.score(w).is_some()) else {
                return Err(format!("{w} is alive and unknown to Redis"));
            };
            let parts: Vec<&str> = gate.splitn(4, '|').collect();
            let of = |p: &super::sidecar::Sidecar| p.registrar.incarnation().map(|i| i.to_string());
            let Some(own) = live.iter().find(|q| q.worker == p.worker && of(q).as_deref() == Some(parts[0])) else {
                return Err(format!("the gate of {w} names nobody alive: {gate}"));
            };
            if parts[1] != own.cap.to_string() {
                return Err(format!("{w}: cap {} in Redis, {} in the sidecar", parts[1], own.cap));
            }
            let n = inflight.get(w).copied().unwrap_or(0);
            let running = own.running.values().filter(|(_, i)| i.as_str() == parts[0]).count() as u64;
            if n != running {
                return Err(format!("{w}: {n} in flight, {running} streams run"));
            }
            let busy = self.threshold && own.loaded;
            if busy_set.contains(w) != busy {
                return Err(format!("{w}: busy is {}, should be {busy}", !busy));
            }
            let open = !busy && n < own.cap;
            if eligible.score(w).is_some() != open && skips.score(w).is_none() {
                return Err(format!("{w}: eligible is {}, should be {open}; gate {gate}", !open));
            }
        }
        match gates.keys().find(|w| !live.iter().any(|p| p.worker.as_str() == *w)) {
            Some(w) => Err(format!("{w} is dead, and its gate is still there")),
            None => Ok(()),
        }
    }
}

/// Until when a fault lasts after its beginning.
fn duration(fault: &Fault) -> u64 {
    match fault {
        Fault::Down(last) | Fault::Restart(last) | Fault::Freeze(last) => *last,
        Fault::Failover { lag, away, split, .. } => lag + away + if split.is_empty() { 0 } else { 3_000 },
        Fault::Stall { last, late, .. } => last + late,
        Fault::Moved { last, .. } | Fault::Repeated { last, .. } | Fault::Unanswered { last, .. } => *last,
        Fault::FreezeProcess { last, .. } | Fault::Rival { last, .. } => *last,
        Fault::RestartWorker { after, .. } | Fault::Leave { after, .. } => *after,
        _ => 0,
    }
}

/// Somebody may have to be reaped, or have lost his place.
fn may_kill(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Crash(_)
            | Fault::FreezeProcess { .. }
            | Fault::RestartWorker { .. }
            | Fault::Rival { .. }
            | Fault::Leave { .. }
            | Fault::Stall { .. }
            | Fault::Failover { .. }
            | Fault::Jump(_)
            | Fault::Unanswered { .. }
    )
}
