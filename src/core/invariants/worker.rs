//! Invariants 2 and 3: `P:eligible` is exactly the eligible workers, `P:busy` exactly the busy ones.

use super::{Shared, Violation};
use crate::core::busy::{Rank, judge};
use crate::core::stored::{Fields, Gate, freshness, in_grace, number, ranks};

/// One worker, all read at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerState {
    /// Its entry in `P:gate`.
    pub gate: Option<String>,
    /// Its entry in `P:inflight`.
    pub inflight: Option<String>,
    /// Its entry in `P:workers`, in milliseconds.
    pub alive_until: Option<u64>,
    /// Its entry in `P:skips`, in milliseconds.
    pub skipped_until: Option<u64>,
    /// It is in `P:busy`.
    pub busy: bool,
    /// It is in `P:eligible`.
    pub eligible: bool,
    /// `P:worker:<id>`; empty if there is none.
    pub hash: Fields,
}

/// What a letter of the gate should be; none: either is right, since only a sweep writes it down.
type Wanted = Option<bool>;

pub(super) fn check(shared: &Shared, id: &str, state: &WorkerState) -> Vec<Violation> {
    let Some(text) = &state.gate else { return without_gate(id, state) };
    // A garbled entry is found with the counters.
    let Some(gate) = Gate::read(text) else { return Vec::new() };
    let mut found = Vec::new();
    let mut letter = |letter: char, wanted: Wanted, invariant, rule, why: &str| {
        if wanted.is_some_and(|wanted| wanted != gate.has(letter)) {
            let (is, should) = if gate.has(letter) { ("has", "should not") } else { ("lacks", "should have it") };
            let message = format!("the gate {is} the letter {letter} and {should}: {why}");
            found.push(Violation::new(invariant, rule, id, message));
        }
    };
    let said = |name: &str| state.hash.get(name).map(|text| text == "1");
    letter('d', said("draining"), 2, "draining", "that is what P:worker says");
    letter('e', said("engine_down"), 2, "engine down", "that is what P:worker says");
    letter('x', expired(shared, state), 2, "expired", "that is what P:workers says");
    letter('s', skipped(shared, state), 2, "skipped", "that is what P:skips says");
    letter('b', busy(shared, state), 3, "busy", "that is what its signals and the values in force give");

    if state.busy != gate.has('b') {
        let (is, gate) = if state.busy { ("in", "open") } else { ("not in", "busy") };
        found.push(Violation::new(3, "busy set", id, format!("it is {is} P:busy, but its gate says {gate}")));
    }
    let count = state.inflight.as_deref().and_then(number).unwrap_or(0);
    let open = gate.closed.is_empty() && gate.cap.is_none_or(|cap| count < cap);
    if open != state.eligible {
        let is = if state.eligible { "in" } else { "not in" };
        let cap = gate.cap.map_or_else(|| "none".to_owned(), |cap| cap.to_string());
        let message = format!("it is {is} P:eligible with closed {:?}, {count} in flight and cap {cap}", gate.closed);
        found.push(Violation::new(2, "eligible", id, message));
    }
    found
}

fn without_gate(id: &str, state: &WorkerState) -> Vec<Violation> {
    let named =
        [("P:workers", state.alive_until.is_some(), 2), ("P:eligible", state.eligible, 2), ("P:busy", state.busy, 3)];
    let named = named.into_iter().filter(|(_, there, _)| *there);
    named.map(|(key, _, n)| Violation::new(n, "no gate", id, format!("it is in {key} but not in P:gate"))).collect()
}

/// `time` has passed, for so long that a sweep must have noticed (true), or has not (false).
fn passed(shared: &Shared, time: u64) -> Wanted {
    if time >= shared.now_ms {
        return Some(false);
    }
    (shared.now_ms - time > shared.lag_ms).then_some(true)
}

fn expired(shared: &Shared, state: &WorkerState) -> Wanted {
    match state.alive_until {
        None => Some(true),
        Some(_) if in_grace(&shared.stats, shared.now_ms) => Some(false),
        Some(until) => passed(shared, until),
    }
}

fn skipped(shared: &Shared, state: &WorkerState) -> Wanted {
    match state.skipped_until {
        None => Some(false),
        Some(until) => passed(shared, until).map(|over| !over),
    }
}

/// Signals age without an event, so what was right a lag ago is right still.
fn busy(shared: &Shared, state: &WorkerState) -> Wanted {
    if state.hash.is_empty() {
        return None;
    }
    let config = shared.config();
    let ranks: Vec<Rank> = ranks(&state.hash).into_iter().map(|(_, rank)| rank).collect();
    let at = |now_ms| judge(&ranks, &config, &freshness(&shared.stats, config.load_ttl_ms, now_ms)).busy;
    let (now, before) = (at(shared.now_ms), at(shared.now_ms.saturating_sub(shared.lag_ms)));
    (now == before).then_some(now)
}
