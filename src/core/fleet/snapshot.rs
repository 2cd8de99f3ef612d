//! `lua/snapshot.lua`: the state, for frontends' copies and operators.

use super::gate::Gate;
use super::shard::{Hash, Shard, whole};
use super::stats::unsigned;
use crate::core::id::{FrontendId, WorkerId};
use crate::core::op::{Page, WorkerRow};

/// The whole state in one page. Keys of a wrong type read as empty.
pub(super) fn page(d: &Shard, now_ms: u64) -> Page {
    let pairs = |hash: Option<&Hash>| -> Vec<(String, String)> {
        hash.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let inflight = |w: &str| d.inflight.read().ok().and_then(|h| whole(h.get(w))).map_or(0, unsigned);
    let row = |(w, text): (&String, &String)| {
        let gate = Gate::parse(text)?;
        Some(WorkerRow {
            worker: WorkerId::parse(w).ok()?,
            incarnation: gate.incarnation,
            cap: gate.cap,
            closed: gate.closed.to_string(),
            url: gate.url,
            inflight: inflight(w),
        })
    };
    let frontends = d.frontends.read().ok().into_iter().flat_map(|z| z.iter().take(256));
    Page {
        cursor: "0".into(),
        now_ms,
        stats: pairs(d.stats.read().ok()),
        applied: pairs(d.applied.read().ok()),
        frontends: frontends.filter_map(|(f, t)| Some((FrontendId::parse(f).ok()?, score(t)))).collect(),
        workers: d.gate.read().ok().into_iter().flatten().filter_map(row).collect(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time; saturates")]
fn score(t: f64) -> u64 {
    t as u64
}
