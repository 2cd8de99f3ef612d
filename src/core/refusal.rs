//! Why a request is not served, and the one place where a status is chosen for it (design sections 3.3 and 5).

/// The reason of a refusal, as in the field `reason` of an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The model's total is at `max_inflight`.
    MaxInflight,
    /// Some live worker is busy by its load.
    AllWorkersBusy,
    /// The workers that could take it refused it themselves.
    WorkerRefused,
    /// Every live worker is at its cap.
    AtCapacity,
    /// No worker is alive, or only draining ones, or none that can be reached from here.
    NoWorkers,
    /// Redis is unusable and static mode is over or off.
    StoreUnavailable,
    /// This process is shutting down.
    Draining,
    /// The model is not in the index.
    ModelNotFound,
}

/// A request that is not served.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The revision it was decided on; none if no decision was made (static mode, no store, no such model).
    pub revision: Option<u64>,
    /// What the store said of the drain: releases per second and refusals of the last 5 s, for `Retry-After`.
    pub drain: Option<super::retry_after::Drain>,
    /// Decided in static mode.
    pub degraded: bool,
}
