//! `status` for people.

use std::fmt::Write;

use serde_json::Value;

use super::View;
use super::view::{BusyView, FrontendView, ModelView, RankView, WorkerView};
use crate::core::thresholds::Config;
use crate::ops::{span, table};

/// The whole page.
pub(super) fn text(view: &View) -> String {
    let mut page = format!("namespace {} at {}\n", view.namespace, view.redis);
    for warning in &view.warnings {
        line(&mut page, "WARNING", warning);
    }
    if view.models.is_empty() {
        page.push_str("no model: no worker has registered yet\n");
    }
    for model in &view.models {
        page.push('\n');
        one_model(&mut page, model);
    }
    page
}

fn line(page: &mut String, label: &str, text: &str) {
    // A String takes everything.
    let _ = writeln!(page, "  {label:<11} {text}");
}

fn one_model(page: &mut String, model: &ModelView) {
    let revision = model.revision.map_or_else(|| "none".to_owned(), |revision| revision.to_string());
    let _ = writeln!(page, "model {}   revision {revision}   config version {}", model.model, model.config_version);
    if model.healing_ms > 0 {
        line(page, "HEALING", &format!("a new epoch: decisions wait for {} more", span(model.healing_ms)));
    }
    if model.grace_ms > 0 {
        let why = if model.away_ms > 0 { "Redis was away" } else { "the epoch is new" };
        line(page, "GRACE", &format!("{why}: nobody is reaped for {} more", span(model.grace_ms)));
    }
    counters(page, model);
    line(page, "in force", &in_force(model));
    for (field, text) in &model.refused_values {
        line(page, "REFUSED", &format!("{field} = {text:?}; the value in force stays"));
    }
    for (field, text) in &model.pending {
        if !model.refused_values.contains_key(field) {
            line(page, "pending", &format!("{field} = {text:?} is written, and not yet in force"));
        }
    }
    for text in &model.missing {
        line(page, "MISSING", text);
    }
    line(page, "frontends", &list(model.frontends.iter().map(frontend), "none is alive"));
    if !model.workers.is_empty() {
        page.push('\n');
        let shown = notable(&model.workers);
        let heading = ["WORKER", "STATE", "IN FLIGHT", "DECODE BLOCKS", "PREFILL TOKENS", "ALIVE FOR", "URL"];
        page.push_str(&table::render(&heading, shown.iter().map(|worker| row(worker))));
        if shown.len() < model.workers.len() {
            let _ = writeln!(page, "  … and {} more; --json shows all", model.workers.len() - shown.len());
        }
        reasons(page, &shown);
    }
}

/// The mode, and all that somebody changed.
fn in_force(model: &ModelView) -> String {
    let usual = super::in_force(&Config::default());
    let told = |(name, value): &(&&'static str, &Value)| **name == "router_mode" || usual.get(**name) != Some(*value);
    let words = model.in_force.iter().filter(told).map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name} {text}")
    });
    let off = model.in_force.iter().all(|(name, value)| !name.starts_with("active_") || value.is_null());
    list(words.chain(off.then(|| "no busy threshold".to_owned())), "")
}

fn counters(page: &mut String, model: &ModelView) {
    let counters = &model.counters;
    let places = counters.places.map_or_else(|| "no cap".to_owned(), |places| format!("{places} places"));
    let sums = format!(
        "{} of {places}   admitted {}   released {}   drain {:.1}/s",
        counters.inflight_total, counters.admitted, counters.released, counters.drain_per_s
    );
    line(page, "in flight", &sums);
    line(page, "refused", &list(counters.refused.iter().map(|(reason, n)| format!("{reason} {n}")), "nobody"));
    let of = &model.summary;
    let parts = [
        (of.eligible, "eligible"),
        (of.busy, "busy"),
        (of.full, "full"),
        (of.draining, "draining"),
        (of.engine_down, "engine down"),
        (of.skipped, "skipped"),
        (of.expired, "expired"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    line(page, "workers", &list(std::iter::once(of.workers.to_string()).chain(parts), ""));
}

fn list(parts: impl Iterator<Item = String>, otherwise: &str) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { otherwise.to_owned() } else { parts.join(", ") }
}

fn frontend(frontend: &FrontendView) -> String {
    let leases = frontend.leases.map_or_else(|| "?".to_owned(), |leases| leases.to_string());
    let state = match (frontend.alive_ms, frontend.reconciled) {
        (0, _) => ", silent",
        (_, false) => ", has not said what it holds",
        _ => "",
    };
    format!("{} ({leases} leases{state})", frontend.id)
}

fn row(worker: &WorkerView) -> Vec<String> {
    let cap = worker.cap.map_or_else(|| "no cap".to_owned(), |cap| cap.to_string());
    vec![
        worker.id.clone(),
        worker.state.replace('_', " "),
        format!("{}/{cap}", worker.inflight),
        sum(&worker.ranks, "decode_blocks", |rank| rank.kv_total_blocks),
        sum(&worker.ranks, "prefill_tokens", |_| None),
        worker.alive_ms.map_or_else(|| "-".to_owned(), span),
        worker.url.clone(),
    ]
}

/// The larger fresh figure of each rank, added up: `90/100`; `-` if there is none.
fn sum(ranks: &[RankView], what: &str, capacity: impl Fn(&RankView) -> Option<u64>) -> String {
    let larger = |rank: &RankView| {
        let fresh = rank.signals.iter().filter(|(name, signal)| signal.fresh && name.ends_with(what));
        fresh.map(|(_, signal)| signal.value).max()
    };
    let known: Vec<u64> = ranks.iter().filter_map(larger).collect();
    if known.is_empty() {
        return "-".to_owned();
    }
    let figure: u64 = known.iter().sum();
    let total: Option<u64> = ranks.iter().map(capacity).sum();
    total.map_or_else(|| figure.to_string(), |total| format!("{figure}/{total}"))
}

/// All workers, or of a large fleet those that take no requests first, and only as many as somebody would read.
fn notable(workers: &[WorkerView]) -> Vec<&WorkerView> {
    const MOST: usize = 100;
    let mut shown: Vec<&WorkerView> = workers.iter().collect();
    if shown.len() > MOST {
        shown.sort_by_key(|worker| matches!(worker.state, "open" | "full"));
        shown.truncate(MOST);
    }
    shown
}

/// Why each busy worker is busy, rank by rank.
fn reasons(page: &mut String, workers: &[&WorkerView]) {
    let busy: Vec<&&WorkerView> = workers.iter().filter(|worker| worker.state == "busy").collect();
    if busy.is_empty() {
        return;
    }
    page.push_str("\n  why busy\n");
    for worker in busy {
        for rank in &worker.ranks {
            let reason = match &rank.busy {
                Some(busy) => why(busy),
                None => "not any more; the next report or sweep writes it down".to_owned(),
            };
            let _ = writeln!(page, "  {} rank {}: {reason}", worker.id, rank.rank);
        }
    }
}

fn why(busy: &BusyView) -> String {
    let who = if busy.source.starts_with("active_") { "said by the engine" } else { "counted by the sidecar" };
    let age = span(busy.age_ms);
    let what = match (busy.check, busy.of) {
        ("decode", Some(total)) => format!("{} of {total} KV blocks > {}", busy.value, busy.threshold),
        ("prefill_frac", Some(step)) => {
            format!("{} prefill tokens > {} * max_num_batched_tokens {step}", busy.value, busy.threshold)
        }
        _ => format!("{} prefill tokens > {}", busy.value, busy.threshold),
    };
    format!("{what} ({}, {who} {age} ago)", busy.source)
}
