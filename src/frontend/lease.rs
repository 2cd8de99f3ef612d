//! A place on a worker, given back when it is dropped.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::committer::Event;
use crate::core::id::{Incarnation, LeaseId, WorkerId};
use crate::core::session::Place;

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
    pub url: Arc<str>,
    /// For `x-tidegate-revision`; none in static mode.
    pub revision: Option<u64>,
    /// Taken in static mode: answers carry `x-tidegate-degraded: 1`.
    pub degraded: bool,
    guard: Guard,
}

/// Tells the committer, without waiting, when the lease is over.
#[derive(Debug)]
struct Guard {
    id: LeaseId,
    back: UnboundedSender<Event>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A committer that is gone has told Redis, or nobody can: the reaper will.
        let _ = self.back.send(Event::Ended(self.id.clone()));
    }
}

impl Lease {
    pub(super) fn new(place: &Place, revision: Option<u64>, id: LeaseId, back: UnboundedSender<Event>) -> Self {
        Self {
            worker: place.worker.clone(),
            incarnation: place.incarnation.clone(),
            url: place.url.clone(),
            revision,
            degraded: revision.is_none(),
            guard: Guard { id, back },
        }
    }

    /// Its id, for logs.
    #[must_use]
    pub fn id(&self) -> &LeaseId {
        &self.guard.id
    }

    /// Gives the place back because the worker did not take the request.
    pub fn decline(self, why: Declined) {
        if why != Declined::Elsewhere {
            let _ = self.guard.back.send(Event::Skip(self.worker, self.incarnation));
        }
    }
}
