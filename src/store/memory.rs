//! The in-process store: the pure model of every model's state behind one lock. No Redis, one process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::read::{Journal, Record};
use crate::core::fleet::Fleet;
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

    pub(super) fn worker(&self, _model: &ModelName, _worker: &WorkerId) -> Vec<(String, String)> {
        Vec::new()
    }

    pub(super) fn hash(&self, _model: &ModelName, _name: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    pub(super) fn journal(&self, _model: &ModelName, _which: Journal, _count: usize) -> Vec<Record> {
        Vec::new()
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
