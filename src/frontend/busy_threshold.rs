//! `/busy_threshold`: thresholds of a model, in the shapes of the reference (reference behaviour, section 2.2), plus
//! `max_inflight`, `unset` and `recompute`. The values live in Redis: what one frontend sets, all have.

mod body;
mod report;

use serde_json::Value;
use warp::reply::Response;

pub(super) use body::Change;
use report::thresholds;

use super::answer::Addressee;
use super::snapshot::Snapshot;
use crate::core::id::ModelName;
use crate::core::op::{Configure, Configured, MAX_SWEEP, Source, Sweep};
use crate::core::refusal::Fault;
use crate::http::dialect::json_answer;
use crate::scripts::IndexOp;
use crate::store::{CallError, Store};

/// An answer that is not 200: the reference's `{"error": "…"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) fault: Fault,
    pub(super) message: String,
}

impl Problem {
    fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into() }
    }

    fn store(error: &CallError) -> Self {
        Self::new(Fault::Store, format!("The store cannot be reached: {error}"))
    }
}

/// Answers in the reference's form.
pub(super) fn answer(to: &Addressee, result: Result<Value, Problem>) -> Response {
    match result {
        Ok(value) => to.signed(json_answer(200, value.to_string())),
        Err(Problem { fault, message }) => to.plain_fault(fault, &message),
    }
}

/// `GET`: every model of the fleet.
pub(super) async fn list(store: &Store, retention_ms: u64) -> Result<Value, Problem> {
    let index = store.index(&IndexOp::List { retention_ms }).await.map_err(|e| Problem::store(&e))?;
    let mut all = Vec::with_capacity(index.models.len());
    for (model, _) in index.models {
        all.push(thresholds(&model, &in_force(store, &model).await?));
    }
    all.sort_by(|a, b| a["model"].as_str().cmp(&b["model"].as_str()));
    Ok(serde_json::json!({ "thresholds": all }))
}

/// `POST`: changes a model's thresholds, or only tells them.
pub(super) async fn apply(store: &Store, change: Change) -> Result<Value, Problem> {
    let unknown = |name: &str| {
        let message = format!("Model '{name}' not found. Thresholds can only be set for discovered models.");
        Problem::new(Fault::Model, message)
    };
    let Ok(model) = ModelName::parse(&change.model) else {
        return if change.changes.is_empty() { Ok(report::none(&change.model)) } else { Err(unknown(&change.model)) };
    };
    if change.changes.is_empty() {
        let values = in_force(store, &model).await?;
        recompute_if(change.recompute, store, &model).await?;
        return Ok(thresholds(&model, &values));
    }
    let configure = Configure { source: Source::Api, changes: change.changes };
    match store.call(&model, &configure).await.map_err(|e| Problem::store(&e))? {
        Configured::Ok { applied, .. } => {
            tracing::info!(%model, changes = ?configure.changes, "thresholds changed");
            recompute_if(change.recompute, store, &model).await?;
            Ok(thresholds(&model, &applied))
        }
        Configured::Invalid { field, value } => {
            Err(Problem::new(Fault::Body, format!("{field} is refused, got {value}")))
        }
        Configured::Unknown => Err(unknown(model.as_str())),
    }
}

async fn in_force(store: &Store, model: &ModelName) -> Result<Vec<(String, String)>, Problem> {
    store.hash(model, "config:applied").await.map_err(|e| Problem::store(&e))
}

/// Every worker is judged by the values in force before the answer is given.
async fn recompute_if(wanted: bool, store: &Store, model: &ModelName) -> Result<(), Problem> {
    if !wanted {
        return Ok(());
    }
    let snapshot = Snapshot::fetch(store, model).await.map_err(|e| Problem::store(&e))?;
    let workers: Vec<_> = snapshot.workers.into_keys().collect();
    for part in workers.chunks(MAX_SWEEP) {
        let nonce = format!("{:08x}", rand::random::<u32>());
        let sweep = Sweep { workers: part.to_vec(), frontends: Vec::new(), nonce };
        store.call(model, &sweep).await.map_err(|e| Problem::store(&e))?;
    }
    Ok(())
}
