//! The shared state: Redis, or the pure model in this process. Callers see one type and one kind of error.

use crate::core::id::ModelName;
use crate::scripts::Operation;

/// What a call that was not carried out came to.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nobody knows whether it ran: time-out, or a connection that broke.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The server answered an error: not applied.
    #[error("refused by the server: {message}")]
    Rejected {
        /// Which kind.
        kind: ServerError,
        /// The server's words.
        message: String,
    },
    /// It was never sent: no connection, or the breaker is open.
    #[error("not sent: {0}")]
    NotSent(String),
}

/// Errors that a server answers, by what they ask of us (design section 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerError {
    /// `READONLY`: not the primary any more; find the new one.
    ReadOnly,
    /// `MOVED`, `ASK`: the slot lives elsewhere.
    Moved,
    /// `TRYAGAIN`, `CLUSTERDOWN`, `MASTERDOWN`, `LOADING`, `BUSY`, `NOREPLICAS`, max clients: passes by itself.
    State,
    /// `OOM`: no new state is taken.
    Memory,
    /// `NOAUTH`, `WRONGPASS`, `NOPERM`: an operator has to act.
    Auth,
    /// Anything else a script or command answered.
    Other,
}

/// The shared state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {}

impl Store {
    /// Runs an operation on a pooled connection, within the budget of a call.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<O: Operation>(&self, model: &ModelName, op: &O) -> Result<O::Reply, CallError> {
        let _ = (model, op);
        Err(CallError::NotSent("no store".into()))
    }
}
