//! What the parts of one sidecar share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::core::id::Incarnation;
use crate::core::op::Registration;
use crate::core::registrar::{Sample, Standing};
use crate::metrics::worker::WorkerMetrics;

use super::gate::{Gate, Limits};
use super::load::Load;
use super::settings::Settings;
use super::track::Tracker;

/// Whether the engine answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    /// It has not answered yet: the worker is not registered before.
    Unknown,
    /// It answers.
    Up,
    /// It does not answer any more.
    Down,
}

/// Where the worker stands in Redis, for requests and probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) standing: Standing,
    pub(super) incarnation: Option<Incarnation>,
}

/// The shared parts of one sidecar.
#[derive(Debug)]
pub(super) struct State {
    pub(super) settings: Settings,
    /// Where frontends reach it.
    pub(super) url: String,
    /// Where it listens.
    pub(super) bound: SocketAddr,
    pub(super) gate: Gate,
    pub(super) tracker: Tracker,
    pub(super) load: Load,
    pub(super) place: ArcSwap<Place>,
    pub(super) metrics: WorkerMetrics,
    /// Something that a report tells may have changed.
    pub(super) changed: Notify,
    engine: watch::Sender<Engine>,
    draining: AtomicBool,
}

impl State {
    pub(super) fn new(settings: Settings, url: String, bound: SocketAddr, metrics: WorkerMetrics) -> Arc<Self> {
        let limits = Limits { slots: settings.engine_request_limit, queue: settings.request_queue_limit };
        Arc::new(Self {
            url,
            bound,
            gate: Gate::new(limits, settings.queue_timeout),
            tracker: Tracker::new(settings.kv_block_size),
            load: Load::new(&settings),
            place: ArcSwap::from_pointee(Place { standing: Standing::Unknown, incarnation: None }),
            metrics,
            changed: Notify::new(),
            engine: watch::Sender::new(Engine::Unknown),
            draining: AtomicBool::new(false),
            settings,
        })
    }

    pub(super) fn engine(&self) -> Engine {
        *self.engine.borrow()
    }

    /// Resolves when the engine does not answer (any more).
    pub(super) async fn engine_is_down(&self) {
        // The sender lives in this very value.
        let _ = self.engine.subscribe().wait_for(|engine| *engine != Engine::Up).await;
    }

    pub(super) fn set_engine(&self, engine: Engine) {
        let before = self.engine.send_replace(engine);
        if before == engine {
            return;
        }
        match engine {
            Engine::Up => tracing::info!(engine = %self.settings.engine_url, "the engine answers"),
            Engine::Down => tracing::warn!(engine = %self.settings.engine_url, "the engine does not answer"),
            Engine::Unknown => {}
        }
        self.changed.notify_one();
    }

    /// From now on the worker takes no new requests from frontends.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// What a report would say now.
    pub(super) fn sample(&self) -> Sample {
        let settings = &self.settings;
        let (start, size) = (settings.data_parallel_start_rank, settings.data_parallel_size);
        let limits = self.gate.limits();
        let mut figures = self.load.figures();
        figures.extend(self.tracker.figures(start, size));
        Sample {
            registration: Registration {
                worker: settings.worker.clone(),
                url: self.url.clone(),
                data_parallel_start_rank: start,
                data_parallel_size: size,
                engine_request_limit: limits.slots,
                request_queue_limit: limits.queue,
                kv_block_size: settings.kv_block_size,
                draining: self.draining(),
                engine_down: self.engine() != Engine::Up,
                worker_ttl_ms: u64::try_from(settings.worker_ttl.as_millis()).unwrap_or(u64::MAX),
            },
            figures,
            room: self.gate.has_room(),
        }
    }
}
