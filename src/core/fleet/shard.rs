//! The keys of one model, as Redis keeps them: texts in hashes, scores in sorted sets. Everything in it may have been
//! written, or deleted, by somebody else; what the rules make of that is theirs to say.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::zset::{Zset, double};
use crate::core::thresholds::MAX_INTEGER;

/// A hash: field to text.
pub type Hash = BTreeMap<String, String>;
/// A journal entry: (field, text) in order.
pub type Entry = Vec<(String, String)>;

/// A key holds something of another type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongType;

/// A key of type `T`; empty is the same as missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Key<T> {
    value: T,
    wrong: bool,
}

impl<T: Default> Key<T> {
    /// For a read command.
    ///
    /// # Errors
    /// If the key holds something else.
    pub const fn read(&self) -> Result<&T, WrongType> {
        if self.wrong { Err(WrongType) } else { Ok(&self.value) }
    }

    /// For a write command.
    ///
    /// # Errors
    /// If the key holds something else.
    pub const fn write(&mut self) -> Result<&mut T, WrongType> {
        if self.wrong { Err(WrongType) } else { Ok(&mut self.value) }
    }

    /// `DEL`: whatever it holds.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Somebody wrote something else over it.
    pub fn spoil(&mut self) {
        *self = Self { value: T::default(), wrong: true };
    }

    /// It holds something else.
    #[must_use]
    pub const fn is_wrong(&self) -> bool {
        self.wrong
    }
}

/// A stream of about `bound` entries, each with its time in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Journal(pub VecDeque<(i64, Entry)>);

impl Key<Journal> {
    /// Appends. A journal never stands in a decision's way: one that is broken is dropped.
    pub(super) fn append(&mut self, now: i64, bound: usize, entry: Entry) {
        let Ok(journal) = self.write() else { return self.clear() };
        journal.0.push_back((now, entry));
        while journal.0.len() > bound {
            journal.0.pop_front();
        }
    }
}

/// A worker's own hash, and when it expires by itself (ms).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerKey {
    /// `P:worker:<id>`.
    pub hash: Key<Hash>,
    /// After this time the key is gone.
    pub expires_ms: Option<i64>,
}

/// The keys of one model (design section 4), named as there.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the key of its name in design section 4")]
pub struct Shard {
    pub config: Key<Hash>,
    pub applied: Key<Hash>,
    pub history: Key<Journal>,
    pub workers: Key<Zset>,
    pub gate: Key<Hash>,
    pub busy: Key<BTreeSet<String>>,
    pub eligible: Key<Zset>,
    pub inflight: Key<Hash>,
    pub reserved: Key<Hash>,
    pub route: Key<Hash>,
    pub skips: Key<Zset>,
    pub due: Key<Zset>,
    pub frontends: Key<Zset>,
    pub seq: Key<Hash>,
    pub load: Key<Journal>,
    pub transitions: Key<Journal>,
    pub stats: Key<Hash>,
    /// By worker.
    pub worker: BTreeMap<String, WorkerKey>,
    /// By frontend.
    pub leases: BTreeMap<String, Key<Hash>>,
}

/// What a key of a [`Shard`] holds, for comparison with Redis.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// Fields and texts.
    Hash(Hash),
    /// Members.
    Set(BTreeSet<String>),
    /// Members and scores.
    Zset(BTreeMap<String, f64>),
    /// Entries without their ids.
    Stream(Vec<Entry>),
    /// Something that is not of the key's type.
    Other,
}

impl Shard {
    /// The hashes by the name of the key behind `P:`, but for those of workers and frontends.
    #[must_use]
    pub const fn hashes(&self) -> [(&'static str, &Key<Hash>); 8] {
        [
            ("config", &self.config),
            ("config:applied", &self.applied),
            ("gate", &self.gate),
            ("inflight", &self.inflight),
            ("reserved", &self.reserved),
            ("route", &self.route),
            ("seq", &self.seq),
            ("stats", &self.stats),
        ]
    }

    /// The journals by the name of the key behind `P:`.
    #[must_use]
    pub const fn journals(&self) -> [(&'static str, &Key<Journal>); 3] {
        [("config:history", &self.history), ("load", &self.load), ("transitions", &self.transitions)]
    }

    /// The whole state, by the name of the key behind `P:`. Keys that hold nothing are left out.
    #[must_use]
    pub fn dump(&self) -> BTreeMap<String, Held> {
        let mut out = BTreeMap::new();
        for (name, key) in self.hashes() {
            put(&mut out, name.into(), key, |h| Held::Hash(h.clone()), Hash::is_empty);
        }
        for (name, key) in [
            ("workers", &self.workers),
            ("eligible", &self.eligible),
            ("skips", &self.skips),
            ("due", &self.due),
            ("frontends", &self.frontends),
        ] {
            let scores = |z: &Zset| Held::Zset(z.iter().map(|(m, s)| (m.to_owned(), s)).collect());
            put(&mut out, name.into(), key, scores, Zset::is_empty);
        }
        for (name, key) in self.journals() {
            let entries = |j: &Journal| Held::Stream(j.0.iter().map(|(_, entry)| entry.clone()).collect());
            put(&mut out, name.into(), key, entries, |j| j.0.is_empty());
        }
        put(&mut out, "busy".into(), &self.busy, |s| Held::Set(s.clone()), BTreeSet::is_empty);
        for (worker, key) in &self.worker {
            put(&mut out, format!("worker:{worker}"), &key.hash, |h| Held::Hash(h.clone()), Hash::is_empty);
        }
        for (frontend, key) in &self.leases {
            put(&mut out, format!("leases:{frontend}"), key, |h| Held::Hash(h.clone()), Hash::is_empty);
        }
        out
    }
}

fn put<T: Default>(
    out: &mut BTreeMap<String, Held>,
    name: String,
    key: &Key<T>,
    held: impl FnOnce(&T) -> Held,
    empty: impl FnOnce(&T) -> bool,
) {
    match key.read() {
        Err(WrongType) => drop(out.insert(name, Held::Other)),
        Ok(value) if empty(value) => {}
        Ok(value) => drop(out.insert(name, held(value))),
    }
}

/// A whole number from 0 to 2^53-1, which is all that we write as numbers; none for anything else.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^53-1")]
pub(super) fn whole(text: Option<&String>) -> Option<i64> {
    let text = text?;
    let x: f64 = text.parse().ok()?;
    let fits = x >= 0.0 && x <= double(MAX_INTEGER.cast_signed()) && x.fract() == 0.0;
    fits.then_some(x as i64)
}

/// Adds to a counter of a hash that no decision depends on. One that is no number begins anew.
pub(super) fn bump(hash: &mut Hash, field: &str, by: i64) -> i64 {
    let n = whole(hash.get(field)).unwrap_or(0) + by;
    hash.insert(field.to_owned(), n.to_string());
    n
}
