//! What the HTTP edge asks of the shared state: a lease, or a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

pub use super::committer::{Live, Mode};
pub use super::lease::{Declined, Lease};
pub use super::snapshot::Snapshot;

use super::chance::lease_id;
use super::committer::{Common, Event, Waiter};
use super::models::{Handle, Models};
use super::settings::{OnStoreLoss, Settings};
use crate::core::id::{ModelName, WorkerId};
use crate::core::op::{Admission, MAX_EXCLUDED};
use crate::core::refusal::{Reason, Refusal};
use crate::core::session;
use crate::metrics::admission::AdmissionMetrics;
use crate::store::Store;

/// A request that asks for a worker.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Estimated prompt tokens (bytes of prompt text / 4).
    pub tokens: u64,
    /// `x-tidegate-worker`: heeded in router mode `direct` only.
    pub pin: Option<WorkerId>,
    /// Workers that must not be chosen: tried before by this request, or not reachable from here. Only the first
    /// [`MAX_EXCLUDED`] count.
    pub exclude: Vec<WorkerId>,
}

/// Hands out leases. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admissions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    models: Arc<Models>,
    draining: AtomicBool,
    watch: tokio::task::AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// A model as this frontend sees it.
#[derive(Debug, Clone)]
pub struct ModelView {
    /// Its name.
    pub model: ModelName,
    /// How it is decided on, and with what figures.
    pub live: Live,
    /// The frontend's copy of the state; empty before the first reading.
    pub snapshot: Arc<Snapshot>,
}

/// Whether requests can be decided on (design sections 3.8 and 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Redis has answered at least once.
    pub seen: bool,
    /// Some model is in static mode.
    pub degraded: bool,
    /// Redis is lost, and static mode is over or off.
    pub closed: bool,
}

impl Admissions {
    /// Starts to look after the models of the store's fleet. Needs a running tokio runtime; Redis need not be there.
    #[must_use]
    pub fn start(store: Store, settings: &Settings, metrics: Arc<AdmissionMetrics>) -> Self {
        let age = u64::try_from(settings.static_max_age.as_millis()).unwrap_or(u64::MAX);
        let settings_of_sessions = session::Settings {
            static_max_age_ms: (settings.on_store_loss == OnStoreLoss::Static).then_some(age),
            patience_ms: u64::try_from(store.timeout().as_millis()).unwrap_or(250),
        };
        let common = Common {
            store,
            settings: settings_of_sessions,
            seeds: Arc::new(settings.seeds.clone()),
            metrics,
            start: Instant::now(),
        };
        let models = Arc::new(Models::new(common, settings.model_retention));
        let watch = tokio::spawn(Models::watch(Arc::downgrade(&models))).abort_handle();
        Self { inner: Arc::new(Inner { models, draining: AtomicBool::new(false), watch }) }
    }

    /// Asks for a place. Dropping the future before it is answered takes the request out of the queue, or gives the
    /// place back if it was won meanwhile.
    ///
    /// # Errors
    /// A refusal with its reason.
    pub async fn admit(&self, model: &ModelName, ask: Ask) -> Result<Lease, Refusal> {
        if self.inner.draining.load(Ordering::Relaxed) {
            return Err(refused(Reason::Draining));
        }
        let mut exclude = ask.exclude;
        exclude.truncate(MAX_EXCLUDED);
        let admission = Admission { id: lease_id(), tokens: ask.tokens, pin: ask.pin, exclude };
        if let Some(handle) = self.inner.models.ready(model)
            && let Some(answer) = self.queue(&handle, admission.clone()).await
        {
            return answer;
        }
        // Not taken up, or let go of at this very moment.
        let handle = self.inner.models.find(model).await.map_err(refused)?;
        self.queue(&handle, admission).await.unwrap_or_else(|| Err(refused(Reason::StoreUnavailable)))
    }

    /// None: the committer is gone.
    async fn queue(&self, handle: &Handle, admission: Admission) -> Option<Result<Lease, Refusal>> {
        handle.touch(self.inner.models.common.now_ms());
        let (reply, answer) = oneshot::channel();
        let waiter = Waiter { admission, reply, back: handle.events.clone() };
        handle.events.send(Event::Ask(waiter)).ok()?;
        answer.await.ok()
    }

    /// The models that this frontend has taken up: all that had a live worker or a request lately.
    #[must_use]
    pub fn models(&self) -> Vec<ModelView> {
        let mut all: Vec<_> = self.inner.models.all().iter().map(|(model, handle)| view(model, handle)).collect();
        all.sort_by(|a, b| a.model.cmp(&b.model));
        all
    }

    /// One of [`Self::models`].
    #[must_use]
    pub fn model(&self, model: &ModelName) -> Option<ModelView> {
        self.inner.models.all().get(model).map(|handle| view(model, handle))
    }

    /// Whether the index has this model: it had a worker within the retention time.
    ///
    /// # Errors
    /// [`Reason::StoreUnavailable`] if nobody can tell.
    pub async fn knows(&self, model: &ModelName) -> Result<bool, Reason> {
        self.inner.models.knows(model).await
    }

    /// The state of the store as it matters to `/ready`.
    #[must_use]
    pub fn health(&self) -> Health {
        let models = &self.inner.models;
        let modes: Vec<Mode> = models.all().values().map(|h| h.shared.live().mode).collect();
        let good = models.good_at();
        let age = models.common.settings.static_max_age_ms;
        let lost = good.is_none_or(|good| models.common.now_ms() > good + age.unwrap_or(LOST_MS).max(LOST_MS));
        Health {
            seen: good.is_some() || modes.contains(&Mode::Deciding),
            degraded: modes.contains(&Mode::Static),
            // In a cluster some models may be lost and others not: then this frontend is still of use.
            closed: (modes.contains(&Mode::Closed) || lost)
                && !modes.contains(&Mode::Deciding)
                && !modes.contains(&Mode::Static),
        }
    }

    /// This process's name among the frontends.
    #[must_use]
    pub fn process(&self) -> &str {
        self.inner.models.process().as_str()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.models.common.store
    }

    /// From now on requests are refused with [`Reason::Draining`].
    pub fn drain(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
    }

    /// Ends: waits, at most `within`, until every lease that was given up is back in Redis.
    pub async fn stop(&self, within: Duration) {
        self.drain();
        self.inner.watch.abort();
        self.inner.models.stop(within).await;
    }
}

/// Without an answer for this long Redis is lost, even if static mode lasts shorter: readings are 2 s apart.
const LOST_MS: u64 = 3_000;

fn view(model: &ModelName, handle: &Handle) -> ModelView {
    ModelView { model: model.clone(), live: handle.shared.live(), snapshot: handle.shared.snapshot.load_full() }
}

fn refused(reason: Reason) -> Refusal {
    Refusal { reason, revision: None, drain: None, degraded: false }
}
