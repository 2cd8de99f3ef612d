//! A frontend's copy of a model's state: for static mode, for `/fleet`, `/health` and metrics. No decision uses it
//! while Redis can be asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::id::{FrontendId, ModelName, WorkerId};
use crate::core::op::{self, WorkerRow};
use crate::core::session::{Fleet, Place, Standing};
use crate::store::{CallError, Store};

/// Most pages of one snapshot (256 workers each): a scan that never ends is cut.
const MAX_PAGES: usize = 1_000;

/// The state of one model, as read at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Redis time in milliseconds when the reading began; 0: there is none yet.
    pub now_ms: u64,
    /// `P:stats`.
    pub stats: Vec<(String, String)>,
    /// `P:config:applied`: the values in force, refused ones as `error:<field>`, and more.
    pub applied: Vec<(String, String)>,
    /// Frontends with the time until which they are alive; at most 256.
    pub frontends: Vec<(FrontendId, u64)>,
    /// All workers that the gate knows, by name.
    pub workers: BTreeMap<WorkerId, WorkerRow>,
}

impl Snapshot {
    /// Reads it, page by page, on pooled connections.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn fetch(store: &Store, model: &ModelName) -> Result<Self, CallError> {
        let mut all = Self::default();
        let mut cursor = "0".to_owned();
        for _ in 0..MAX_PAGES {
            let page = store.call(model, &op::Snapshot { cursor }).await?;
            if all.now_ms == 0 {
                // The first page's versions: what changes while the rest is read is fetched again.
                all.now_ms = page.now_ms;
                all.stats = page.stats;
                all.applied = page.applied;
                all.frontends = page.frontends;
            }
            all.workers.extend(page.workers.into_iter().map(|row| (row.worker.clone(), row)));
            cursor = page.cursor;
            if cursor == "0" {
                break;
            }
        }
        Ok(all)
    }

    /// A field of `P:stats`.
    #[must_use]
    pub fn stat(&self, name: &str) -> Option<&str> {
        find(&self.stats, name)
    }

    /// A value in force, by its field of `P:config`.
    #[must_use]
    pub fn in_force(&self, field: &str) -> Option<&str> {
        find(&self.applied, field)
    }

    /// `fleet_version` and `config_version`.
    #[must_use]
    pub fn versions(&self) -> (u64, u64) {
        let number = |text: Option<&str>| text.and_then(|t| t.parse().ok()).unwrap_or(0);
        (number(self.stat("fleet_version")), number(self.in_force("config_version")))
    }

    /// Some worker is alive.
    #[must_use]
    pub fn has_live_worker(&self) -> bool {
        self.workers.values().any(|row| !row.closed.contains('x'))
    }

    /// The same with what a later heartbeat says is in flight per worker; none: nothing is different.
    pub(super) fn counting(&self, inflight: &[(WorkerId, u64)]) -> Option<Self> {
        let is_news = |(worker, n): &&(WorkerId, u64)| self.workers.get(worker).is_some_and(|row| row.inflight != *n);
        inflight.iter().find(is_news)?;
        let mut newer = self.clone();
        for (worker, n) in inflight {
            if let Some(row) = newer.workers.get_mut(worker) {
                row.inflight = *n;
            }
        }
        Some(newer)
    }

    /// What static mode needs of it.
    pub(super) fn fleet(&self) -> Fleet {
        let standing = |row: &WorkerRow| Standing {
            place: Arc::new(Place {
                worker: row.worker.clone(),
                incarnation: row.incarnation.clone(),
                url: row.url.as_str().into(),
            }),
            cap: row.cap,
            closed: row.closed.clone(),
            inflight: row.inflight,
        };
        Fleet {
            workers: self.workers.values().map(standing).collect(),
            max_inflight: self.in_force("max_inflight").and_then(|n| n.parse().ok()),
            direct: self.in_force("router_mode") == Some("direct"),
        }
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
}
