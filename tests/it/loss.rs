//! Whatever is deleted or damaged in a model's state, by hand or by Redis, is put right without a restart (design
//! sections 3.8 and 10.6). Each case has a fleet of its own: two frontends, two workers, three leases out.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate::core::id::WorkerId;
use tidegate::core::refusal::Reason;
use tidegate::frontend::admission::{Admissions, Lease, Mode};
use tidegate::keys::{ModelKeys, SHARD};
use tidegate::store::Store;

use crate::admission::{Beating, admissions, admit, model, store, worker};
use crate::harness::{Redis, eventually};

/// Twice the 9 s of the design: the machine is busy with all these fleets.
const HEALED: Duration = Duration::from_secs(18);
/// Cap of each of the two workers.
const CAP: usize = 4;

struct Fleet {
    redis: Redis,
    keys: ModelKeys,
    frontends: [Admissions; 2],
    held: Vec<Lease>,
    _workers: [Beating; 2],
}

impl Fleet {
    async fn on(redis: Redis) -> Self {
        let store: Store = store(redis.url(), redis.namespace());
        let workers = [worker(&store, "w1", CAP as u64).await, worker(&store, "w2", CAP as u64).await];
        let frontends = [admissions(store.clone()), admissions(store)];
        let mut held = Vec::new();
        for from in [0, 1, 0] {
            // A busy machine may miss the budget of a call.
            let lease = loop {
                match admit(&frontends[from]).await {
                    Ok(lease) => break lease,
                    Err(refusal) => assert_eq!(refusal.reason, Reason::StoreUnavailable),
                }
            };
            held.push(lease);
        }
        let keys = ModelKeys::new(redis.namespace(), &model());
        let fleet = Self { redis, keys, frontends, held, _workers: workers };
        eventually("both have a snapshot", async || fleet.views().iter().all(|v| v.snapshot.workers.len() == 2)).await;
        fleet
    }

    fn views(&self) -> Vec<tidegate::frontend::admission::ModelView> {
        self.frontends.iter().filter_map(|f| f.model(&model())).collect()
    }

    /// The first frontend's name in Redis.
    fn name(&self) -> String {
        self.views()[0].live.frontend.as_ref().unwrap().to_string()
    }

    /// What `inflight` must be.
    fn expected(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, usize> = [("w1".to_owned(), 0), ("w2".to_owned(), 0)].into();
        for lease in &self.held {
            *all.entry(lease.worker.to_string()).or_default() += 1;
        }
        all.into_iter().map(|(w, n)| (w, n.to_string())).collect()
    }

    async fn is_right(&self) -> bool {
        let deciding = self.views().iter().all(|v| v.live.mode == Mode::Deciding);
        let counts = self.redis.try_command(&["HGETALL", &self.keys.named("inflight")]).await;
        let total = self.redis.try_command(&["HGET", &self.keys.named("stats"), "inflight_total"]).await;
        let sum: Option<String> = total.ok().flatten();
        deciding
            && counts.is_ok_and(|c: BTreeMap<String, String>| c == self.expected())
            && sum == Some(self.held.len().to_string())
    }

