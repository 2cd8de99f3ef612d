//! What a committer has done beside its connection, on pooled ones: snapshots, sweeps, seeds of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::WeakUnboundedSender;

use super::{Common, Event, Waiter};
use crate::core::id::{FrontendId, ModelName, WorkerId};
use crate::core::op::{Configure, Configured, Source, Sweep, Swept};
use crate::core::session::{Chance, Session};
use crate::frontend::chance::Dice;
use crate::frontend::snapshot::Snapshot;

/// The least time between two snapshots; a large fleet's takes a millisecond per worker (design section 4).
const SNAPSHOT_MS: u64 = 1_000;
/// Most repetitions of one sweep; the next heartbeat goes on.
const MAX_SWEEPS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Side {
    reading: bool,
    /// What is being read may be of an epoch that is over.
    outdated: bool,
    read_again_at: u64,
    /// `fleet_version` and `config_version` of the last snapshot, if it was one to keep; they begin anew with an epoch.
    versions: Option<(u64, u64)>,
    /// Admitted requests in the last snapshot.
    inflight: u64,
    sweeping: Arc<AtomicBool>,
    /// The epoch for which the flags' values were offered.
    seeded: Arc<AtomicBool>,
    seeding: Arc<AtomicBool>,
    seeded_epoch: String,
    seed_at: u64,
}

impl Side {
    /// Starts what is due.
    pub(super) fn tend(
        &mut self,
        now: u64,
        common: &Common,
        model: &ModelName,
        session: &Session<Waiter>,
        back: &WeakUnboundedSender<Event>,
    ) {
        if !session.is_settled() {
            return;
        }
        if self.seeded_epoch != session.epoch() {
            session.epoch().clone_into(&mut self.seeded_epoch);
            self.versions = None;
            self.outdated = self.reading;
            self.seeded.store(common.seeds.is_empty(), Ordering::Relaxed);
        }
        let seed_now = now >= self.seed_at && !self.seeded.load(Ordering::Relaxed);
        if seed_now && !self.seeding.swap(true, Ordering::Relaxed) {
            self.seed_at = now + SNAPSHOT_MS;
            tokio::spawn(seed(common.clone(), model.clone(), self.seeded.clone(), self.seeding.clone()));
        }
        // A heartbeat does not tell of a large fleet what each worker has: only a snapshot does.
        let moved = session.pulse().is_some_and(|p| {
            let untold = p.inflight.is_empty() && p.inflight_total + self.inflight > 0;
            untold || Some((p.fleet_version, p.config_version)) != self.versions
        });
        if moved && !self.reading && now >= self.read_again_at {
            self.reading = true;
            let (store, model, back) = (common.store.clone(), model.clone(), back.clone());
            tokio::spawn(async move {
                let read = Snapshot::fetch(&store, &model).await;
                if let Err(e) = &read {
                    tracing::debug!(%model, error = %e, "no snapshot");
                }
                if let Some(back) = back.upgrade() {
                    let _ = back.send(Event::Read(read.ok()));
                }
            });
        }
    }

    /// A reading is done: a snapshot, or none, and whether it was one to keep; if not, it is read again.
    pub(super) fn read(&mut self, now: u64, snapshot: Option<&Snapshot>, whole: bool) {
        self.reading = false;
        let workers = snapshot.map_or(0, |s| s.workers.len());
        self.read_again_at = now + SNAPSHOT_MS.max(workers as u64);
        let keep = whole && !std::mem::take(&mut self.outdated);
        self.versions = snapshot.filter(|_| keep).map(Snapshot::versions);
        if let Some(snapshot) = snapshot {
            self.inflight = snapshot.workers.values().map(|row| row.inflight).sum();
        }
    }

    /// Sweeps what a heartbeat named; one at a time, the next heartbeat names the rest again.
    pub(super) fn sweep(
        &self,
        common: &Common,
        model: &ModelName,
        workers: Vec<WorkerId>,
        mut frontends: Vec<FrontendId>,
    ) {
        if self.sweeping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (store, model, done) = (common.store.clone(), model.clone(), Flag(self.sweeping.clone()));
        tokio::spawn(async move {
            let _done = done;
            let mut workers = workers;
            for _ in 0..MAX_SWEEPS {
                let nonce = Dice::new().nonce();
                let sweep = Sweep { workers: std::mem::take(&mut workers), frontends, nonce };
                match store.call(&model, &sweep).await {
                    Ok(Swept::Done { more }) if !more.is_empty() => frontends = more,
                    Ok(_) => break,
                    Err(e) => {
                        tracing::debug!(%model, error = %e, "sweep");
                        break;
                    }
                }
            }
        });
    }
}

/// Falls when dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Offers the flags' values, once per epoch; Redis takes each field once in the life of `P:config:applied`.
async fn seed(common: Common, model: ModelName, seeded: Arc<AtomicBool>, seeding: Arc<AtomicBool>) {
    let _done = Flag(seeding);
    let changes = common.seeds.iter().map(|(field, value)| (field.clone(), Some(value.clone()))).collect();
    match common.store.call(&model, &Configure { source: Source::Seed, changes }).await {
        Ok(Configured::Ok { applied, .. }) => {
            seeded.store(true, Ordering::Relaxed);
            for (field, value) in common.seeds.iter() {
                let now = applied.iter().find(|(f, _)| f == field).map(|(_, v)| v);
                if now != Some(value) {
                    let now = now.map_or("unset", String::as_str);
                    tracing::warn!(%model, field, flag = value, in_force = now, "Redis has another value than the flag");
                }
            }
        }
        Ok(Configured::Invalid { field, value }) => {
            seeded.store(true, Ordering::Relaxed);
            tracing::error!(%model, field, value, "Redis refuses a flag's value");
        }
        Ok(Configured::Unknown) => {}
        Err(e) => tracing::debug!(%model, error = %e, "flags not offered yet"),
    }
}
