//! Capacity and signals that come from outside: flags, the engine's page, `POST /load`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::op::{Figure, FigureKind};

use super::settings::Settings;

/// A signal that nobody has told for this long is missing (the default of `load_ttl_ms`).
const STALE: Duration = Duration::from_secs(5);
/// A scrape that is older is not repeated: Redis would take it for a new one.
const SCRAPE_KEPT: Duration = Duration::from_secs(2);

/// The figures from outside. What the sidecar tracks itself is in [`super::track`].
#[derive(Debug)]
pub(super) struct Load {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Capacities that flags or `POST /load` named; the last one counts.
    named: BTreeMap<(u32, FigureKind), u64>,
    scraped: Vec<Figure>,
    scraped_at: Option<Instant>,
    /// Capacities of earlier scrapes: they do not age.
    known: BTreeMap<(u32, FigureKind), u64>,
    /// When each signal was told last, by anyone.
    told: BTreeMap<FigureKind, Instant>,
}

impl Load {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut inner = Inner::default();
        let start = settings.data_parallel_start_rank;
        for rank in start..start.saturating_add(settings.data_parallel_size) {
            for (kind, flag) in [
                (FigureKind::KvTotalBlocks, settings.kv_total_blocks),
                (FigureKind::MaxNumBatchedTokens, settings.max_num_batched_tokens),
            ] {
                inner.named.extend(flag.map(|value| ((rank, kind), value)));
            }
        }
        Self { inner: Mutex::new(inner) }
    }

    // Figures stay whole whatever a panicking thread was doing.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's page was read.
    pub(super) fn scraped(&self, figures: Vec<Figure>) {
        let mut inner = self.lock();
        let now = Instant::now();
        for figure in &figures {
            if figure.kind.is_signal() {
                inner.told.insert(figure.kind, now);
            } else {
                inner.known.insert((figure.rank, figure.kind), figure.value);
            }
        }
        inner.scraped = figures;
        inner.scraped_at = Some(now);
    }

    /// `POST /load` told these. Its capacities are told again with every report, its signals only once: repeating them
    /// would keep a figure fresh that its owner has stopped telling.
    pub(super) fn pushed(&self, figures: &[Figure]) {
        let mut inner = self.lock();
        let now = Instant::now();
        for figure in figures {
            if figure.kind.is_signal() {
                inner.told.insert(figure.kind, now);
            } else {
                inner.named.insert((figure.rank, figure.kind), figure.value);
            }
        }
    }

    /// What is known now.
    pub(super) fn figures(&self) -> Vec<Figure> {
        let inner = self.lock();
        let mut capacities = inner.known.clone();
        capacities.extend(inner.named.iter().map(|(key, value)| (*key, *value)));
        let mut figures: Vec<Figure> =
            capacities.into_iter().map(|((rank, kind), value)| Figure { rank, kind, value }).collect();
        let now = Instant::now();
        if inner.scraped_at.is_some_and(|at| now.saturating_duration_since(at) < SCRAPE_KEPT) {
            figures.extend(inner.scraped.iter().filter(|figure| figure.kind.is_signal()).cloned());
        }
        figures
    }

    /// Whether this signal or capacity of the engine is known for some rank; a capacity of 0 is not.
    pub(super) fn knows(&self, kind: FigureKind) -> bool {
        let inner = self.lock();
        if kind.is_signal() {
            let now = Instant::now();
            return inner.told.get(&kind).is_some_and(|at| now.saturating_duration_since(*at) < STALE);
        }
        inner.known.iter().chain(&inner.named).any(|((_, k), value)| *k == kind && *value > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{ModelName, WorkerId};
    use crate::http::base_url::BaseUrl;
    use FigureKind::{ActiveDecodeBlocks, KvTotalBlocks, MaxNumBatchedTokens};

    fn load(change: impl FnOnce(&mut Settings)) -> Load {
        let mut settings = Settings::new(
            ModelName::parse("m").unwrap(),
            WorkerId::parse("w").unwrap(),
            "127.0.0.1:0".parse().unwrap(),
            BaseUrl::parse("http://127.0.0.1:1").unwrap(),
        );
        change(&mut settings);
        Load::new(&settings)
    }

    fn figure(rank: u32, kind: FigureKind, value: u64) -> Figure {
        Figure { rank, kind, value }
    }

    #[test]
    fn flags_name_the_capacity_of_every_declared_rank() {
        let load = load(|s| {
            (s.data_parallel_start_rank, s.data_parallel_size) = (2, 2);
            s.kv_total_blocks = Some(9);
        });
        assert_eq!(load.figures(), [figure(2, KvTotalBlocks, 9), figure(3, KvTotalBlocks, 9)]);
        assert!(load.knows(KvTotalBlocks) && !load.knows(MaxNumBatchedTokens));
    }

    #[test]
    fn a_pushed_capacity_is_repeated_and_a_pushed_signal_is_not() {
        let load = load(|s| s.kv_total_blocks = Some(9));
        assert!(!load.knows(ActiveDecodeBlocks));
        load.pushed(&[figure(0, KvTotalBlocks, 7), figure(0, ActiveDecodeBlocks, 3)]);
        assert_eq!(load.figures(), [figure(0, KvTotalBlocks, 7)]);
        assert!(load.knows(ActiveDecodeBlocks));
    }

    #[test]
    fn a_scraped_capacity_stays_when_a_later_page_leaves_it_out() {
        let load = load(|_| {});
        load.scraped(vec![figure(0, KvTotalBlocks, 7), figure(0, ActiveDecodeBlocks, 3)]);
        load.scraped(vec![figure(0, ActiveDecodeBlocks, 4)]);
        assert_eq!(load.figures(), [figure(0, KvTotalBlocks, 7), figure(0, ActiveDecodeBlocks, 4)]);
    }

    #[test]
    fn f027_a_capacity_of_nothing_is_no_capacity() {
        let load = load(|_| {});
        load.pushed(&[figure(0, KvTotalBlocks, 0), figure(0, ActiveDecodeBlocks, 0)]);
        assert!(!load.knows(KvTotalBlocks));
    }
}
