//! The metrics of one request, from its body's end to its answer's.

use std::sync::Arc;

use tokio::time::Instant;

use crate::core::refusal::Reason;
use crate::metrics::frontend::{End, Endpoint, ModelMetrics};

/// Counts a request once, whatever becomes of it; dropped without an end, its client has left.
#[derive(Debug)]
pub(super) struct Record {
    model: Arc<ModelMetrics>,
    endpoint: Endpoint,
    stream: bool,
    began: Instant,
    status: u16,
    open: bool,
    broken: bool,
}

impl Record {
    pub(super) fn begin(model: Arc<ModelMetrics>, endpoint: Endpoint, stream: bool) -> Self {
        model.active.inc();
        Self { model, endpoint, stream, began: Instant::now(), status: 0, open: true, broken: false }
    }

    /// The model turned out to be registered, so that it has series of its own.
    pub(super) fn belongs_to(&mut self, model: Arc<ModelMetrics>) {
        if !Arc::ptr_eq(&self.model, &model) {
            self.model.active.dec();
            model.active.inc();
            self.model = model;
        }
    }

    /// The head of the engine's answer is here.
    pub(super) fn head(&mut self, status: u16) {
        self.status = status;
        self.model.first_byte.observe(self.seconds());
    }

    /// Another worker is asked.
    pub(super) fn migrated(&self) {
        self.model.migrations.inc();
    }

    /// The gate said no.
    pub(super) fn refused(&mut self, reason: Reason, tokens: u64) {
        self.model.refused(self.endpoint, reason, tokens);
        self.ended(match reason {
            reason if reason.is_overload() => End::Overload,
            Reason::ModelNotFound => End::NotFound,
            _ => End::Unavailable,
        });
    }

    /// The engine has broken off its answer.
    pub(super) fn broke_off(&mut self, end: End) {
        self.broken = true;
        self.ended(end);
    }

    /// [`Record::broke_off`] was called.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// The engine's answer has been passed on whole.
    pub(super) fn answered(&mut self) {
        self.ended(match self.status {
            429 | 529 => End::Overload,
            404 => End::NotFound,
            503 => End::Unavailable,
            400..=499 => End::Invalid,
            500.. => End::Internal,
            _ => End::Success,
        });
    }

    /// The request is over. Only the first end counts.
    pub(super) fn ended(&mut self, end: End) {
        if self.open {
            self.open = false;
            self.model.active.dec();
            self.model.duration.observe(self.seconds());
            self.model.ended(self.endpoint, self.stream, end);
        }
    }

    fn seconds(&self) -> f64 {
        Instant::now().saturating_duration_since(self.began).as_secs_f64()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.ended(End::Cancelled);
    }
}
