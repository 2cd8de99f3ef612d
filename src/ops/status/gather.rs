//! Reads what `status` shows.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};

use crate::core::id::{ModelName, WorkerId};
use crate::core::op::{Page, Snapshot};
use crate::core::stored::{Fields, number};
use crate::keys::ModelKeys;
use crate::ops::fields;
use crate::store::{CallError, Store};

/// How many workers are read at a time.
const AT_ONCE: usize = 16;

/// One model's state, page by page: figures of different workers may be some milliseconds apart.
#[derive(Debug, Clone, Default)]
pub(super) struct Raw {
    /// All pages in one; workers by name.
    pub(super) page: Page,
    /// `P:config`: what operators wrote.
    pub(super) config: Fields,
    /// `P:seq`.
    pub(super) seq: Fields,
    /// `P:worker:<id>`.
    pub(super) workers: BTreeMap<WorkerId, Fields>,
    /// `P:workers`, if this store can say.
    pub(super) alive_until: BTreeMap<String, u64>,
    /// `P:eligible`, if this store can say.
    pub(super) eligible: Option<BTreeSet<String>>,
}

pub(super) async fn gather(store: &Store, model: &ModelName) -> Result<Raw, CallError> {
    let page = whole(store, model).await?;
    let names = page.workers.iter().map(|row| row.worker.clone());
    let workers = stream::iter(names)
        .map(|worker| async move {
            let fields = store.worker(model, &worker).await?;
            Ok::<_, CallError>((worker, fields.into_iter().collect()))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let alive = sorted_set(store, model, "workers").await?.unwrap_or_default();
    let eligible = sorted_set(store, model, "eligible").await?;
    Ok(Raw {
        page,
        config: fields(store, model, "config").await?,
        seq: fields(store, model, "seq").await?,
        workers,
        alive_until: alive.into_iter().filter_map(|(name, score)| Some((name, number(&score)?))).collect(),
        eligible: eligible.map(|members| members.into_iter().map(|(name, _)| name).collect()),
    })
}

/// Every page of a snapshot; a worker that two pages name stands there once.
pub(crate) async fn whole(store: &Store, model: &ModelName) -> Result<Page, CallError> {
    let mut rows = BTreeMap::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut page = store.call(model, &Snapshot { cursor }).await?;
        rows.extend(std::mem::take(&mut page.workers).into_iter().map(|row| (row.worker.clone(), row)));
        if page.cursor == "0" {
            page.workers = rows.into_values().collect();
            return Ok(page);
        }
        cursor = std::mem::take(&mut page.cursor);
    }
}

/// Members and scores; none on a store that knows no commands.
async fn sorted_set(store: &Store, model: &ModelName, name: &str) -> Result<Option<Vec<(String, String)>>, CallError> {
    if !store.is_redis() {
        return Ok(None);
    }
    let mut command = redis::cmd("ZRANGE");
    command.arg(ModelKeys::new(store.namespace(), model).named(name)).arg(0).arg(-1).arg("WITHSCORES");
    let value = store.command(model, &command).await?;
    redis::from_redis_value(value).map(Some).map_err(|why| CallError::Unknown(why.to_string()))
}