    /// It comes right, takes exactly what is free, and ends at 0.
    async fn heals(mut self, what: &str) -> Result<(), String> {
        let end = Instant::now() + HEALED;
        self.comes_right(end).await.map_err(|e| format!("{what}: {e}"))?;
        // What the damage hid, or static mode did not dare to give, is given in the end, and no more than that.
        let end = Instant::now() + HEALED;
        for turn in 0.. {
            match admit(&self.frontends[turn % 2]).await {
                Ok(lease) => self.held.push(lease),
                Err(refusal) if self.held.len() == 2 * CAP && refusal.reason == Reason::AtCapacity => break,
                Err(refusal) if Instant::now() > end => {
                    return Err(format!("{what}: {}, {refusal:?}", self.held.len()));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            if self.held.len() > 2 * CAP {
                return Err(format!("{what}: {} admitted under caps of {}", self.held.len(), 2 * CAP));
            }
        }
        self.held.clear();
        let end = Instant::now() + HEALED;
        self.comes_right(end).await.map_err(|e| format!("{what}: in the end {e}"))
    }

    async fn comes_right(&self, end: Instant) -> Result<(), String> {
        while !self.is_right().await {
            if Instant::now() > end {
                let counts: redis::Value = self.redis.command(&["HGETALL", &self.keys.named("inflight")]).await;
                let modes: Vec<_> = self.views().iter().map(|v| v.live.mode).collect();
                return Err(format!("wrong: {counts:?}, not {:?}; {modes:?}", self.expected()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// All damages: a name, and the commands that do it.
fn damages(keys: &ModelKeys, frontend: &str, lease: &str) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let leases = format!("{}{frontend}", keys.named("leases:"));
    let w1 = keys.worker(&WorkerId::parse("w1").unwrap());
    let mut all: Vec<Vec<String>> = SHARD.iter().map(|key| words(&["DEL", &keys.named(key)])).collect();
    all.extend(SHARD.iter().map(|key| words(&["SET", &keys.named(key), "not of this type"])));
    all.extend([
        words(&["DEL", &leases]),
        words(&["DEL", &w1]),
        words(&["SET", &leases, "x"]),
        words(&["SET", &w1, "x"]),
    ]);
    all.push(words(&["HDEL", &leases, lease]));
    all.push(words(&["HSET", &leases, lease, "garbage"]));
    all.push(words(&["HDEL", &w1, "incarnation"]));
    for field in
        ["epoch", "revision", "born", "heard", "healing_until", "grace_until", "inflight_total", "live", "live_busy"]
    {
        all.push(words(&["HDEL", &keys.named("stats"), field]));
        if field != "epoch" {
            all.push(words(&["HSET", &keys.named("stats"), field, "-5"]));
        }
    }
    for key in ["gate", "inflight", "reserved", "route"] {
        all.push(words(&["HDEL", &keys.named(key), "w1"]));
        all.push(words(&["HSET", &keys.named(key), "w1", "-5"]));
        all.push(words(&["HSET", &keys.named(key), "w1", "garbage"]));
    }
    all.push(words(&["HSET", &keys.named("inflight"), "w1", "99"]));
    all.push(words(&["HSET", &keys.named("inflight"), "nobody", "1"]));
    all.push(words(&["HDEL", &keys.named("seq"), frontend]));
    all.push(words(&["HSET", &keys.named("seq"), frontend, "garbage"]));
    for key in ["workers", "eligible", "skips", "due"] {
        all.push(words(&["ZREM", &keys.named(key), "w1"]));
    }
    all.push(words(&["ZREM", &keys.named("frontends"), frontend]));
    all.push(words(&["SADD", &keys.named("busy"), "w1"]));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn any_damage_to_one_key_or_field_is_put_right() {
    let redis = Redis::any();
    let sample = damages(&ModelKeys::new(redis.namespace(), &model()), "f", "l").len();
    // Some fleets at a time: a test, not a load.
    let all: Vec<usize> = (0..sample).collect();
    let mut failed = Vec::new();
    for part in all.chunks(16) {
        let cases = part.iter().map(|&index| {
            let redis = redis.other_namespace();
            async move {
                let fleet = Fleet::on(redis).await;
                let damage = damages(&fleet.keys, &fleet.name(), fleet.held[0].id().as_str()).swap_remove(index);
                let words: Vec<&str> = damage.iter().map(String::as_str).collect();
                fleet.redis.command::<redis::Value>(&words).await;
                fleet.heals(&damage.join(" ")).await
            }
        });
        failed.extend(futures_util::future::join_all(cases).await.into_iter().filter_map(Result::err));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn f071_an_emptied_and_restarted_server() {
        for what in ["FLUSHALL", "FLUSHDB", "a restart"] {
            let fleet = Fleet::on(Redis::own(&[])).await;
            match what {
                "a restart" => {
                    fleet.redis.server(|s| s.stop());
                    fleet.redis.server(|s| s.resume()).unwrap();
                }
                command => fleet.redis.command::<()>(&[command]).await,
            }
            fleet.heals(what).await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f072_a_restart_from_an_old_dump() {
        let redis = Redis::own(&["--dbfilename", "old.rdb"]);
        let mut fleet = Fleet::on(redis).await;
        fleet.redis.command::<()>(&["SAVE"]).await;
        fleet.held.remove(0);
        fleet.held.push(admit(&fleet.frontends[1]).await.unwrap());
        fleet.held.push(admit(&fleet.frontends[0]).await.unwrap());
        eventually("both are in Redis", async || fleet.is_right().await).await;
        fleet.redis.server(|s| s.stop());
        fleet.redis.server(|s| s.resume()).unwrap();
        fleet.heals("an old dump").await.unwrap();
    }
}
