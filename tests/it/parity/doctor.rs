//! What `tidegate doctor` would say of a state: of one that nobody has harmed, nothing.

use std::collections::BTreeMap;

use tidegate::core::fleet::shard::{Hash, Held};
use tidegate::core::invariants::{Books, Dump, Owners, Shared, Violation, WorkerState, check};
use tidegate::core::stored::number;

type State = BTreeMap<String, Held>;

fn hash(state: &State, name: &str) -> Hash {
    match state.get(name) {
        Some(Held::Hash(fields)) => fields.clone(),
        _ => Hash::new(),
    }
}

fn scores(state: &State, name: &str) -> BTreeMap<String, u64> {
    match state.get(name) {
        Some(Held::Zset(members)) => {
            let whole = members.iter().map(|(name, score)| (name.clone(), number(&score.to_string()).unwrap_or(0)));
            whole.collect()
        }
        _ => BTreeMap::new(),
    }
}

fn dump(state: &State, now_ms: u64) -> Dump {
    let (gate, inflight) = (hash(state, "gate"), hash(state, "inflight"));
    let (alive, skips, eligible) = (scores(state, "workers"), scores(state, "skips"), scores(state, "eligible"));
    let busy = match state.get("busy") {
        Some(Held::Set(members)) => members.clone(),
        _ => Default::default(),
    };
    let names = gate.keys().chain(inflight.keys()).chain(alive.keys()).chain(eligible.keys()).chain(&busy);
    let worker = |name: &String| {
        let of = WorkerState {
            gate: gate.get(name).cloned(),
            inflight: inflight.get(name).cloned(),
            alive_until: alive.get(name).copied(),
            skipped_until: skips.get(name).copied(),
            busy: busy.contains(name),
            eligible: eligible.contains_key(name),
            hash: hash(state, &format!("worker:{name}")),
        };
        (name.clone(), of)
    };
    let leases = |name: &String| Some((name.strip_prefix("leases:")?.to_owned(), hash(state, name)));
    Dump {
        shared: Shared {
            now_ms,
            // Nobody sweeps between two steps.
            lag_ms: Shared::NEVER,
            stats: hash(state, "stats"),
            applied: hash(state, "config:applied"),
        },
        workers: names.map(worker).collect(),
        books: Books {
            frontends: scores(state, "frontends"),
            seq: hash(state, "seq"),
            leases: state.keys().filter_map(leases).collect(),
            gate,
            inflight,
        },
        owners: Owners::default(),
    }
}

/// All but what only the next report or sweep recomputes after a change of configuration.
pub(crate) fn doctor(state: &State, now_ms: u64) -> Result<(), String> {
    if !state.contains_key("stats") {
        return Ok(());
    }
    let found: Vec<Violation> = check(&dump(state, now_ms)).into_iter().filter(|v| v.rule != "busy").collect();
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    if lines.is_empty() { Ok(()) } else { Err(format!("the doctor says\n  {}", lines.join("\n  "))) }
}
