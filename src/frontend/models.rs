//! The models that this frontend serves: which exist (the index), and a committer for each. A name that a client
//! makes up costs a look at a copy of the index, and never a key in Redis.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::chance::Dice;
use super::committer::{Committer, Common, Event, Shared};
use crate::core::id::{FrontendId, ModelName};
use crate::core::refusal::Reason;
use crate::core::session::Chance;
use crate::scripts::IndexOp;
use crate::store::CallError;

/// How often the index is read.
const REFRESH: Duration = Duration::from_secs(2);
/// The same while Redis does not answer.
const RETRY: Duration = Duration::from_millis(250);
/// The least time between two readings, however many unknown names clients ask for; a millisecond more for each
/// [`MODELS_PER_MS`] models, since a reading lists them all.
const SPACING_MS: u64 = 10;
/// See [`SPACING_MS`].
const MODELS_PER_MS: usize = 10;
/// An index younger than this may still be filling up: Redis was just emptied (design section 3.3).
const YOUNG_MS: u64 = 4_000;
/// A model whose workers were heard this long ago is taken up unasked, so that it is listed.
const LIVELY_MS: u64 = 10_000;
/// A model that nobody asked for, and whose workers are silent, for this long is let go of.
const IDLE_MS: u64 = 600_000;

/// The largest `schema` of `<namespace>:meta` that this version can read.
const SCHEMA: u64 = 1;

/// Handles of running committers, by model.
pub(super) type Table = HashMap<ModelName, Handle>;

/// A running committer.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    pub(super) events: UnboundedSender<Event>,
    pub(super) shared: Arc<Shared>,
    /// The index has it.
    known: Arc<AtomicBool>,
    used_at: Arc<AtomicU64>,
}

impl Handle {
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// By the copy of its state it is being served, whatever the index says: the index may have been lost.
    fn is_served(&self) -> bool {
        self.shared.snapshot.load().has_live_worker()
    }

    pub(super) fn touch(&self, now: u64) {
        self.used_at.store(now, Ordering::Relaxed);
    }
}

/// A copy of the index.
#[derive(Debug, Clone, Default)]
struct Index {
    /// Models with the Redis time at which a worker of theirs was last heard.
    models: BTreeMap<ModelName, u64>,
    /// Redis time of the reading.
    now_ms: u64,
    /// When the fleet's record was made, by Redis time.
    created_ms: u64,
}

#[derive(Debug, Default)]
struct Tried {
    /// When the last reading began.
    at: Option<u64>,
    failed: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Models {
    pub(super) common: Common,
    retention_ms: u64,
    dice: Dice,
    process: FrontendId,
    table: ArcSwap<Table>,
    /// Held while the table changes; the models ever taken up, and the tasks of their committers.
    taking: Mutex<(HashSet<ModelName>, Vec<JoinHandle<()>>)>,
    index: ArcSwap<Index>,
    refreshing: tokio::sync::Mutex<Tried>,
    /// Last good reading, in ms of the common clock, plus 1; 0: none yet.
    good_at: AtomicU64,
}

impl Models {
    pub(super) fn new(common: Common, retention: Duration) -> Self {
        let mut dice = Dice::new();
        Self {
            common,
            retention_ms: u64::try_from(retention.as_millis()).unwrap_or(u64::MAX),
            process: dice.frontend_id(),
            dice,
            table: ArcSwap::default(),
            taking: Mutex::default(),
            index: ArcSwap::default(),
            refreshing: tokio::sync::Mutex::default(),
            good_at: AtomicU64::new(0),
        }
    }

    /// The process's name.
    pub(super) fn process(&self) -> &FrontendId {
        &self.process
    }

    /// The committer of a model that is taken up and known.
    pub(super) fn ready(&self, model: &ModelName) -> Option<Handle> {
        self.table.load().get(model).filter(|h| h.is_known()).cloned()
    }

    /// All that are taken up.
    pub(super) fn all(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// The committer of a model, taken up now if need be.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn find(&self, model: &ModelName) -> Result<Handle, Reason> {
        if !self.index.load().models.contains_key(model) && self.refresh().await.is_err() {
            // Static mode goes on for a model that is taken up.
            return self.table.load().get(model).cloned().ok_or(Reason::StoreUnavailable);
        }
        let index = self.index.load();
        if index.models.contains_key(model) {
            Ok(self.take(model))
        } else if index.now_ms < index.created_ms + YOUNG_MS {
            // What is taken up decides for itself: it may go on in static mode.
            self.table.load().get(model).cloned().ok_or(Reason::NoWorkers)
        } else {
            self.table.load().get(model).filter(|h| h.is_served()).cloned().ok_or(Reason::ModelNotFound)
        }
    }

    /// The index knows this model, as far as can be told.
    pub(super) async fn knows(&self, model: &ModelName) -> Result<bool, Reason> {
        if !self.index.load().models.contains_key(model) && self.refresh().await.is_err() {
            return Err(Reason::StoreUnavailable);
        }
        Ok(self.index.load().models.contains_key(model))
    }

