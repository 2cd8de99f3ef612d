//! Figures of a sidecar (design section 7); the first three have the reference's names.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::register;
use crate::core::op::FigureKind;
use crate::core::refusal::SidecarRefusal;

/// Handles, made once per sidecar. Gauges are set when the page is asked for.
#[derive(Debug)]
pub struct WorkerMetrics {
    registry: Registry,
    /// Requests refused because N ran and Q waited.
    pub rejections: IntCounter,
    /// Slots taken.
    pub engine_requests: IntGauge,
    /// Requests that wait for a slot.
    pub queue: IntGauge,
    /// Requests forwarded to the engine.
    pub forwarded: IntCounter,
    /// Requests sent again because a reused connection had been closed.
    pub replayed: IntCounter,
    /// Requests that the engine left without an answer, or in the middle of one.
    pub engine_failures: IntCounter,
    /// Requests whose client left before the answer was complete.
    pub cancelled: IntCounter,
    /// N; -1: none.
    pub request_limit: IntGauge,
    /// Q.
    pub queue_limit: IntGauge,
    /// 1: the engine answers.
    pub engine_up: IntGauge,
    /// 1: known to Redis under its present incarnation.
    pub registered: IntGauge,
    /// 1: another process has this worker's id.
    pub superseded: IntGauge,
    /// 1: busy, as the last report was answered.
    pub busy: IntGauge,
    /// 1: takes no new requests.
    pub draining: IntGauge,
    /// Prompt tokens of forwarded requests without a response byte.
    pub tracked_prefill_tokens: IntGauge,
    /// KV blocks of prompts and streamed output, 0 while they are not counted.
    pub tracked_decode_blocks: IntGauge,
    /// Requests that run in the engine, by its own page.
    pub engine_running: IntGauge,
    /// Requests that wait in the engine, by its own page.
    pub engine_waiting: IntGauge,
    /// Times that the engine's page could not be read.
    pub scrape_failures: IntCounter,
    refused: IntCounterVec,
    reports: IntCounterVec,
    missing: IntGaugeVec,
}

/// What became of a registration or report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Written.
    Ok,
    /// Another process holds the id.
    Superseded,
    /// Redis did not know the worker.
    Unknown,
    /// A value was refused.
    Invalid,
    /// Redis was not reached, or its answer did not come.
    Failed,
}

impl Sent {
    const ALL: [Self; 5] = [Self::Ok, Self::Superseded, Self::Unknown, Self::Invalid, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Superseded => "superseded",
            Self::Unknown => "unknown",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
        }
    }
}

impl WorkerMetrics {
    /// Makes all of them in a registry of their own, every label value touched.
    ///
    /// # Errors
    /// The registry refuses one.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| register(&registry, IntCounter::new(name, help)?);
        let gauge = |name: &str, help: &str| register(&registry, IntGauge::new(name, help)?);
        let counters = |name: &str, help: &str, label: &str| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let missing = Opts::new("tidegate_worker_missing", "1: nobody tells this signal or capacity of the engine");
        let missing = register(&registry, IntGaugeVec::new(missing, &["figure"])?)?;
        let refused = counters("tidegate_worker_refused_total", "Requests refused by the sidecar", "reason")?;
        for refusal in SidecarRefusal::ALL {
            refused.with_label_values(&[refusal.as_str()]);
        }
        let reports = counters("tidegate_worker_reports_total", "Registrations and reports sent to Redis", "outcome")?;
        for sent in Sent::ALL {
            reports.with_label_values(&[sent.label()]);
        }
        super::watch_process(&registry)?;
        Ok(Self {
            rejections: counter("dynamo_rejection_request_total", "Requests refused: all slots and places taken")?,
            engine_requests: gauge("dynamo_engine_request", "Requests in the engine: slots taken")?,
            queue: gauge("dynamo_request_queue", "Requests that wait for a slot")?,
            forwarded: counter("tidegate_worker_forwarded_total", "Requests sent to the engine")?,
            replayed: counter(
                "tidegate_worker_replayed_total",
                "Requests sent to the engine again, over a new connection",
            )?,
            engine_failures: counter(
                "tidegate_worker_engine_failures_total",
                "Requests without a whole answer of the engine",
            )?,
            cancelled: counter("tidegate_worker_cancelled_total", "Requests whose client left before the end")?,
            request_limit: gauge("tidegate_worker_engine_request_limit", "N: engine slots; -1: no limit")?,
            queue_limit: gauge("tidegate_worker_request_queue_limit", "Q: places in the queue")?,
            engine_up: gauge("tidegate_worker_engine_up", "1: the engine answers")?,
            registered: gauge("tidegate_worker_registered", "1: known to Redis under its present incarnation")?,
            superseded: gauge("tidegate_worker_superseded", "1: another process has this worker's id")?,
            busy: gauge("tidegate_worker_busy", "1: busy, as the last report was answered")?,
            draining: gauge("tidegate_worker_draining", "1: takes no new requests")?,
            tracked_prefill_tokens: gauge(
                "tidegate_worker_tracked_prefill_tokens",
                "Estimated prompt tokens of requests without a response byte",
            )?,
            tracked_decode_blocks: gauge(
                "tidegate_worker_tracked_decode_blocks",
                "KV blocks of prompts and streamed output; 0 while they are not counted",
            )?,
            engine_running: gauge("tidegate_engine_requests_running", "Requests that run, by the engine's own page")?,
            engine_waiting: gauge("tidegate_engine_requests_waiting", "Requests that wait, by the engine's own page")?,
            scrape_failures: counter(
                "tidegate_worker_scrape_failures_total",
                "Times that the engine's page could not be read",
            )?,
            refused,
            reports,
            missing,
            registry,
        })
    }

    /// Counts a refusal.
    pub fn refuse(&self, why: SidecarRefusal) {
        self.refused.with_label_values(&[why.as_str()]).inc();
        if why == SidecarRefusal::Capacity {
            self.rejections.inc();
        }
    }

    /// Counts a registration or report.
    pub fn sent(&self, what: Sent) {
        self.reports.with_label_values(&[what.label()]).inc();
    }

    /// Says whether a signal or capacity of the engine is missing.
    pub fn set_missing(&self, kind: FigureKind, missing: bool) {
        self.missing.with_label_values(&[kind.field()]).set(missing.into());
    }

    /// The page.
    ///
    /// # Errors
    /// A series cannot be written.
    pub fn page(&self) -> prometheus::Result<String> {
        super::page(&self.registry)
    }
}
