//! What `status` shows of a model, computed from what was read. The JSON form is these types as they stand.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::gather::Raw;
use crate::core::busy::{Check, Freshness, Rank, Signal};
use crate::core::id::ModelName;
use crate::core::op::{FigureKind, WorkerRow};
use crate::core::stored::{Fields, Gate, Seq, field, freshness, ranks};
use crate::core::thresholds::{Config, Field, decimal};

/// One model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelView {
    /// Its name.
    pub model: String,
    /// Redis time of the look, in milliseconds.
    pub now_ms: u64,
    /// The revision in force.
    pub revision: Option<u64>,
    /// The epoch in force.
    pub epoch: Option<String>,
    /// For how long decisions still wait because an epoch heals, in milliseconds.
    pub healing_ms: u64,
    /// For how long nobody is reaped because Redis was away or the epoch is new, in milliseconds.
    pub grace_ms: u64,
    /// How long Redis's last absence was, in milliseconds; 0 after a new epoch.
    pub away_ms: u64,
    /// Changes with every applied change of configuration.
    pub config_version: u64,
    /// Fleet-wide sums.
    pub counters: Counters,
    /// Workers by what they are.
    pub summary: Summary,
    /// The fields as they act, all of them; a threshold that is not set is null.
    pub in_force: BTreeMap<&'static str, Value>,
    /// What `P:config` says and is not in force: refused, or not yet noticed.
    pub pending: BTreeMap<String, String>,
    /// Refused values, by field.
    pub refused_values: BTreeMap<String, String>,
    /// Configured checks that cannot fire, and why.
    pub missing: Vec<String>,
    /// By id.
    pub frontends: Vec<FrontendView>,
    /// By id.
    pub workers: Vec<WorkerView>,
}

/// Fleet-wide sums.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counters {
    /// Admitted requests that have not ended.
    pub inflight_total: u64,
    /// Sum of the caps of all live workers; null: at least one has none.
    pub places: Option<u64>,
    /// Admissions so far.
    pub admitted: u64,
    /// Releases so far.
    pub released: u64,
    /// Refusals so far, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Releases per second (EWMA).
    pub drain_per_s: f64,
}

/// Workers by what they are. One worker may be several of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// All of them.
    pub workers: usize,
    /// Would be chosen now.
    pub eligible: usize,
    /// Busy by their load.
    pub busy: usize,
    /// At their cap.
    pub full: usize,
    /// Leaving.
    pub draining: usize,
    /// Their engine does not answer.
    pub engine_down: usize,
    /// They refused admission themselves a moment ago.
    pub skipped: usize,
    /// Silent.
    pub expired: usize,
}

/// One frontend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrontendView {
    /// Its id.
    pub id: String,
    /// It counts as alive for so long if nothing is heard of it, in milliseconds; 0: it is being reaped.
    pub alive_ms: u64,
    /// Its leases.
    pub leases: Option<u64>,
    /// It has said again what it holds since the epoch began.
    pub reconciled: bool,
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerView {
    /// Its id.
    pub id: String,
    /// Where its sidecar listens.
    pub url: String,
    /// Its incarnation.
    pub incarnation: String,
    /// Why no request goes there, first that holds: `expired`, `engine_down`, `draining`, `busy`, `skipped`, `full`;
    /// else `open`.
    pub state: &'static str,
    /// It would be chosen now.
    pub eligible: bool,
    /// Admitted requests.
    pub inflight: u64,
    /// Most of them; null: no cap.
    pub cap: Option<u64>,
    /// N.
    pub engine_request_limit: Option<u64>,
    /// Q.
    pub request_queue_limit: Option<u64>,
    /// It counts as alive for so long if nothing is heard of it, in milliseconds.
    pub alive_ms: Option<u64>,
    /// What the scripts wrote down as the reason when they last looked.
    pub busy_reason: String,
    /// Its declared ranks.
    pub ranks: Vec<RankView>,
}

/// One data-parallel rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankView {
    /// Its number.
    pub rank: u64,
    /// KV blocks in all.
    pub kv_total_blocks: Option<u64>,
    /// Tokens per engine step.
    pub max_num_batched_tokens: Option<u64>,
    /// What is known of its load, by source.
    pub signals: BTreeMap<&'static str, SignalView>,
    /// Why it is busy; null: it is not.
    pub busy: Option<BusyView>,
}

/// A signal with its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SignalView {
    /// The figure.
    pub value: u64,
    /// How old it is, in milliseconds.
    pub age_ms: u64,
    /// It still counts.
    pub fresh: bool,
}

/// The check that fired, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BusyView {
    /// `decode`, `prefill` or `prefill_frac`.
    pub check: &'static str,
    /// Which signal: `active_…` is what the engine says, `tracked_…` what the sidecar counts.
    pub source: &'static str,
    /// The figure.
    pub value: u64,
    /// What it is a part or multiple of (`kv_total_blocks`, `max_num_batched_tokens`).
    pub of: Option<u64>,
    /// The threshold that it is above.
    pub threshold: f64,
    /// The figure's age in milliseconds.
    pub age_ms: u64,
}

