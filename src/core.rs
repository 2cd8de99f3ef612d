//! The rules, without I/O, clock, randomness, async or logging: time and chance come in as arguments.

pub mod busy;
pub mod fleet;
pub mod id;
pub mod invariants;
pub mod op;
pub mod refusal;
pub mod registrar;
pub mod retry_after;
pub mod route;
pub mod session;
pub mod stored;
pub mod thresholds;
