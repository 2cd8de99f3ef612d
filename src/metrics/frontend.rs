//! Metrics of a frontend: the reference's names where it has them, `tidegate_*` for the rest (design section 7).
//!
//! A model's series exist once the model is known to be registered; what comes from a request never becomes a label
//! before that. All other requests share the label `unknown`.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::register;
use crate::core::id::ModelName;
use crate::core::refusal::Reason;

/// Values of the label `endpoint`, by [`Endpoint`].
const ENDPOINTS: [&str; 6] =
    ["chat_completions", "completions", "embeddings", "responses", "messages", "messages_count_tokens"];
/// The label of everything that no registered model explains.
const UNKNOWN: &str = "unknown";

/// A proxied route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/chat/completions`
    ChatCompletions,
    /// `/v1/completions`
    Completions,
    /// `/v1/embeddings`
    Embeddings,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/v1/messages/count_tokens`
    CountTokens,
}

/// How a request ended; the labels `status` and `error_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The whole answer was passed on, whatever its status but 4xx and 5xx.
    Success,
    /// The engine answered 4xx, or the request was refused for what it is.
    Invalid,
    /// No such model.
    NotFound,
    /// 529.
    Overload,
    /// 503.
    Unavailable,
    /// The client left.
    Cancelled,
    /// An engine or stream time limit.
    Timeout,
    /// The engine answered 5xx, or broke off.
    Internal,
}

impl End {
    const ALL: [Self; 8] = [
        Self::Success,
        Self::Invalid,
        Self::NotFound,
        Self::Overload,
        Self::Unavailable,
        Self::Cancelled,
        Self::Timeout,
        Self::Internal,
    ];

    const fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Success => ("success", ""),
            Self::Invalid => ("error", "validation"),
            Self::NotFound => ("error", "not_found"),
            Self::Overload => ("error", "overload"),
            Self::Unavailable => ("error", "unavailable"),
            Self::Cancelled => ("error", "cancelled"),
            Self::Timeout => ("error", "response_timeout"),
            Self::Internal => ("error", "internal"),
        }
    }
}

/// All handles. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FrontendMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    families: Families,
    in_progress: IntGauge,
    buffered: IntGauge,
    models: RwLock<HashMap<ModelName, Arc<ModelMetrics>>>,
    unknown: Arc<ModelMetrics>,
}

/// What the series of a model are made from.
#[derive(Debug)]
struct Families {
    requests: IntCounterVec,
    rejections: IntCounterVec,
    cancellations: IntCounterVec,
    migrations: IntCounterVec,
    refusals: IntCounterVec,
    shed_tokens: IntCounterVec,
    active: IntGaugeVec,
    first_byte: HistogramVec,
    duration: HistogramVec,
}

/// The handles of one model.
#[derive(Debug)]
pub struct ModelMetrics {
    endpoints: [EndpointMetrics; ENDPOINTS.len()],
    refusals: [IntCounter; Reason::ALL.len()],
    /// `dynamo_frontend_model_migration_total`: requests that a worker refused and another got.
    pub migrations: IntCounter,
    /// `tidegate_shed_tokens_total`: prompt tokens of refused requests; lost demand, for autoscalers.
    pub shed_tokens: IntCounter,
    /// `dynamo_frontend_active_requests`: from the end of the request's body to the end of the answer.
    pub active: IntGauge,
    /// `dynamo_frontend_time_to_first_token_seconds`: here, to the head of the answer.
    pub first_byte: Histogram,
    /// `dynamo_frontend_request_duration_seconds`.
    pub duration: Histogram,
}

#[derive(Debug)]
struct EndpointMetrics {
    rejections: IntCounter,
    /// By request type (unary, stream) and [`End`].
    requests: [[IntCounter; End::ALL.len()]; 2],
    cancellations: [IntCounter; 2],
}

