//! Fills the gauges of the fleet from this frontend's copy of the state, and from what is stored of each worker.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::admission::{Admissions, Mode, ModelView};
use crate::core::busy::{Freshness, Rank, judge};
use crate::core::id::{ModelName, WorkerId};
use crate::core::op::WorkerRow;
use crate::core::stored::{self, Fields};
use crate::core::thresholds::{Config, Field, Value};
use crate::metrics::fleet::FleetMetrics;
use crate::store::Store;

/// Pages asked for within this time show the same figures.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How long the reading of all workers may take; a page shows what is known by then.
const READ: Duration = Duration::from_secs(1);
/// How many workers are read at a time.
const AT_ONCE: usize = 16;
/// How often they are made unasked, so that what is missing is logged.
const UNASKED: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Figures {
    metrics: FleetMetrics,
    most_workers: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    at: Option<Instant>,
    /// Checks that cannot fire and have been warned of.
    warned: HashSet<(ModelName, &'static str)>,
}

impl Figures {
    /// `most_workers`: larger fleets have no series per worker (`--max-worker-series`).
    pub(super) fn new(metrics: FleetMetrics, most_workers: usize) -> Self {
        Self { metrics, most_workers, state: Mutex::default() }
    }

    /// Makes them now and then; never ends.
    pub(super) async fn watch(&self, admissions: &Admissions) {
        loop {
            tokio::time::sleep(UNASKED).await;
            self.refresh(admissions).await;
        }
    }

    /// Makes them, unless they are fresh.
    pub(super) async fn refresh(&self, admissions: &Admissions) {
        let mut state = self.state.lock().await;
        if state.at.is_some_and(|at| Instant::now() < at + AT_MOST_EVERY) {
            return;
        }
        let views = admissions.models();
        let until = Instant::now() + READ;
        let mut models = Vec::with_capacity(views.len());
        for view in &views {
            models.push((view, self.ranks(admissions.store(), view, until).await));
        }
        // From here on nothing waits, so a page never shows half of it.
        self.metrics.clear();
        let health = admissions.health();
        self.metrics.ready.set(i64::from(health.seen && !health.closed));
        let open = !admissions.store().open_breakers().is_empty();
        self.metrics.breaker_open.set(i64::from(open));
        for (view, ranks) in models {
            self.show(view);
            let config = config(view);
            let fresh = freshness(view, &config, &ranks);
            self.show_ranks(view, &ranks, &config, &fresh);
            let missing = missing(&config, ranks.iter().map(|(_, rank)| rank), &fresh);
            let known = !ranks.is_empty();
            for (check, missing) in missing {
                let missing = missing && known;
                let key = (view.model.clone(), check);
                self.metrics.missing_signal.with_label_values(&[view.model.as_str(), check]).set(i64::from(missing));
                if !missing {
                    state.warned.remove(&key);
                } else if state.warned.insert(key) {
                    tracing::warn!(model = %view.model, check, "configured, but no worker has the signal or capacity");
                }
            }
        }
        state.at = Some(Instant::now());
    }

    /// What is stored of the ranks of all live workers; nothing for a fleet that is too large.
    async fn ranks(&self, store: &Store, view: &ModelView, until: Instant) -> Vec<(WorkerId, Rank)> {
        let rows = &view.snapshot.workers;
        if rows.len() > self.most_workers {
            return Vec::new();
        }
        let live: Vec<WorkerId> =
            rows.values().filter(|row| !row.closed.contains('x')).map(|row| row.worker.clone()).collect();
        let mut read = stream::iter(live)
            .map(|worker| async move { (store.worker(&view.model, &worker).await, worker) })
            .buffer_unordered(AT_ONCE);
        let mut all = Vec::new();
        while let Ok(Some((fields, worker))) = tokio::time::timeout_at(until, read.next()).await {
            // One that cannot be read is left out.
            let Ok(fields) = fields else { continue };
            let fields: Fields = fields.into_iter().collect();
            all.extend(stored::ranks(&fields).into_iter().map(|(_, rank)| (worker.clone(), rank)));
        }
        all
    }

    fn show(&self, view: &ModelView) {
        let ModelView { model, live, snapshot } = view;
        let model = [model.as_str()];
        let metrics = &self.metrics;
        let is = |letter| move |row: &&WorkerRow| row.closed.contains(letter);
        let full = |row: &&WorkerRow| row.cap.is_some_and(|cap| row.inflight >= cap);
        let count = |which: &dyn Fn(&&WorkerRow) -> bool| snapshot.workers.values().filter(which).count();
        for (state, n) in [
            ("alive", snapshot.workers.len() - count(&is('x'))),
            ("free", count(&|row| row.closed.is_empty() && !full(row))),
            ("busy", count(&is('b'))),
            ("draining", count(&is('d'))),
            ("engine_down", count(&is('e'))),
            ("skipped", count(&is('s'))),
            ("expired", count(&is('x'))),
            ("at_capacity", count(&full)),
        ] {
            metrics.workers.with_label_values(&[model[0], state]).set(whole(n as u64));
        }
        let pulse = live.pulse.as_deref();
        let inflight = pulse.map(|pulse| pulse.inflight_total);
        let inflight = inflight.unwrap_or_else(|| snapshot.workers.values().map(|row| row.inflight).sum());
        metrics.inflight.with_label_values(&model).set(whole(inflight));
        metrics.frontends.with_label_values(&model).set(whole(pulse.map_or(0, |pulse| pulse.frontends)));
        metrics.revision.with_label_values(&model).set(whole(live.revision));
        metrics.degraded.with_label_values(&model).set(i64::from(live.mode == Mode::Static));
        metrics.drain_rate.with_label_values(&model).set(live.drain.map_or(0.0, |drain| drain.per_second));
        for (name, text) in &snapshot.applied {
            if let Some(field) = name.strip_prefix("error:") {
                if Field::parse(field).is_ok() {
                    metrics.config_refused.with_label_values(&[model[0], field]).set(1);
                }
                continue;
            }
            let value = match Field::parse(name).and_then(|field| field.check(text)) {
                Ok(Value::Fraction(value)) => value,
                Ok(Value::Integer(value)) => value as f64,
                Ok(Value::Switch(_) | Value::Mode(_)) | Err(_) => continue,
            };
            metrics.thresholds.with_label_values(&[model[0], name]).set(value);
        }
    }

    fn show_ranks(&self, view: &ModelView, ranks: &[(WorkerId, Rank)], config: &Config, fresh: &Freshness) {
        let model = view.model.as_str();
        let (mut blocks, mut tokens) = (None, None);
        for (worker, rank) in ranks {
            let number = rank.rank.to_string();
            let labels = [model, worker.as_str(), &number, "decode"];
            let judged = judge(std::slice::from_ref(rank), config, fresh);
            self.metrics.worker_decode_blocks.with_label_values(&labels).set(whole(judged.blocks));
            self.metrics.worker_prefill_tokens.with_label_values(&labels).set(whole(judged.tokens));
            blocks = blocks.max(rank.kv_total_blocks);
            tokens = tokens.max(rank.max_num_batched_tokens);
        }
        for (gauges, most) in [(&self.metrics.total_kv_blocks, blocks), (&self.metrics.max_num_batched_tokens, tokens)]
        {
            if let Some(most) = most {
                gauges.with_label_values(&[model]).set(whole(most));
            }
        }
    }
}

fn whole(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn config(view: &ModelView) -> Config {
    Config::of(view.snapshot.applied.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

/// The copy of the state is older than what is stored of the workers: what is stored is judged by its own newest time.
fn freshness(view: &ModelView, config: &Config, ranks: &[(WorkerId, Rank)]) -> Freshness {
    let stats: Fields = view.snapshot.stats.iter().cloned().collect();
    let signals = ranks.iter().flat_map(|(_, rank)| {
        [rank.active_decode_blocks, rank.tracked_decode_blocks, rank.active_prefill_tokens, rank.tracked_prefill_tokens]
    });
    let newest = signals.flatten().map(|signal| signal.at_ms).max().unwrap_or(0);
    stored::freshness(&stats, config.load_ttl_ms, view.snapshot.now_ms.max(newest))
}

/// The configured checks, and whether no worker has what they need.
fn missing<'a>(
    config: &Config,
    ranks: impl Iterator<Item = &'a Rank> + Clone,
    fresh: &Freshness,
) -> Vec<(&'static str, bool)> {
    let some = |what: &dyn Fn(&Rank) -> bool| ranks.clone().any(what);
    let recent = |signal: Option<crate::core::busy::Signal>| signal.is_some_and(|s| fresh.now_ms < fresh.ends(s));
    let decode = |rank: &Rank| recent(rank.active_decode_blocks) || recent(rank.tracked_decode_blocks);
    let prefill = |rank: &Rank| recent(rank.active_prefill_tokens) || recent(rank.tracked_prefill_tokens);
    let total = |rank: &Rank| rank.kv_total_blocks.is_some_and(|total| total > 0);
    let step = |rank: &Rank| rank.max_num_batched_tokens.is_some_and(|step| step > 0);
    let mut all = Vec::new();
    if config.active_decode_blocks_threshold.is_some() {
        all.push((Field::ActiveDecodeBlocks.name(), !(some(&decode) && some(&total))));
    }
    if config.active_prefill_tokens_threshold.is_some() {
        all.push((Field::ActivePrefillTokens.name(), !some(&prefill)));
    }
    if config.active_prefill_tokens_threshold_frac.is_some() {
        all.push((Field::ActivePrefillTokensFrac.name(), !(some(&prefill) && some(&step))));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::busy::Signal;

    #[test]
    fn f027_a_check_without_its_signal_is_missing() {
        let fresh = Freshness { now_ms: 10_000, ttl_ms: 5_000, away: None };
        let mut config = Config::default();
        assert_eq!(missing(&config, [].iter(), &fresh), []);
        config.active_decode_blocks_threshold = Some(0.5);
        let check = Field::ActiveDecodeBlocks.name();
        let with = |at_ms, total| Rank {
            active_decode_blocks: Some(Signal { value: 0, at_ms }),
            kv_total_blocks: total,
            ..Rank::default()
        };
        for (rank, want) in [
            (Rank::default(), true),
            (with(9_000, None), true),
            (with(9_000, Some(0)), true),
            (with(1_000, Some(100)), true),
            (with(9_000, Some(100)), false),
        ] {
            assert_eq!(missing(&config, [rank].iter(), &fresh), [(check, want)]);
        }
    }
}