/// Computes it.
pub(super) fn view(model: &ModelName, raw: &Raw) -> ModelView {
    let stats: Fields = raw.page.stats.iter().cloned().collect();
    let applied: Fields = raw.page.applied.iter().cloned().collect();
    let config = config(&applied);
    let now_ms = raw.page.now_ms;
    let until = |name: &str| field(&stats, name).unwrap_or(0).saturating_sub(now_ms);
    let fresh = freshness(&stats, config.load_ttl_ms, now_ms);
    let workers: Vec<WorkerView> = raw.page.workers.iter().map(|row| worker(raw, row, &config, &fresh)).collect();
    ModelView {
        model: model.to_string(),
        now_ms,
        revision: field(&stats, "revision"),
        epoch: stats.get("epoch").cloned(),
        healing_ms: until("healing_until"),
        grace_ms: until("grace_until"),
        config_version: field(&applied, "config_version").unwrap_or(0),
        counters: counters(&stats, &workers),
        summary: summary(&workers),
        in_force: in_force(&config),
        away_ms: field(&stats, "away_ms").unwrap_or(0),
        pending: raw.config.iter().filter(|(name, text)| pending(&applied, name, text)).map(pair).collect(),
        refused_values: applied
            .iter()
            .filter_map(|(name, text)| Some((name.strip_prefix("error:")?.to_owned(), text.clone())))
            .collect(),
        missing: missing(&config, &workers),
        frontends: frontends(raw, &stats),
        workers,
    }
}

fn pair((name, text): (&String, &String)) -> (String, String) {
    (name.clone(), text.clone())
}

/// Unknown fields of `P:config` are not ours to judge.
fn pending(applied: &Fields, name: &str, text: &str) -> bool {
    Field::parse(name).is_ok() && applied.get(name).is_none_or(|in_force| in_force != text)
}

/// Every field as it acts: what is not set has its default, or (the thresholds) null.
pub(in crate::ops) fn in_force(config: &Config) -> BTreeMap<&'static str, Value> {
    let value = |field: Field| match field {
        Field::ActiveDecodeBlocks => Value::from(config.active_decode_blocks_threshold),
        Field::ActivePrefillTokens => Value::from(config.active_prefill_tokens_threshold),
        Field::ActivePrefillTokensFrac => Value::from(config.active_prefill_tokens_threshold_frac),
        Field::MaxInflight => Value::from(config.max_inflight),
        Field::RouterMode => Value::from(config.router_mode.name()),
        Field::LoadTtlMs => Value::from(config.load_ttl_ms),
        Field::TrackOutputBlocks => Value::from(config.track_output_blocks),
        Field::TrackActiveBlocks => Value::from(config.track_active_blocks),
        Field::KvBlockSize => Value::from(config.kv_block_size),
    };
    Field::ALL.into_iter().map(|field| (field.name(), value(field))).collect()
}

