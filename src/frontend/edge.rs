//! What all requests of a frontend share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::admission::Admissions;
use super::answer::{Addressee, request_id};
use super::away::Away;
use super::bases::Bases;
use super::figures::Figures;
use super::settings::Settings;
use crate::http::body::Buffers;
use crate::http::dialect::Dialect;
use crate::http::serve::Control;
use crate::http::upstream::Upstream;
use crate::metrics::frontend::FrontendMetrics;

/// Unused connections to sidecars are kept for less than a sidecar keeps them (75 s).
const UPSTREAM_IDLE: Duration = Duration::from_secs(30);

/// How far this process is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Serving.
    Open,
    /// `/ready` says no, requests are still taken (`--drain-pause-seconds`).
    Pausing,
    /// Requests are refused, running ones end.
    Draining,
}

/// See the module. One per frontend.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) settings: Settings,
    pub(super) admissions: Admissions,
    pub(super) upstream: Upstream,
    pub(super) bases: Bases,
    pub(super) buffers: Buffers,
    pub(super) away: Away,
    pub(super) metrics: FrontendMetrics,
    pub(super) figures: Figures,
    pub(super) control: Control,
    stage: AtomicU8,
}

impl Edge {
    pub(super) fn new(
        settings: Settings,
        admissions: Admissions,
        metrics: FrontendMetrics,
        figures: Figures,
    ) -> Arc<Self> {
        Arc::new(Self {
            buffers: Buffers::new(settings.max_buffered_bytes),
            settings,
            admissions,
            upstream: Upstream::new(UPSTREAM_IDLE),
            bases: Bases::default(),
            away: Away::default(),
            metrics,
            figures,
            control: Control::default(),
            stage: AtomicU8::new(Stage::Open as u8),
        })
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Open,
            1 => Stage::Pausing,
            _ => Stage::Draining,
        }
    }

    pub(super) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }

    pub(super) fn addressee(&self, dialect: Dialect, headers: &hyper::HeaderMap) -> Addressee {
        Addressee { dialect, id: request_id(headers), overload: self.settings.overload }
    }
}
