//! Invariant 4: no key without an owner. Each belongs to a live worker, a known frontend or the model, or has a TTL.

use std::collections::BTreeSet;

use super::Violation;

/// A key of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Behind `P:`, such as `stats` or `worker:w1`.
    pub name: String,
    /// It goes by itself.
    pub has_ttl: bool,
}

/// The keys of a model and those they can belong to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owners {
    /// Every key.
    pub keys: Vec<Key>,
    /// The names that the model itself owns (`crate::keys::SHARD`).
    pub shard: BTreeSet<String>,
    /// Members of `P:workers` and fields of `P:gate`.
    pub workers: BTreeSet<String>,
    /// Members of `P:frontends` and fields of `P:seq`.
    pub frontends: BTreeSet<String>,
}

pub(super) fn check(owners: &Owners) -> Vec<Violation> {
    let orphans = owners.keys.iter().filter(|key| !owned(owners, key));
    let message = "the key has no owner and no TTL";
    orphans.map(|key| Violation::new(4, "key without an owner", &key.name, message)).collect()
}

fn owned(owners: &Owners, key: &Key) -> bool {
    key.has_ttl
        || owners.shard.contains(&key.name)
        || key.name.strip_prefix("worker:").is_some_and(|worker| owners.workers.contains(worker))
        || key.name.strip_prefix("leases:").is_some_and(|frontend| owners.frontends.contains(frontend))
}
