//! Static mode: admissions without Redis, from the last known picture of the fleet (design section 3.8, recovery
//! protocol D, share2). A frontend keeps what it had and adds its part of what was free at its last contact, so that
//! all frontends together stay within the caps but for the "at least 1" and what changed since.

use std::sync::Arc;

use super::{Denied, Effect, Entry, Map, Place, Session, Waiter};
use crate::core::id::WorkerId;
use crate::core::op::{Admission, Cause, Pulse};

/// A picture of the fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The workers that Redis knew.
    pub workers: Vec<Standing>,
    /// Cap on all admitted requests of the model.
    pub max_inflight: Option<u64>,
    /// Router mode `direct`: a request goes to the worker that it names, or nowhere.
    pub direct: bool,
}

/// A worker in a [`Fleet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Which, and where.
    pub place: Arc<Place>,
    /// Most requests it may have; none = no cap.
    pub cap: Option<u64>,
    /// Letters of b(usy) d(raining) e(ngine down) s(kipped) x (expired); empty = open.
    pub closed: String,
    /// Admitted requests when the picture was taken.
    pub inflight: u64,
}

/// What static mode goes by.
#[derive(Debug, Default)]
pub struct Standby {
    fleet: Option<Arc<Fleet>>,
    frontends: u64,
    /// This frontend's leases by worker: now, and at the last contact.
    own: Map<WorkerId, u64>,
    own_then: Map<WorkerId, u64>,
    all: u64,
    all_then: u64,
    /// In flight by worker at the last contact, where the reply said it (small fleets).
    inflight_then: Map<WorkerId, u64>,
    total_then: u64,
}

impl Standby {
    pub(super) fn learn(&mut self, fleet: Arc<Fleet>) {
        self.fleet = Some(fleet);
    }

    pub(super) fn started(&mut self, worker: &WorkerId) {
        self.all += 1;
        *self.own.entry(worker.clone()).or_default() += 1;
    }

    pub(super) fn ended(&mut self, worker: &WorkerId) {
        self.all = self.all.saturating_sub(1);
        if let Some(n) = self.own.get_mut(worker) {
            *n -= 1;
            if *n == 0 {
                self.own.remove(worker);
            }
        }
    }

    pub(super) fn contact(&mut self, pulse: &Pulse) {
        self.frontends = pulse.frontends;
        self.own_then.clone_from(&self.own);
        self.all_then = self.all;
        self.total_then = pulse.inflight_total;
        self.inflight_then = pulse.inflight.iter().cloned().collect();
    }

    /// While an epoch heals others are still coming back: the number may only rise.
    pub(super) fn frontends(&mut self, alive: u64, healing: bool) {
        self.frontends = if healing { self.frontends.max(alive) } else { alive };
    }

    fn limit(&self, worker: &Standing) -> u64 {
        let Some(cap) = worker.cap else { return u64::MAX };
        let id = &worker.place.worker;
        let own = self.own_then.get(id).copied().unwrap_or(0);
        let inflight = self.inflight_then.get(id).copied().unwrap_or(worker.inflight);
        (own + cap.saturating_sub(inflight) / self.frontends.max(1)).max(1)
    }

    /// A place for a request, or why there is none; `None` in front: no picture yet.
    fn choose(&self, ask: &Admission) -> Option<Result<Arc<Place>, Cause>> {
        let fleet = self.fleet.as_ref()?;
        if fleet.direct && ask.pin.is_none() {
            return Some(Err(Cause::NoPin));
        }
        if let Some(most) = fleet.max_inflight {
            let free = most.saturating_sub(self.total_then) / self.frontends.max(1);
            if self.all >= self.all_then + free {
                return Some(Err(Cause::MaxInflight));
            }
        }
        let mut best: Option<(u64, &Standing)> = None;
        let mut cause = Cause::NoWorkers;
        for worker in &fleet.workers {
            let id = &worker.place.worker;
            if ask.exclude.contains(id) || fleet.direct && ask.pin.as_ref() != Some(id) {
                continue;
            }
            let own = self.own.get(id).copied().unwrap_or(0);
            if !worker.closed.is_empty() || own >= self.limit(worker) {
                cause = cause.min(cause_of(&worker.closed));
                continue;
            }
            let better = best.is_none_or(|(n, w)| (own, id) < (n, &w.place.worker));
            if better {
                best = Some((own, worker));
            }
        }
        Some(best.map(|(_, w)| w.place.clone()).ok_or(cause))
    }
}

/// Why a worker with these letters takes nothing (design section 3.3, first that holds).
fn cause_of(closed: &str) -> Cause {
    if closed.contains(['d', 'e', 'x']) {
        Cause::NoWorkers
    } else if closed.contains('b') {
        Cause::AllWorkersBusy
    } else if closed.contains('s') {
        Cause::WorkerRefused
    } else {
        Cause::AtCapacity
    }
}

impl<W: Waiter> Session<W> {
    /// Answers who must not wait any longer: in static mode from the picture of the fleet, in trouble after
    /// [`super::Settings::patience_ms`].
    pub fn settle(&mut self, now: u64, out: &mut Vec<Effect<W>>) {
        if self.is_static(now) {
            while let Some((waiter, _)) = self.waiting.pop_front() {
                if !waiter.gone() {
                    out.push(self.admit_static(now, waiter));
                }
            }
        } else if self.trouble > 0 {
            while self.waiting.front().is_some_and(|(_, since)| now >= since + self.settings.patience_ms) {
                let Some((waiter, _)) = self.waiting.pop_front() else { break };
                out.push(Self::no_store(waiter));
            }
        }
    }

    pub(super) fn no_store(waiter: W) -> Effect<W> {
        Effect::Refuse { waiter, denied: Denied::NoStore, revision: None, drain: None }
    }

    fn admit_static(&mut self, now: u64, waiter: W) -> Effect<W> {
        let fresh = match (self.settings.static_max_age_ms, self.good_at) {
            (Some(age), Some(good)) => now <= good + age,
            _ => false,
        };
        let ask = waiter.admission();
        match self.standby.choose(&ask) {
            Some(Ok(place)) if fresh => {
                self.assert_after = true;
                self.hold(ask.id, place.clone(), ask.tokens, false);
                Effect::Admit { waiter, place, revision: None }
            }
            Some(Err(cause)) if fresh => {
                Effect::Refuse { waiter, denied: Denied::Shut(cause), revision: None, drain: None }
            }
            _ => Self::no_store(waiter),
        }
    }

    pub(super) fn hold(&mut self, id: crate::core::id::LeaseId, place: Arc<Place>, tokens: u64, known: bool) {
        self.standby.started(&place.worker);
        self.held.insert(id, Entry { place, tokens, known, maybe: false, unlisted: false });
    }
}
