//! A primary, two replicas and three Sentinels on loopback: the same promises as on one server, within 5 s of a
//! promotion (design section 3.8). Every test owns its servers.

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tidegate::core::refusal::Reason;
use tidegate::frontend::admission::{Admissions, Mode};
use tidegate::keys::ModelKeys;
use tidegate::redis_server::Child;
use tidegate::store::Store;

use crate::admission::{admissions, admit, model, store, worker};
use crate::harness::{Redis, Signal, eventually, eventually_within};

/// One Sentinel.
struct Sentinel {
    port: u16,
    _child: Child,
    _folder: tempfile::TempDir,
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("sentinel.conf");
        // A port that is taken by then is chosen again.
        for _ in 0..20 {
            let port = rand::random_range(14_000..32_000);
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {primary} 2\n\
                 sentinel down-after-milliseconds mymaster 700\nsentinel failover-timeout mymaster 4000\n",
                folder.path().display()
            );
            std::fs::write(&conf, text).unwrap();
            let log = std::fs::File::create(folder.path().join("log")).unwrap();
            let arguments = [conf.clone().into_os_string(), OsString::from("--sentinel")];
            let mut child = Child::start(Path::new("redis-server"), &arguments, &[], log).unwrap();
            for _ in 0..500 {
                if child.exited().is_some() {
                    break;
                }
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self { port, _child: child, _folder: folder };
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("no Sentinel came up");
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?;
        let config = redis::AsyncConnectionConfig::new();
        let mut conn = client.get_multiplexed_async_connection_with_config(&config).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg(words).query_async(&mut conn).await
    }
}

struct Servers {
    nodes: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

impl Servers {
    /// Ready for a failover.
    async fn start() -> Self {
        let primary = Redis::own(&[]);
        let port = primary.server(|s| s.port());
        let follow = ["--replicaof", "127.0.0.1", &port.to_string(), "--repl-diskless-sync-delay", "0"];
        let nodes = vec![primary, Redis::own(&follow), Redis::own(&follow)];
        let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(port)).collect();
        let all = Self { nodes, sentinels };
        eventually("replicas and Sentinels know each other", async || {
            for sentinel in &all.sentinels {
                let known: Result<redis::Value, _> = sentinel.ask(&["ckquorum", "mymaster"]).await;
                let replicas: Result<Vec<redis::Value>, _> = sentinel.ask(&["replicas", "mymaster"]).await;
                let others: Result<Vec<redis::Value>, _> = sentinel.ask(&["sentinels", "mymaster"]).await;
                if known.is_err() || replicas.map_or(0, |r| r.len()) < 2 || others.map_or(0, |o| o.len()) < 2 {
                    return false;
                }
            }
            for replica in &all.nodes[1..] {
                let info: String = replica.command(&["INFO", "replication"]).await;
                if !info.contains("master_link_status:up") {
                    return false;
                }
            }
            true
        })
        .await;
        all
    }

    fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        format!("redis+sentinel://{}/mymaster/0", hosts.join(","))
    }

    fn store(&self) -> Store {
        store(&self.url(), self.nodes[0].namespace())
    }

    /// The node that says it is the primary and is named as such by the Sentinels.
    async fn primary(&self) -> Option<&Redis> {
        let (_, port): (String, u16) = self.sentinels[0].ask(&["get-master-addr-by-name", "mymaster"]).await.ok()?;
        let node = self.nodes.iter().find(|n| n.server(|s| s.port()) == port)?;
        let info: String = node.try_command(&["INFO", "replication"]).await.ok()?;
        info.contains("role:master").then_some(node)
    }

    async fn inflight(&self, worker: &str) -> Option<i64> {
        let keys = ModelKeys::new(self.nodes[0].namespace(), &model());
        self.primary().await?.try_command(&["HGET", &keys.named("inflight"), worker]).await.ok()?
    }
}

async fn decides(admissions: &Admissions) -> bool {
    admissions.model(&model()).is_some_and(|m| m.live.mode == Mode::Deciding)
        && admit(admissions).await.is_ok_and(|lease| !lease.degraded)
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn f064_the_old_primary_lives_on_as_a_replica() {
        let servers = Servers::start().await;
        let store = servers.store();
        let _worker = worker(&store, "w", 8).await;
        let admissions = admissions(store.clone());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(admit(&admissions).await.unwrap());
        }
        for round in 1..=2 {
            let old = servers.primary().await.unwrap().server(|s| s.port());
            eventually("a failover begins", async || {
                servers.sentinels[0].ask::<redis::Value>(&["failover", "mymaster"]).await.is_ok()
            })
            .await;
            eventually("another node is the primary", async || {
                // Nobody is told anything but yes and 503 meanwhile.
                if let Err(refusal) = admit(&admissions).await {
                    assert_eq!(refusal.reason, Reason::StoreUnavailable, "round {round}");
                }
                servers.primary().await.is_some_and(|p| p.server(|s| s.port()) != old)
            })
            .await;
            eventually_within(Duration::from_secs(5), "the frontend decides there", async || {
                decides(&admissions).await && servers.inflight("w").await == Some(3)
            })
            .await;
        }
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_killed_primary_is_replaced() {
        let servers = Servers::start().await;
        let store = servers.store();
        let _worker = worker(&store, "w", 8).await;
        let admissions = admissions(store.clone());
        let held = [admit(&admissions).await.unwrap(), admit(&admissions).await.unwrap()];
        servers.nodes[0].server(|s| s.stop());
        eventually("another node is the primary", async || servers.primary().await.is_some()).await;
        eventually_within(Duration::from_secs(5), "the frontend decides there", async || {
            decides(&admissions).await && servers.inflight("w").await == Some(2)
        })
        .await;
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_frozen_primary_is_left() {
        let servers = Servers::start().await;
        let store = servers.store();
        let _worker = worker(&store, "w", 8).await;
        let admissions = admissions(store.clone());
        let held = admit(&admissions).await.unwrap();
        servers.nodes[0].signal(Signal::STOP);
        eventually("another node is the primary", async || servers.primary().await.is_some()).await;
        eventually_within(Duration::from_secs(5), "the frontend decides there", async || {
            decides(&admissions).await && servers.inflight("w").await == Some(1)
        })
        .await;
        servers.nodes[0].signal(Signal::CONT);
        drop(held);
        eventually("all is given back", async || servers.inflight("w").await == Some(0)).await;
        assert!(decides(&admissions).await);
    }
}
