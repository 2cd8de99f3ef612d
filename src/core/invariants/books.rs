//! Invariant 1: for each worker, 0 <= in flight = number of leases naming its incarnation; the total is their sum.

use std::collections::{BTreeMap, BTreeSet};

use super::{Shared, Violation};
use crate::core::stored::{Fields, Gate, Seq, field, lease, number};

/// The counters and what explains them, all read at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Books {
    /// `P:gate`.
    pub gate: Fields,
    /// `P:inflight`.
    pub inflight: Fields,
    /// `P:frontends`: alive until, in milliseconds; 0: being reaped.
    pub frontends: BTreeMap<String, u64>,
    /// `P:seq`.
    pub seq: Fields,
    /// `P:leases:<frontend>` of every frontend in either registry.
    pub leases: BTreeMap<String, Fields>,
}

pub(super) fn check(shared: &Shared, books: &Books) -> Vec<Violation> {
    let mut found = Vec::new();
    registries(books, &mut found);
    let counted = leases(shared, books, &mut found);
    counters(books, &counted, &mut found);
    totals(shared, books, &mut found);
    found
}

/// Both registries of frontends, and both of workers, have the same members.
fn registries(books: &Books, found: &mut Vec<Violation>) {
    let mut pair = |rule, one: (&str, BTreeSet<&String>), two: (&str, BTreeSet<&String>)| {
        for (here, there) in [(&one, &two), (&two, &one)] {
            for name in here.1.difference(&there.1) {
                let message = format!("it is in P:{} but not in P:{}", here.0, there.0);
                found.push(Violation::new(1, rule, *name, message));
            }
        }
    };
    let (gate, inflight) = (books.gate.keys().collect(), books.inflight.keys().collect());
    pair("registries of workers", ("gate", gate), ("inflight", inflight));
    let (frontends, seq) = (books.frontends.keys().collect(), books.seq.keys().collect());
    pair("registries of frontends", ("frontends", frontends), ("seq", seq));
}

/// Leases that count, by worker and incarnation. A hash counts only if `P:seq` names the present epoch for it.
fn leases<'a>(shared: &Shared, books: &'a Books, found: &mut Vec<Violation>) -> BTreeMap<(&'a str, &'a str), u64> {
    let epoch = shared.stats.get("epoch").map_or("", String::as_str);
    let mut counted = BTreeMap::new();
    for (frontend, text) in &books.seq {
        let Some(seq) = Seq::read(text) else {
            found.push(Violation::new(1, "registry entry", frontend, format!("P:seq holds {text:?}")));
            continue;
        };
        if seq.epoch != epoch {
            continue;
        }
        let held = books.leases.get(frontend);
        let size = held.map_or(0, |held| held.len() as u64);
        if size != seq.leases {
            let message = format!("P:seq says {} leases, its hash has {size}", seq.leases);
            found.push(Violation::new(1, "leases of a frontend", frontend, message));
        }
        for (id, text) in held.into_iter().flatten() {
            match lease(text) {
                Some(pair) => *counted.entry(pair).or_insert(0) += 1,
                None => found.push(Violation::new(1, "lease", id, format!("{frontend} holds it as {text:?}"))),
            }
        }
    }
    counted
}

/// Each count is the number of leases on the worker's present incarnation.
fn counters(books: &Books, counted: &BTreeMap<(&str, &str), u64>, found: &mut Vec<Violation>) {
    for (worker, text) in &books.gate {
        let Some(gate) = Gate::read(text) else {
            found.push(Violation::new(1, "gate entry", worker, format!("P:gate holds {text:?}")));
            continue;
        };
        let Some(count) = books.inflight.get(worker) else { continue };
        let leases = counted.get(&(worker.as_str(), gate.incarnation)).copied().unwrap_or(0);
        if number(count) != Some(leases) {
            let message = format!("in flight is {count}, but {leases} leases name incarnation {}", gate.incarnation);
            found.push(Violation::new(1, "in flight", worker, message));
        }
    }
}

/// What `P:stats` keeps as sums is the sum.
fn totals(shared: &Shared, books: &Books, found: &mut Vec<Violation>) {
    let gates = || books.gate.values().filter_map(|text| Gate::read(text));
    let sum: u64 = books.inflight.values().filter_map(|text| number(text)).sum();
    let live = gates().filter(Gate::live).count() as u64;
    let busy = gates().filter(|gate| gate.live() && gate.has('b')).count() as u64;
    for (name, is) in [("inflight_total", sum), ("live", live), ("live_busy", busy)] {
        let said = field(&shared.stats, name);
        if said != Some(is) {
            let said = shared.stats.get(name).map_or("missing", String::as_str);
            found.push(Violation::new(1, "totals", name, format!("P:stats says {said}, the workers add up to {is}")));
        }
    }
}
