//! The invariants of design section 10, as checks on stored state. Tests and `tidegate doctor` use the same.
//!
//! What follows from time alone (a worker that falls silent, a signal that goes stale, a skip that ends) is written
//! down by the next sweep, not at the moment itself; [`Shared::lag_ms`] says how late that may be. On live state a
//! violation counts when it is seen twice, more than the lag apart.

mod books;
mod owners;
mod worker;

use std::collections::BTreeMap;
use std::fmt;

use super::stored::Fields;
use super::thresholds::Config;

pub use books::Books;
pub use owners::{Key, Owners};
pub use worker::WorkerState;

/// What all checks of a model need.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shared {
    /// Redis time in milliseconds.
    pub now_ms: u64,
    /// How late a sweep may be, in milliseconds; [`Shared::NEVER`] if nobody sweeps.
    pub lag_ms: u64,
    /// `P:stats`.
    pub stats: Fields,
    /// `P:config:applied`.
    pub applied: Fields,
}

impl Shared {
    /// No frontend is alive: what time alone changes is not written down.
    pub const NEVER: u64 = u64::MAX;

    fn config(&self) -> Config {
        Config::of(self.applied.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    }
}

/// One model's whole state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dump {
    /// What all checks need.
    pub shared: Shared,
    /// Every worker that any key names.
    pub workers: BTreeMap<String, WorkerState>,
    /// The counters and what explains them.
    pub books: Books,
    /// The keys.
    pub owners: Owners,
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Its number in design section 10.
    pub invariant: u8,
    /// Which rule of it.
    pub rule: &'static str,
    /// The worker, frontend or key; empty: the model.
    pub subject: String,
    /// What is, and what should be.
    pub message: String,
}

impl Violation {
    fn new(invariant: u8, rule: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { invariant, rule, subject: subject.into(), message: message.into() }
    }

    /// The same rule is broken for the same subject, whatever the figures.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        (self.invariant, self.rule, &self.subject) == (other.invariant, other.rule, &other.subject)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({})", self.invariant, self.rule)?;
        if !self.subject.is_empty() {
            write!(f, " of {}", self.subject)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Checks one worker: invariants 2 and 3.
#[must_use]
pub fn check_worker(shared: &Shared, id: &str, state: &WorkerState) -> Vec<Violation> {
    worker::check(shared, id, state)
}

/// Checks the counters: invariant 1.
#[must_use]
pub fn check_books(shared: &Shared, books: &Books) -> Vec<Violation> {
    books::check(shared, books)
}

/// Checks that every key has an owner: invariant 4.
#[must_use]
pub fn check_owners(owners: &Owners) -> Vec<Violation> {
    owners::check(owners)
}

/// Checks a whole model.
#[must_use]
pub fn check(dump: &Dump) -> Vec<Violation> {
    let workers = dump.workers.iter().flat_map(|(id, state)| check_worker(&dump.shared, id, state));
    let mut all: Vec<Violation> = check_books(&dump.shared, &dump.books);
    all.extend(workers);
    all.extend(check_owners(&dump.owners));
    all
}

#[cfg(test)]
mod tests;
