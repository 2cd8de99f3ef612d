//! The in-process store: the pure model of every model's state behind one lock. No Redis, one process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::read::{Journal, Record};
use crate::core::fleet::Fleet;
use crate::core::fleet::shard::{Hash, Key};
use crate::core::id::{ModelName, WorkerId};
use crate::scripts::{IndexOp, IndexReply, Operation};

/// The state of all models.
#[derive(Debug, Default)]
pub(super) struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fleets: HashMap<ModelName, Fleet>,
    index: HashMap<ModelName, u64>,
    created_ms: u64,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn call<O: Operation>(&self, model: &ModelName, op: &O) -> O::Reply {
        op.apply(self.state().fleets.entry(model.clone()).or_default(), now_ms())
    }

    pub(super) fn index(&self, op: &IndexOp) -> IndexReply {
        let mut state = self.state();
        let now_ms = now_ms();
        let mut reply = IndexReply { now_ms, ..IndexReply::default() };
        match op {
            IndexOp::Touch(model) => {
                state.index.insert(model.clone(), now_ms);
            }
            IndexOp::List { retention_ms } => {
                state.index.retain(|_, seen| now_ms.saturating_sub(*seen) < *retention_ms);
                reply.models = state.index.iter().map(|(m, seen)| (m.clone(), *seen)).collect();
                reply.models.sort();
            }
            IndexOp::Meta => {
                if state.created_ms == 0 {
                    state.created_ms = now_ms;
                }
                reply.created_ms = state.created_ms;
                reply.schema = 1;
            }
        }
        reply
    }

    pub(super) fn worker(&self, model: &ModelName, worker: &WorkerId) -> Vec<(String, String)> {
        let state = self.state();
        let key = state.fleets.get(model).and_then(|fleet| fleet.shard.worker.get(worker.as_str()));
        pairs(key.map(|key| &key.hash))
    }

    pub(super) fn hash(&self, model: &ModelName, name: &str) -> Vec<(String, String)> {
        let state = self.state();
        let hashes = state.fleets.get(model).map(|fleet| fleet.shard.hashes());
        pairs(hashes.into_iter().flatten().find(|(known, _)| *known == name).map(|(_, key)| key))
    }

    pub(super) fn journal(&self, model: &ModelName, which: Journal, count: usize) -> Vec<Record> {
        let state = self.state();
        let journals = state.fleets.get(model).map(|fleet| fleet.shard.journals());
        let key = journals.into_iter().flatten().find(|(name, _)| *name == which.name()).map(|(_, key)| key);
        let Some(Ok(journal)) = key.map(Key::read) else { return Vec::new() };
        let newest = journal.0.iter().enumerate().rev().take(count);
        newest.map(|(i, (ms, fields))| Record { id: format!("{ms}-{i}"), fields: fields.clone() }).collect()
    }
}

fn pairs(key: Option<&Key<Hash>>) -> Vec<(String, String)> {
    let hash = key.and_then(|key| key.read().ok());
    hash.into_iter().flatten().map(|(field, text)| (field.clone(), text.clone())).collect()
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
