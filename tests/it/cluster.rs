//! A cluster of three primaries and three replicas on loopback: one slot per model, the same promises as on one
//! server, within 5 s of a promotion and after a slot has moved (design section 3.8). Every test owns its servers.

use std::process::Command;
use std::time::Duration;

use tidegate::core::id::{ModelName, WorkerId};
use tidegate::core::op::{Configure, Configured, Drain, Leave, Snapshot, Source, Sweep, Swept};
use tidegate::core::refusal::Reason;
use tidegate::frontend::admission::{Admissions, Ask, Mode};
use tidegate::keys::ModelKeys;
use tidegate::store::{Journal, Store};

use crate::admission::{Beating, admissions, admit, model, store, worker, worker_of};
use crate::harness::{Redis, eventually, eventually_within};

struct Servers {
    nodes: Vec<Redis>,
}

impl Servers {
    async fn start() -> Self {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"];
        let nodes: Vec<Redis> = (0..6).map(|_| Redis::own(&options)).collect();
        let hosts = nodes.iter().map(|n| format!("127.0.0.1:{}", n.server(|s| s.port())));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(hosts)
            .args(["--cluster-replicas", "1", "--cluster-yes"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let all = Self { nodes };
        eventually("the cluster is whole", async || {
            for node in &all.nodes {
                let info: String = node.command(&["CLUSTER", "INFO"]).await;
                let state: String = node.command(&["INFO", "replication"]).await;
                let linked = state.contains("role:master") || state.contains("master_link_status:up");
                if !info.contains("cluster_state:ok") || !linked {
                    return false;
                }
            }
            true
        })
        .await;
        all
    }

    /// Two of the six: the rest is found out.
    fn store(&self) -> Store {
        let hosts: Vec<_> = self.nodes[..2].iter().map(|n| format!("127.0.0.1:{}", n.server(|s| s.port()))).collect();
        store(&format!("redis+cluster://{}", hosts.join(",")), self.nodes[0].namespace())
    }

    /// Index, id and primary's id of each node that answers, and whether it serves the key.
    async fn nodes(&self, key: &str) -> Vec<Member> {
        let mut all = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Ok(table) = node.try_command::<String>(&["CLUSTER", "NODES"]).await else { continue };
            let slot: u16 = node.command(&["CLUSTER", "KEYSLOT", key]).await;
            let words: Vec<&str> = table.lines().find(|l| l.contains("myself")).unwrap().split(' ').collect();
            let serves = words[8..].iter().filter(|w| !w.starts_with('[')).any(|range| {
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                (from.parse().unwrap()..=to.parse().unwrap()).contains(&slot)
            });
            all.push(Member { index, id: words[0].to_owned(), follows: words[3].to_owned(), serves, slot });
        }
        all
    }

    async fn serving(&self) -> Option<Member> {
        let key = ModelKeys::new(self.nodes[0].namespace(), &model()).named("stats");
        self.nodes(&key).await.into_iter().find(|m| m.serves)
    }

    async fn inflight(&self, worker: &str) -> Option<i64> {
        let keys = ModelKeys::new(self.nodes[0].namespace(), &model());
        let member = self.serving().await?;
        self.nodes[member.index].try_command(&["HGET", &keys.named("inflight"), worker]).await.ok()?
    }
}

#[derive(Debug)]
struct Member {
    index: usize,
    id: String,
    follows: String,
    serves: bool,
    slot: u16,
}

async fn decides(admissions: &Admissions) -> bool {
    admissions.model(&model()).is_some_and(|m| m.live.mode == Mode::Deciding)
        && admit(admissions).await.is_ok_and(|lease| !lease.degraded)
}

/// A fleet with two leases out.
async fn held(servers: &Servers) -> (Beating, Admissions, [tidegate::frontend::admission::Lease; 2]) {
    let store = servers.store();
    let beating = worker(&store, "w", 8).await;
    let admissions = admissions(store);
    let held = [admit(&admissions).await.unwrap(), admit(&admissions).await.unwrap()];
    (beating, admissions, held)
}

async fn recovers(servers: &Servers, admissions: &Admissions) {
    eventually_within(Duration::from_secs(5), "the frontend decides there", async || {
        decides(admissions).await && servers.inflight("w").await == Some(2)
    })
    .await;
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn f068_every_operation_on_models_of_three_slots() {
        let servers = Servers::start().await;
        let store = servers.store();
        let admissions = admissions(store.clone());
        for name in ["m", "org/n", "a b {c}:d"] {
            let model = ModelName::parse(name).unwrap();
            let beating = [worker_of(&store, &model, "w1", 2).await, worker_of(&store, &model, "w2", 2).await];
            let mut leases = Vec::new();
            for _ in 0..4 {
                leases.push(admissions.admit(&model, Ask::default()).await.unwrap());
            }
            let full = admissions.admit(&model, Ask::default()).await.unwrap_err();
            assert_eq!(full.reason, Reason::AtCapacity);
            drop(leases);
            let changes = vec![("max_inflight".to_owned(), Some("3".to_owned()))];
            let set = store.call(&model, &Configure { source: Source::Api, changes }).await.unwrap();
            assert!(matches!(set, Configured::Ok { .. }), "{set:?}");
            let page = store.call(&model, &Snapshot { cursor: "0".into() }).await.unwrap();
            assert_eq!(page.workers.len(), 2);
            let w1 = WorkerId::parse("w1").unwrap();
            let sweep = Sweep { workers: vec![w1.clone()], frontends: Vec::new(), nonce: "1".into() };
            assert_eq!(store.call(&model, &sweep).await.unwrap(), Swept::Done { more: Vec::new() });
            assert!(!store.worker(&model, &w1).await.unwrap().is_empty());
            assert!(!store.hash(&model, "seq").await.unwrap().is_empty());
            assert_eq!(store.journal(&model, Journal::History, 5).await.unwrap().len(), 1);
            let row = page.workers.into_iter().find(|row| row.worker == w1).unwrap();
            let incarnation = row.incarnation;
            drop(beating);
            store
                .call(&model, &Drain { worker: w1.clone(), incarnation: incarnation.clone(), on: true })
                .await
                .unwrap();
            store.call(&model, &Leave { worker: w1, incarnation }).await.unwrap();
        }
        assert!(store.warnings().await.unwrap().iter().any(|w| w.contains("min-replicas-to-write")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_replica_takes_over_and_the_old_primary_lives_on() {
        let servers = Servers::start().await;
        let (_beating, admissions, held) = held(&servers).await;
        for _ in 0..2 {
            let old = servers.serving().await.unwrap();
            let all = servers.nodes("x").await;
            let replica = all.iter().find(|m| m.follows == old.id).unwrap();
            eventually("the replica takes over", async || {
                let node = &servers.nodes[replica.index];
                let _ = node.try_command::<()>(&["CLUSTER", "FAILOVER"]).await;
                servers.serving().await.is_some_and(|m| m.index == replica.index)
            })
            .await;
            recovers(&servers, &admissions).await;
        }
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_killed_primary_is_replaced() {
        let servers = Servers::start().await;
        let (_beating, admissions, held) = held(&servers).await;
        let old = servers.serving().await.unwrap();
        servers.nodes[old.index].server(|s| s.stop());
        eventually("a replica takes over", async || servers.serving().await.is_some()).await;
        recovers(&servers, &admissions).await;
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_slot_moves_under_load() {
        let servers = Servers::start().await;
        let (_beating, admissions, held) = held(&servers).await;
        let from = servers.serving().await.unwrap();
        let all = servers.nodes("x").await;
        let to = all.iter().find(|m| m.follows == "-" && m.index != from.index).unwrap();
        let (source, target, slot) = (&servers.nodes[from.index], &servers.nodes[to.index], from.slot.to_string());
        target.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.id]).await;
        source.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.id]).await;
        let port = target.server(|s| s.port()).to_string();
        loop {
            let keys: Vec<String> = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1"]).await;
            let Some(key) = keys.first() else { break };
            source.command::<()>(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await;
            if let Err(refusal) = admit(&admissions).await {
                assert_eq!(refusal.reason, Reason::StoreUnavailable);
            }
        }
        for member in all.iter().filter(|m| m.follows == "-") {
            servers.nodes[member.index].command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to.id]).await;
        }
        recovers(&servers, &admissions).await;
        assert_eq!(servers.serving().await.unwrap().index, to.index);
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
    }
}