    /// When the index was last read, in ms of the common clock.
    pub(super) fn good_at(&self) -> Option<u64> {
        self.good_at.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Reads the index, unless a reading has begun since this was called: what was registered before a request came is
    /// known to its answer. One at a time, and spaced.
    async fn refresh(&self) -> Result<(), String> {
        let called = self.common.now_ms();
        let mut tried = self.refreshing.lock().await;
        if let Some(at) = tried.at {
            if at > called {
                return tried.failed.clone().map_or(Ok(()), Err);
            }
            let spacing = SPACING_MS + (self.index.load().models.len() / MODELS_PER_MS) as u64;
            let wait = (at + spacing).saturating_sub(self.common.now_ms());
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        tried.at = Some(self.common.now_ms());
        let read = self.read().await;
        tried.failed = read.as_ref().err().map(ToString::to_string);
        let index = read.map_err(|e| e.to_string())?;
        self.good_at.store(self.common.now_ms() + 1, Ordering::Relaxed);
        self.adopt(index);
        Ok(())
    }

    async fn read(&self) -> Result<Index, CallError> {
        let store = &self.common.store;
        let meta = store.index(&IndexOp::Meta).await?;
        let list = store.index(&IndexOp::List { retention_ms: self.retention_ms }).await?;
        if meta.schema > SCHEMA {
            return Err(CallError::NotSent(format!("the fleet's schema is {}, newer than this version", meta.schema)));
        }
        Ok(Index { models: list.models.into_iter().collect(), now_ms: list.now_ms, created_ms: meta.created_ms })
    }

    fn adopt(&self, index: Index) {
        let now = self.common.now_ms();
        let young = index.now_ms < index.created_ms + YOUNG_MS;
        let lively = |seen: u64| index.now_ms < seen + LIVELY_MS;
        for (model, handle) in self.table.load().iter() {
            let seen = index.models.get(model);
            handle.known.store(seen.is_some() || young || handle.is_served(), Ordering::Relaxed);
            if seen.is_some_and(|seen| lively(*seen)) {
                handle.touch(now);
            }
        }
        let new: Vec<ModelName> =
            index.models.iter().filter(|(_, seen)| lively(**seen)).map(|(m, _)| m.clone()).collect();
        self.index.store(Arc::new(index));
        for model in &new {
            if !self.table.load().contains_key(model) {
                self.take(model);
            }
        }
        self.let_go(now);
    }

    fn take(&self, model: &ModelName) -> Handle {
        let mut taking = self.taking();
        // One whose committer has ended (it should not) is replaced.
        if let Some(handle) = self.table.load().get(model).filter(|h| !h.events.is_closed()) {
            handle.known.store(true, Ordering::Relaxed);
            return handle.clone();
        }
        let (ever, tasks) = &mut *taking;
        let mut dice = self.dice.clone();
        // A second committer of this process for one model must not meet the first one's leases.
        let id = if ever.insert(model.clone()) { self.process.clone() } else { dice.frontend_id() };
        let shared: Arc<Shared> = Arc::default();
        let (events, inbox) = unbounded_channel();
        let committer = Committer::new(self.common.clone(), model.clone(), id, dice, shared.clone());
        tasks.retain(|task| !task.is_finished());
        tasks.push(tokio::spawn(committer.run(inbox, events.downgrade())));
        let used_at = Arc::new(AtomicU64::new(self.common.now_ms()));
        let handle = Handle { events, shared, known: Arc::new(AtomicBool::new(true)), used_at };
        let mut table = Table::clone(&self.table.load());
        table.insert(model.clone(), handle.clone());
        self.table.store(Arc::new(table));
        tracing::info!(%model, "model taken up");
        handle
    }

    /// Dropping its handle ends a committer as soon as its last lease is back.
    fn let_go(&self, now: u64) {
        let idle = |h: &Handle| now > h.used_at.load(Ordering::Relaxed) + IDLE_MS;
        if !self.table.load().values().any(idle) {
            return;
        }
        let _taking = self.taking();
        let mut table = Table::clone(&self.table.load());
        table.retain(|model, handle| {
            let keep = !idle(handle);
            if !keep {
                tracing::info!(%model, "model let go");
            }
            keep
        });
        self.table.store(Arc::new(table));
    }

    /// Drops every handle, and waits until the committers have given all back, at most `within`.
    pub(super) async fn stop(&self, within: Duration) {
        let tasks = {
            let mut taking = self.taking();
            self.table.store(Arc::default());
            std::mem::take(&mut taking.1)
        };
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        let all = futures_util::future::join_all(tasks);
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!("leases are left behind: Redis gives them back when this frontend is missed");
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
        }
    }

    fn taking(&self) -> MutexGuard<'_, (HashSet<ModelName>, Vec<JoinHandle<()>>)> {
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once what an operator should change about the servers.
    async fn warn(&self) -> bool {
        match self.common.store.warnings().await {
            Ok(warnings) => {
                for warning in warnings {
                    tracing::warn!("{warning}");
                }
                true
            }
            Err(CallError::Rejected { message, .. }) => {
                tracing::info!(message, "the servers' settings cannot be checked");
                true
            }
            Err(CallError::Unknown(_) | CallError::NotSent(_)) => false,
        }
    }

    /// Keeps the index fresh, for as long as anybody holds the models.
    pub(super) async fn watch(models: std::sync::Weak<Self>) {
        let mut failing = false;
        let mut warned = false;
        loop {
            let pause = {
                let Some(models) = models.upgrade() else { return };
                match models.refresh().await {
                    Ok(()) => {
                        if failing {
                            tracing::info!(
                                store = models.common.store.describe(),
                                "the index of models can be read again"
                            );
                        }
                        failing = false;
                        if !warned {
                            warned = models.warn().await;
                        }
                        REFRESH
                    }
                    Err(error) => {
                        if !failing {
                            tracing::warn!(
                                store = models.common.store.describe(),
                                error,
                                "cannot read the index of models"
                            );
                        }
                        failing = true;
                        RETRY
                    }
                }
            };
            tokio::time::sleep(pause).await;
        }
    }
}
