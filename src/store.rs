//! The shared state: Redis, or the pure model in this process. Callers see one type and one kind of error.

mod breaker;
mod connect;
mod error;
mod link;
mod memory;
mod read;
mod redis;

use std::sync::Arc;
use std::time::Duration;

use crate::config::redis_url::RedisUrl;
use crate::core::id::{ModelName, Namespace};
use crate::keys::ModelKeys;
use crate::scripts::{IndexOp, IndexReply, Operation};
pub use breaker::{Breaker, FAILURES, PROBE_MS};
pub use error::{CallError, ServerError};
pub use link::{Answer, Link};
pub use read::{Journal, Record};

/// The shared state. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    namespace: Namespace,
    backend: Backend,
}

#[derive(Debug, Clone)]
enum Backend {
    Redis(Arc<redis::Redis>),
    Memory(Arc<memory::Memory>),
}

impl Store {
    /// A Redis. Nothing is connected yet: the first call does that.
    ///
    /// `timeout` bounds every call, connecting included (`--redis-timeout-ms`); `pool_size` is the number of pooled
    /// connections per node (`--redis-pool-size`).
    #[must_use]
    pub fn redis(url: RedisUrl, namespace: Namespace, timeout: Duration, pool_size: usize) -> Self {
        Self { namespace, backend: Backend::Redis(Arc::new(redis::Redis::new(url, timeout, pool_size))) }
    }

    /// The pure model in this process: shared by clones of this value, gone with the last one.
    #[must_use]
    pub fn memory(namespace: Namespace) -> Self {
        Self { namespace, backend: Backend::Memory(Arc::default()) }
    }

    /// The namespace of all keys.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether this is a Redis, as opposed to the model in this process.
    #[must_use]
    pub fn is_redis(&self) -> bool {
        matches!(self.backend, Backend::Redis(_))
    }

    /// The budget of a call.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        match &self.backend {
            Backend::Redis(redis) => redis.timeout(),
            Backend::Memory(_) => Duration::from_millis(250),
        }
    }

    /// Where it is, without a password.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.backend {
            Backend::Redis(redis) => redis.connector().url().to_string(),
            Backend::Memory(_) => "in this process".into(),
        }
    }

    /// Runs an operation on a pooled connection, within the budget of a call.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call<O: Operation>(&self, model: &ModelName, op: &O) -> Result<O::Reply, CallError> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.call(model, op)),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                let value = redis.run(redis::slot_of(&keys), &op.invocation(&keys)).await?;
                O::reply(value).map_err(|e| CallError::Unknown(e.to_string()))
            }
        }
    }

    /// Asks the index of models, on a pooled connection.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn index(&self, op: &IndexOp) -> Result<IndexReply, CallError> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.index(op)),
            Backend::Redis(redis) => {
                let invocation = op.invocation(&self.namespace);
                let slot = invocation.keys.first().map_or(0, |key| connect::slot(key));
                op.reply(redis.run(slot, &invocation).await?).map_err(|e| CallError::Unknown(e.to_string()))
            }
        }
    }

    /// An ordered connection for one model's committer. Nothing is connected yet.
    #[must_use]
    pub fn link(&self, model: &ModelName) -> Link {
        match &self.backend {
            Backend::Memory(memory) => Link::memory(memory.clone(), model.clone()),
            Backend::Redis(redis) => Link::redis(redis.clone(), ModelKeys::new(&self.namespace, model)),
        }
    }

    /// Nodes whose breaker is open, by address.
    #[must_use]
    pub fn open_breakers(&self) -> Vec<String> {
        match &self.backend {
            Backend::Redis(redis) => redis.connector().open(),
            Backend::Memory(_) => Vec::new(),
        }
    }
}
