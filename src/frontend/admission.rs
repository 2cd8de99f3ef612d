//! What the HTTP edge asks of the shared state: a lease, or a refusal.

use crate::core::id::{Incarnation, ModelName, WorkerId};
use crate::core::refusal::Refusal;

/// A request that asks for a worker.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Estimated prompt tokens (bytes of prompt text / 4).
    pub tokens: u64,
    /// `x-tidegate-worker`: heeded in router mode `direct` only.
    pub pin: Option<WorkerId>,
    /// Workers that must not be chosen: tried before by this request, or not reachable from here.
    pub exclude: Vec<WorkerId>,
}

/// Why a worker did not take an admitted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declined {
    /// `x-tidegate-refused: capacity`, or the engine's own "I am full": skip it, fleet-wide, for a second.
    Capacity,
    /// `x-tidegate-refused: engine_down`: skip it too.
    EngineDown,
    /// `x-tidegate-refused: incarnation`, or it could not be connected to: no skip.
    Elsewhere,
}

/// A place on a worker. Given back when dropped, whatever happens to the request.
#[derive(Debug)]
pub struct Lease {
    /// The chosen worker.
    pub worker: WorkerId,
    /// Its incarnation, for `x-tidegate-incarnation`.
    pub incarnation: Incarnation,
    /// Where its sidecar listens: `http://host:port[/base]`.
    pub url: String,
    /// For `x-tidegate-revision`; none in static mode.
    pub revision: Option<u64>,
    /// Taken in static mode: answers carry `x-tidegate-degraded: 1`.
    pub degraded: bool,
}

impl Lease {
    /// Gives the place back because the worker did not take the request.
    pub fn decline(self, why: Declined) {
        let _ = why;
    }
}

/// Hands out leases. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admissions {}

impl Admissions {
    /// Asks for a place. Dropping the future before it is answered takes the request out of the queue, or gives the
    /// place back if it was won meanwhile.
    ///
    /// # Errors
    /// A refusal with its reason.
    pub async fn admit(&self, model: &ModelName, ask: Ask) -> Result<Lease, Refusal> {
        let _ = ask;
        Err(Refusal {
            reason: crate::core::refusal::Reason::ModelNotFound,
            revision: None,
            drain: Some(crate::core::retry_after::Drain { per_second: 0.0, shed: model.as_str().len() as u64 }),
            degraded: false,
        })
    }
}
