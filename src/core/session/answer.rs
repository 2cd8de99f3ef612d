//! What the outcome of a call means.

use super::{
    Call, Chance, Decide, Decided, Denied, Drain, Effect, FAILURES, Failure, Fenced, Flight, Outcome, PAUSE_MS, Place,
    Pulse, RETRY_MS, Reconcile, Reconciled, Reply, Session, Waiter, Welcome,
};
use crate::core::op::Verdict;

impl<W: Waiter> Session<W> {
    /// Takes in the outcome of a call. One that is no longer under way does nothing.
    pub fn answer(
        &mut self,
        now: u64,
        ticket: u64,
        outcome: Outcome,
        chance: &mut impl Chance,
        out: &mut Vec<Effect<W>>,
    ) {
        let Some(at) = self.flying.iter().position(|f| f.ticket == ticket) else { return };
        match outcome {
            Outcome::Unknown => self.lost(now, out),
            Outcome::Failed(why) => {
                let flight = self.flying.remove(at);
                self.failed(now, why);
                self.undone(now, flight, why == Failure::Refused, out);
            }
            Outcome::Reply(reply) => {
                let flight = self.flying.remove(at);
                self.reply(now, flight, reply, chance, out);
            }
        }
    }

    /// The connection broke: what was under way on it may have been carried out or not.
    fn lost(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        self.failed(now, Failure::Passing);
        for flight in std::mem::take(&mut self.flying) {
            self.unknown(now, flight, out);
        }
        out.push(Effect::Close);
    }

    /// S1: a higher `seq` fences a late copy off, so releasing all that the call tried is enough.
    fn unknown(&mut self, now: u64, flight: Flight<W>, out: &mut Vec<Effect<W>>) {
        let mine = flight.frontend == self.id;
        out.extend(flight.waiters.into_iter().filter(|(w, _)| !w.gone()).map(|(w, _)| Self::no_store(w)));
        match flight.call {
            Call::Decide(Decide { releases, admissions, .. }) if mine && !self.first => {
                self.releases.extend(releases);
                self.releases.extend(admissions.into_iter().map(|a| a.id));
            }
            Call::Reconcile(part) if mine => self.assert_again(part),
            Call::Heartbeat(_) => self.heartbeat_at = self.heartbeat_at.min(now + RETRY_MS),
            Call::Hello(_) | Call::Decide(_) | Call::Reconcile(_) => {}
        }
    }

    fn assert_again(&mut self, part: Reconcile) {
        self.assert = true;
        let ended = part.leases.into_iter().map(|l| l.id).filter(|id| !self.held.contains_key(id));
        self.releases.extend(ended);
    }

    fn failed(&mut self, now: u64, why: Failure) {
        if why == Failure::NoScript {
            return;
        }
        self.trouble += 1;
        self.pause_until = now + (PAUSE_MS << (self.trouble - 1).min(4)).min(RETRY_MS);
        if why == Failure::Passing {
            self.failures += 1;
            if self.failures >= FAILURES && !self.open {
                self.open = true;
                self.opened += 1;
                self.probe_at = now + RETRY_MS / 5;
            }
        }
    }

    /// The call was certainly not applied: what it carried waits again, in front.
    fn undone(&mut self, now: u64, flight: Flight<W>, refused: bool, out: &mut Vec<Effect<W>>) {
        let mine = flight.frontend == self.id;
        for waiter in flight.waiters.into_iter().rev() {
            if refused {
                out.push(Self::no_store(waiter.0));
            } else {
                self.waiting.push_front(waiter);
            }
        }
        if refused && !matches!(flight.call, Call::Heartbeat(_)) {
            // The others would be told the same, one call after the other.
            out.extend(self.waiting.drain(..).map(|(w, _)| Self::no_store(w)));
        }
        match flight.call {
            Call::Decide(Decide { releases, skips, .. }) if mine => {
                if !self.first {
                    for id in releases.into_iter().rev() {
                        self.releases.push_front(id);
                    }
                }
                for (worker, incarnation) in skips {
                    self.skip(worker, incarnation);
                }
            }
            Call::Reconcile(part) if mine => self.assert_again(part),
            Call::Heartbeat(_) => self.heartbeat_at = now + RETRY_MS,
            Call::Hello(_) | Call::Decide(_) | Call::Reconcile(_) => {}
        }
    }

    fn reply(&mut self, now: u64, flight: Flight<W>, reply: Reply, chance: &mut impl Chance, out: &mut Vec<Effect<W>>) {
        if flight.frontend != self.id {
            return self.undone(now, flight, false, out);
        }
        match reply {
            Reply::Hello(r) => {
                if let Some((_, welcome)) = self.fenced(now, flight, r, chance, out) {
                    self.welcome(now, &welcome);
                }
            }
            Reply::Reconcile(r) => {
                if let Some((flight, done)) = self.fenced(now, flight, r, chance, out)
                    && let Call::Reconcile(part) = flight.call
                {
                    self.reconciled(now, part, done);
                }
            }
            Reply::Heartbeat(r) => {
                if let Some((_, pulse)) = self.fenced(now, flight, r, chance, out) {
                    self.pulsed(now, pulse, out);
                }
            }
            Reply::Decide(r) => {
                if let Some((flight, decided)) = self.fenced(now, flight, r, chance, out) {
                    self.decided(flight, decided, out);
                }
            }
        }
    }

