//! What goes into a session and comes out of it.

use std::sync::Arc;

use crate::core::id::{FrontendId, Incarnation, WorkerId};
use crate::core::op::{
    Admission, Cause, Decide, Decided, Fenced, Heartbeat, Hello, Pulse, Reconcile, Reconciled, Welcome,
};
use crate::core::retry_after::Drain;

/// What the session needs of chance.
pub trait Chance {
    /// A frontend id that nobody had before.
    fn frontend_id(&mut self) -> FrontendId;
    /// For the name of a new epoch.
    fn nonce(&mut self) -> String;
    /// 1 to 2^31-2.
    fn seed(&mut self) -> u32;
    /// 0 to 50: spreads the probes of many frontends.
    fn jitter_ms(&mut self) -> u64;
}

/// A request that waits for its lease.
pub trait Waiter {
    /// Nobody waits for the answer any more: it is dropped unsent.
    fn gone(&self) -> bool;
    /// What it asks for; the same lease id every time.
    fn admission(&self) -> Admission;
}

/// What is fixed for the life of a session.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For how long after the last good contact static mode admits; none: it never does (`--on-store-loss closed`).
    pub static_max_age_ms: Option<u64>,
    /// In trouble, a request that has waited this long is told so.
    pub patience_ms: u64,
}

/// A call to make.
#[derive(Debug, Clone)]
pub enum Call {
    /// Makes this frontend known.
    Hello(Hello),
    /// Asserts leases.
    Reconcile(Reconcile),
    /// A sign of life.
    Heartbeat(Heartbeat),
    /// A group of releases and admissions.
    Decide(Decide),
}

/// The reply of a script.
#[derive(Debug, Clone)]
pub enum Reply {
    /// To [`Call::Hello`].
    Hello(Fenced<Welcome>),
    /// To [`Call::Reconcile`].
    Reconcile(Fenced<Reconciled>),
    /// To [`Call::Heartbeat`].
    Heartbeat(Fenced<Pulse>),
    /// To [`Call::Decide`].
    Decide(Fenced<Decided>),
}

/// What became of a call.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The script replied.
    Reply(Reply),
    /// It was certainly not applied.
    Failed(Failure),
    /// Nobody knows; the connection is closed, and what else was in flight on it is unknown too.
    Unknown,
}

/// Why a call was certainly not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The server does not know the script; the driver will send its text. Nothing is wrong.
    NoScript,
    /// Not sent, or the server is not in a state to serve: counts towards the breaker, what waited goes on waiting.
    Passing,
    /// The server will not do this (no memory, no permission): waiting requests are told at once.
    Refused,
}

/// Where a lease is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The worker.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Where its sidecar listens.
    pub url: Arc<str>,
}

/// Why a request was not given a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The gate is shut.
    Shut(Cause),
    /// Redis cannot be asked, and static mode is over or off.
    NoStore,
}

/// What the driver has to do.
#[derive(Debug)]
pub enum Effect<W> {
    /// Hand out a lease.
    Admit {
        /// To whom.
        waiter: W,
        /// Its place.
        place: Arc<Place>,
        /// The revision that the admission created; none in static mode.
        revision: Option<u64>,
    },
    /// Hand out a refusal.
    Refuse {
        /// To whom.
        waiter: W,
        /// Why.
        denied: Denied,
        /// The revision it was decided on; none if Redis did not decide.
        revision: Option<u64>,
        /// How fast requests end; none if Redis did not decide.
        drain: Option<Drain>,
    },
    /// Sweep these, on any connection, again while the reply says `more`.
    Sweep {
        /// Workers whose state changes by itself about now.
        workers: Vec<WorkerId>,
        /// Frontends that are silent.
        frontends: Vec<FrontendId>,
    },
    /// Close the connection: answers still under way on it are of no use.
    Close,
}
