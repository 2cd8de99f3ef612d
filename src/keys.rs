//! Every Redis key (design section 4). A model's keys share one hash tag, so one slot.

use crate::core::id::{FrontendId, ModelName, Namespace, WorkerId};

/// Keys of one model, in the order in which every script gets them (`lua/include/shard.lua`).
pub const SHARD: [&str; 17] = [
    "config",
    "config:applied",
    "config:history",
    "workers",
    "gate",
    "busy",
    "eligible",
    "inflight",
    "reserved",
    "route",
    "skips",
    "due",
    "frontends",
    "seq",
    "load",
    "transitions",
    "stats",
];

/// The keys of one model.
#[derive(Debug, Clone)]
pub struct ModelKeys {
    prefix: String,
    shard: Vec<String>,
}

impl ModelKeys {
    /// `<namespace>:{<model>}`, with `%`, `{` and `}` of the model percent-encoded.
    #[must_use]
    pub fn new(namespace: &Namespace, model: &ModelName) -> Self {
        let mut tag = String::with_capacity(model.as_str().len());
        for c in model.as_str().chars() {
            match c {
                '%' => tag.push_str("%25"),
                '{' => tag.push_str("%7B"),
                '}' => tag.push_str("%7D"),
                _ => tag.push(c),
            }
        }
        let prefix = format!("{namespace}:{{{tag}}}");
        let shard = SHARD.iter().map(|name| format!("{prefix}:{name}")).collect();
        Self { prefix, shard }
    }

    /// [`SHARD`], as keys.
    #[must_use]
    pub fn shard(&self) -> &[String] {
        &self.shard
    }

    /// One of [`SHARD`].
    #[must_use]
    pub fn named(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    /// `P:worker:<id>`.
    #[must_use]
    pub fn worker(&self, worker: &WorkerId) -> String {
        format!("{}:worker:{worker}", self.prefix)
    }

    /// `P:leases:<frontend>`.
    #[must_use]
    pub fn leases(&self, frontend: &FrontendId) -> String {
        format!("{}:leases:{frontend}", self.prefix)
    }
}

/// `<namespace>:models`: the index.
#[must_use]
pub fn models(namespace: &Namespace) -> String {
    format!("{namespace}:models")
}

/// `<namespace>:meta`: the schema and the time of creation.
#[must_use]
pub fn meta(namespace: &Namespace) -> String {
    format!("{namespace}:meta")
}