    /// What all replies have in common. Only an `ok` moves `acked` (H2).
    fn fenced<T>(
        &mut self,
        now: u64,
        flight: Flight<W>,
        reply: Fenced<T>,
        chance: &mut impl Chance,
        out: &mut Vec<Effect<W>>,
    ) -> Option<(Flight<W>, T)> {
        if let Fenced::Stale { stored } = reply {
            // H10: perhaps it was carried out before.
            self.seq = self.seq.max(stored);
            self.flying.insert(0, flight);
            self.lost(now, out);
            return None;
        }
        self.failures = 0;
        self.trouble = 0;
        self.open = false;
        self.pause_until = 0;
        self.good_at = Some(now);
        match reply {
            Fenced::Stale { .. } => None,
            Fenced::Gone => {
                self.id = chance.frontend_id();
                self.seq = 0;
                self.acked = 0;
                self.hello = true;
                self.forget();
                self.undone(now, flight, false, out);
                None
            }
            Fenced::Epoch { healing_ms } => {
                self.forget();
                self.heal(now, healing_ms);
                self.undone(now, flight, false, out);
                None
            }
            Fenced::Healing { left_ms } => {
                self.heal(now, left_ms);
                self.undone(now, flight, false, out);
                None
            }
            Fenced::Done(done) => {
                self.acked = self.acked.max(seq(&flight.call));
                Some((flight, done))
            }
        }
    }

    /// Redis has nothing (that counts) of this frontend: all it holds is asserted anew.
    fn forget(&mut self) {
        self.first = true;
        self.assert = true;
        self.assert_after = true;
        self.releases.clear();
        for entry in self.held.values_mut() {
            entry.known = false;
            entry.maybe = false;
            entry.unlisted = false;
        }
    }

    /// Healing is timed by the remaining milliseconds on the own clock.
    fn heal(&mut self, now: u64, left_ms: u64) {
        if left_ms > 0 {
            self.healing_until = now + left_ms;
            self.assert_after = true;
        }
    }

    fn welcome(&mut self, now: u64, welcome: &Welcome) {
        self.seen = self.seen.max(welcome.revision);
        self.hello = false;
        self.assert = true;
        self.heal(now, welcome.healing_ms);
    }

    fn reconciled(&mut self, now: u64, part: Reconcile, done: Reconciled) {
        let Reconciled::Done { epoch, healing_ms, revision, frontends, dropped } = done else {
            self.assert = true;
            return;
        };
        self.epoch = epoch;
        self.mem = true;
        self.first = false;
        self.hello = false;
        self.seen = self.seen.max(revision);
        self.heal(now, healing_ms);
        self.standby.frontends(frontends, healing_ms > 0);
        for lease in part.leases {
            let dropped = dropped.contains(&lease.id);
            match self.held.get_mut(&lease.id) {
                Some(entry) => {
                    entry.maybe = false;
                    entry.known = !dropped;
                    entry.unlisted = dropped;
                    self.healed += u64::from(!dropped);
                }
                // It ended while the call was under way.
                None if !dropped => self.releases.push_back(lease.id),
                None => {}
            }
        }
    }

    fn pulsed(&mut self, now: u64, pulse: Pulse, out: &mut Vec<Effect<W>>) {
        self.seen = self.seen.max(pulse.revision);
        if pulse.healing_ms > 0 {
            if self.healing_until < now {
                self.heal(now, pulse.healing_ms);
            }
            self.standby.frontends(pulse.frontends, true);
        } else {
            self.standby.contact(&pulse);
        }
        if !pulse.due_workers.is_empty() || !pulse.due_frontends.is_empty() {
            let (workers, frontends) = (pulse.due_workers.clone(), pulse.due_frontends.clone());
            out.push(Effect::Sweep { workers, frontends });
        }
        self.pulse = Some(std::sync::Arc::new(pulse));
    }

    fn decided(&mut self, flight: Flight<W>, decided: Decided, out: &mut Vec<Effect<W>>) {
        self.seen = self.seen.max(decided.revision);
        let drain = Drain { per_second: decided.drain_per_ks as f64 / 1e3, shed: decided.shed };
        self.drain = Some(drain);
        let Call::Decide(Decide { admissions, .. }) = flight.call else { return };
        let mut verdicts = decided.verdicts.into_iter();
        for ((waiter, _), ask) in flight.waiters.into_iter().zip(admissions) {
            match verdicts.next() {
                Some(Verdict::Admitted { revision, worker, incarnation, url }) => {
                    self.seen = self.seen.max(revision);
                    let place = std::sync::Arc::new(Place { worker, incarnation, url: url.into() });
                    self.hold(ask.id, place.clone(), ask.tokens, true);
                    out.push(Effect::Admit { waiter, place, revision: Some(revision) });
                }
                Some(Verdict::Refused { revision, cause }) => {
                    self.seen = self.seen.max(revision);
                    let denied = Denied::Shut(cause);
                    out.push(Effect::Refuse { waiter, denied, revision: Some(revision), drain: Some(drain) });
                }
                // A reply that is too short (no script of ours makes one): as if its outcome were unknown.
                None => {
                    self.releases.push_back(ask.id);
                    out.push(Self::no_store(waiter));
                }
            }
        }
    }
}

fn seq(call: &Call) -> u64 {
    match call {
        Call::Hello(c) => c.0.seq,
        Call::Heartbeat(c) => c.0.seq,
        Call::Reconcile(c) => c.caller.seq,
        Call::Decide(c) => c.caller.seq,
    }
}