impl FrontendMetrics {
    /// Makes the handles and registers them.
    ///
    /// # Errors
    /// The registry has series of these names.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let seconds = |name: &str, help: &str| {
            let buckets = vec![0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
            let options = HistogramOpts::new(name, help).buckets(buckets);
            register(registry, HistogramVec::new(options, &["model"])?)
        };
        let families = Families {
            requests: counters(
                "dynamo_frontend_requests_total",
                "Requests that have ended",
                &["model", "endpoint", "request_type", "status", "error_type"],
            )?,
            rejections: counters(
                "dynamo_frontend_model_rejection_total",
                "Requests refused as overload",
                &["model", "endpoint"],
            )?,
            cancellations: counters(
                "dynamo_frontend_model_cancellation_total",
                "Requests whose client left before the answer ended",
                &["model", "endpoint", "request_type"],
            )?,
            migrations: counters(
                "dynamo_frontend_model_migration_total",
                "Requests that one worker did not take and another was asked for",
                &["model", "migration_type"],
            )?,
            refusals: counters("tidegate_refusals_total", "Requests refused, by reason", &["model", "reason"])?,
            shed_tokens: counters(
                "tidegate_shed_tokens_total",
                "Estimated prompt tokens of refused requests: lost demand",
                &["model"],
            )?,
            active: register(registry, {
                let help = "Requests between their body and the end of the answer";
                IntGaugeVec::new(Opts::new("dynamo_frontend_active_requests", help), &["model"])?
            })?,
            first_byte: seconds(
                "dynamo_frontend_time_to_first_token_seconds",
                "From the request to the head of the answer",
            )?,
            duration: seconds("dynamo_frontend_request_duration_seconds", "From the request to the end of the answer")?,
        };
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help)?);
        Ok(Self(Arc::new(Inner {
            registry: registry.clone(),
            in_progress: gauge("tidegate_requests_in_progress", "Requests in progress on all routes")?,
            buffered: gauge("tidegate_buffered_bytes", "Request bodies held for a first or second try")?,
            models: RwLock::default(),
            unknown: Arc::new(families.model(UNKNOWN)),
            families,
        })))
    }

    /// The registry behind the handles.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// The handles of a model that is known to be registered; makes its series.
    #[must_use]
    pub fn registered(&self, model: &ModelName) -> Arc<ModelMetrics> {
        if let Some(known) = self.known(model) {
            return known;
        }
        let mut models = self.0.models.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(models.entry(model.clone()).or_insert_with(|| Arc::new(self.0.families.model(model.as_str()))))
    }

    /// The handles of a model that may not exist: its own if it has any, else those of `unknown`.
    #[must_use]
    pub fn perhaps(&self, model: &ModelName) -> Arc<ModelMetrics> {
        self.known(model).unwrap_or_else(|| self.unknown())
    }

    /// The handles of requests that name no registered model.
    #[must_use]
    pub fn unknown(&self) -> Arc<ModelMetrics> {
        Arc::clone(&self.0.unknown)
    }

    /// Figures that are read when the page is asked for.
    pub fn observe(&self, in_progress: usize, buffered_bytes: usize) {
        self.0.in_progress.set(i64::try_from(in_progress).unwrap_or(i64::MAX));
        self.0.buffered.set(i64::try_from(buffered_bytes).unwrap_or(i64::MAX));
    }

    fn known(&self, model: &ModelName) -> Option<Arc<ModelMetrics>> {
        self.0.models.read().unwrap_or_else(PoisonError::into_inner).get(model).cloned()
    }
}

impl Families {
    fn model(&self, model: &str) -> ModelMetrics {
        ModelMetrics {
            endpoints: ENDPOINTS.map(|endpoint| EndpointMetrics {
                rejections: self.rejections.with_label_values(&[model, endpoint]),
                requests: ["unary", "stream"].map(|kind| {
                    End::ALL.map(|end| {
                        let (status, error) = end.labels();
                        self.requests.with_label_values(&[model, endpoint, kind, status, error])
                    })
                }),
                cancellations: ["unary", "stream"]
                    .map(|kind| self.cancellations.with_label_values(&[model, endpoint, kind])),
            }),
            refusals: Reason::ALL.map(|reason| self.refusals.with_label_values(&[model, reason.as_str()])),
            migrations: self.migrations.with_label_values(&[model, "new_request"]),
            shed_tokens: self.shed_tokens.with_label_values(&[model]),
            active: self.active.with_label_values(&[model]),
            first_byte: self.first_byte.with_label_values(&[model]),
            duration: self.duration.with_label_values(&[model]),
        }
    }
}

impl ModelMetrics {
    /// Counts a refusal, and as a rejection if it is an overload.
    pub fn refused(&self, endpoint: Endpoint, reason: Reason, tokens: u64) {
        if let Some(at) = Reason::ALL.iter().position(|known| *known == reason)
            && let Some(counter) = self.refusals.get(at)
        {
            counter.inc();
        }
        if reason.is_overload() {
            self.endpoint(endpoint).rejections.inc();
            self.shed_tokens.inc_by(tokens);
        }
    }

    /// Counts a request that has ended.
    pub fn ended(&self, endpoint: Endpoint, stream: bool, end: End) {
        let metrics = self.endpoint(endpoint);
        let kind = usize::from(stream);
        if let Some(counter) = metrics.requests.get(kind).and_then(|ends| ends.get(end as usize)) {
            counter.inc();
        }
        if end == End::Cancelled
            && let Some(counter) = metrics.cancellations.get(kind)
        {
            counter.inc();
        }
    }

    fn endpoint(&self, endpoint: Endpoint) -> &EndpointMetrics {
        let [first, ..] = &self.endpoints;
        self.endpoints.get(endpoint as usize).unwrap_or(first)
    }
}