/// `P:config:applied` as values.
pub(in crate::ops) fn config(applied: &Fields) -> Config {
    Config::of(applied.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn counters(stats: &Fields, workers: &[WorkerView]) -> Counters {
    let live = workers.iter().filter(|worker| !matches!(worker.state, "expired" | "engine_down" | "draining"));
    let refused = stats.keys().filter_map(|name| {
        let reason = name.strip_prefix("refused:")?;
        Some((reason.to_owned(), field(stats, name)?))
    });
    Counters {
        inflight_total: field(stats, "inflight_total").unwrap_or(0),
        places: live.map(|worker| worker.cap).sum(),
        admitted: field(stats, "admitted").unwrap_or(0),
        released: field(stats, "released").unwrap_or(0),
        refused: refused.collect(),
        drain_per_s: stats.get("drain_rate").and_then(|text| decimal(text)).unwrap_or(0.0),
    }
}

fn summary(workers: &[WorkerView]) -> Summary {
    let count = |state: &str| workers.iter().filter(|worker| worker.state == state).count();
    Summary {
        workers: workers.len(),
        eligible: workers.iter().filter(|worker| worker.eligible).count(),
        busy: count("busy"),
        full: count("full"),
        draining: count("draining"),
        engine_down: count("engine_down"),
        skipped: count("skipped"),
        expired: count("expired"),
    }
}

fn frontends(raw: &Raw, stats: &Fields) -> Vec<FrontendView> {
    let epoch = stats.get("epoch").map_or("", String::as_str);
    let one = |(id, until): &(crate::core::id::FrontendId, u64)| {
        let seq = raw.seq.get(id.as_str()).and_then(|text| Seq::read(text));
        FrontendView {
            id: id.to_string(),
            alive_ms: until.saturating_sub(raw.page.now_ms),
            leases: seq.map(|seq| seq.leases),
            reconciled: seq.is_some_and(|seq| seq.epoch == epoch),
        }
    };
    let mut all: Vec<FrontendView> = raw.page.frontends.iter().map(one).collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn worker(raw: &Raw, row: &WorkerRow, config: &Config, fresh: &Freshness) -> WorkerView {
    let none = Fields::new();
    let hash = raw.workers.get(&row.worker).unwrap_or(&none);
    let gate = Gate { incarnation: "", cap: row.cap, closed: &row.closed, url: "" };
    let full = row.cap.is_some_and(|cap| row.inflight >= cap);
    let open = row.closed.is_empty() && !full;
    let states = [('x', "expired"), ('e', "engine_down"), ('d', "draining"), ('b', "busy"), ('s', "skipped")];
    let state = states.into_iter().find(|(letter, _)| gate.has(*letter)).map(|(_, state)| state);
    let id = row.worker.to_string();
    WorkerView {
        url: row.url.clone(),
        incarnation: row.incarnation.to_string(),
        state: state.unwrap_or(if full { "full" } else { "open" }),
        eligible: raw.eligible.as_ref().map_or(open, |eligible| eligible.contains(&id)),
        inflight: row.inflight,
        cap: row.cap,
        engine_request_limit: field(hash, "engine_request_limit"),
        request_queue_limit: field(hash, "request_queue_limit"),
        alive_ms: raw.alive_until.get(&id).map(|until| until.saturating_sub(raw.page.now_ms)),
        busy_reason: hash.get("busy_reason").cloned().unwrap_or_default(),
        ranks: ranks(hash)
            .iter()
            .map(|(number, rank)| rank_view(*number, rank, config, fresh, raw.page.now_ms))
            .collect(),
        id,
    }
}

fn rank_view(number: u64, rank: &Rank, config: &Config, fresh: &Freshness, now_ms: u64) -> RankView {
    let signals = signals(rank).into_iter().filter_map(|(kind, signal)| {
        let signal = signal?;
        let age_ms = now_ms.saturating_sub(signal.at_ms);
        Some((kind.field(), SignalView { value: signal.value, age_ms, fresh: now_ms < fresh.ends(signal) }))
    });
    let signals: BTreeMap<&'static str, SignalView> = signals.collect();
    let busy = rank.busy(config, fresh).map(|reason| {
        #[expect(clippy::cast_precision_loss, reason = "thresholds are at most 2^53-1")]
        let (check, of, threshold) = match reason.check {
            Check::Decode => ("decode", Some(reason.capacity), config.active_decode_blocks_threshold),
            Check::Prefill => ("prefill", None, config.active_prefill_tokens_threshold.map(|most| most as f64)),
            Check::PrefillFraction => {
                ("prefill_frac", Some(reason.capacity), config.active_prefill_tokens_threshold_frac)
            }
        };
        let source = reason.figure.field();
        BusyView {
            check,
            source,
            value: reason.value,
            of,
            threshold: threshold.unwrap_or(0.0),
            age_ms: signals.get(source).map_or(0, |signal| signal.age_ms),
        }
    });
    RankView {
        rank: number,
        kv_total_blocks: rank.kv_total_blocks,
        max_num_batched_tokens: rank.max_num_batched_tokens,
        signals,
        busy,
    }
}

fn signals(rank: &Rank) -> [(FigureKind, Option<Signal>); 4] {
    [
        (FigureKind::ActiveDecodeBlocks, rank.active_decode_blocks),
        (FigureKind::TrackedDecodeBlocks, rank.tracked_decode_blocks),
        (FigureKind::ActivePrefillTokens, rank.active_prefill_tokens),
        (FigureKind::TrackedPrefillTokens, rank.tracked_prefill_tokens),
    ]
}

/// Checks that are configured, but for which no worker has the signal or the capacity (design section 3.1).
fn missing(config: &Config, workers: &[WorkerView]) -> Vec<String> {
    if workers.is_empty() {
        return Vec::new();
    }
    let ranks = || workers.iter().flat_map(|worker| &worker.ranks);
    let signal = |what: &str| ranks().any(|rank| rank.signals.iter().any(|(name, s)| s.fresh && name.ends_with(what)));
    let mut all = Vec::new();
    let mut need = |set: bool, field: Field, there: bool, what: &str| {
        if set && !there {
            all.push(format!("{field} is set, but no worker has a {what}: this check cannot fire"));
        }
    };
    let decode = config.active_decode_blocks_threshold.is_some();
    let (most, share) =
        (config.active_prefill_tokens_threshold.is_some(), config.active_prefill_tokens_threshold_frac.is_some());
    let total = ranks().any(|rank| rank.kv_total_blocks.is_some_and(|total| total > 0));
    let step = ranks().any(|rank| rank.max_num_batched_tokens.is_some_and(|step| step > 0));
    need(decode, Field::ActiveDecodeBlocks, signal("decode_blocks"), "fresh figure of decode blocks");
    need(decode, Field::ActiveDecodeBlocks, total, "capacity kv_total_blocks");
    need(most, Field::ActivePrefillTokens, signal("prefill_tokens"), "fresh figure of prefill tokens");
    need(share, Field::ActivePrefillTokensFrac, signal("prefill_tokens"), "fresh figure of prefill tokens");
    need(share, Field::ActivePrefillTokensFrac, step, "capacity max_num_batched_tokens");
    all
}

#[cfg(test)]
mod tests;
