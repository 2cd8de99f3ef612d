//! The scripts, called one by one on a real Redis.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use tidegate::core::id::{FrontendId, Incarnation, LeaseId, ModelName, WorkerId};
use tidegate::core::op::*;
use tidegate::keys::ModelKeys;
use tidegate::scripts::Operation;

use crate::harness::{Redis, eventually};

/// One model's keys on a test's Redis, and a frontend that speaks to them.
struct Shard {
    keys: ModelKeys,
    connection: MultiplexedConnection,
    caller: Caller,
    number: u64,
    _redis: Redis,
}

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id).unwrap()
}

fn ask(id: &str) -> Admission {
    Admission { id: LeaseId::parse(id).unwrap(), tokens: 100, pin: None, exclude: Vec::new() }
}

fn registration(id: &str, cap: Option<(u64, u64)>) -> Registration {
    Registration {
        worker: worker(id),
        url: format!("http://127.0.0.1/{id}"),
        data_parallel_start_rank: 0,
        data_parallel_size: 1,
        engine_request_limit: cap.map(|(n, _)| n),
        request_queue_limit: cap.map_or(0, |(_, q)| q),
        kv_block_size: 16,
        draining: false,
        engine_down: false,
        worker_ttl_ms: 5000,
    }
}

impl Shard {
    async fn new() -> Self {
        Self::on(Redis::any()).await
    }

    async fn on(redis: Redis) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        let config = redis::AsyncConnectionConfig::new();
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let caller = Caller {
            frontend: FrontendId::parse("f-1").unwrap(),
            epoch: String::new(),
            seq: 0,
            acked: 0,
            seen: 0,
            mem: false,
            nonce: "n".into(),
        };
        let keys = ModelKeys::new(redis.namespace(), &ModelName::parse("m").unwrap());
        Self { keys, connection, caller, number: 0, _redis: redis }
    }

    async fn call<O: Operation>(&mut self, op: &O) -> O::Reply {
        let call = op.invocation(&self.keys);
        let value = redis::cmd("EVAL")
            .arg(&call.script.text)
            .arg(call.keys.len())
            .arg(&call.keys)
            .arg(&call.args)
            .query_async(&mut self.connection)
            .await
            .unwrap_or_else(|e| panic!("{}: {e}", call.script.name));
        O::reply(value).unwrap()
    }

    fn caller(&mut self) -> Caller {
        self.caller.seq += 1;
        self.caller.clone()
    }

    fn acked(&mut self) {
        self.caller.acked = self.caller.seq;
    }

    async fn join(&mut self) {
        let hello = Hello(self.caller());
        assert!(matches!(self.call(&hello).await, Fenced::Done(_)));
        self.acked();
        let op = Reconcile { caller: self.caller(), first: true, leases: Vec::new() };
        match self.call(&op).await {
            Fenced::Done(Reconciled::Done { epoch, .. }) => self.caller.epoch = epoch,
            other => panic!("{other:?}"),
        }
        self.acked();
        self.caller.mem = true;
    }

    async fn register(&mut self, id: &str, cap: Option<(u64, u64)>) -> Incarnation {
        self.enter(registration(id, cap)).await
    }

    async fn enter(&mut self, registration: Registration) -> Incarnation {
        self.number += 1;
        let op = Register {
            registration,
            nonce: "a".into(),
            incarnation: None,
            known: false,
            yields: false,
            number: self.number,
            figures: Vec::new(),
        };
        match self.call(&op).await {
            Registered::Ok { incarnation } => incarnation,
            other => panic!("{other:?}"),
        }
    }

    async fn report(
        &mut self,
        id: &str,
        cap: Option<(u64, u64)>,
        inc: &Incarnation,
        figures: &[(FigureKind, u64)],
    ) -> bool {
        self.number += 1;
        let op = Report {
            registration: registration(id, cap),
            incarnation: inc.clone(),
            number: self.number,
            room: true,
            figures: figures.iter().map(|(kind, value)| Figure { rank: 0, kind: *kind, value: *value }).collect(),
            nonce: "n".into(),
        };
        match self.call(&op).await {
            Reported::Ok { busy, .. } => busy,
            other => panic!("{other:?}"),
        }
    }

    async fn decide(&mut self, releases: &[&str], admissions: Vec<Admission>) -> Vec<Verdict> {
        let op = Decide {
            caller: self.caller(),
            seed: 7,
            releases: releases.iter().map(|id| LeaseId::parse(id).unwrap()).collect(),
            skips: Vec::new(),
            admissions,
        };
        match self.call(&op).await {
            Fenced::Done(decided) => {
                self.acked();
                decided.verdicts
            }
            other => panic!("{other:?}"),
        }
    }

    async fn hash(&mut self, name: &str) -> BTreeMap<String, String> {
        redis::cmd("HGETALL").arg(self.keys.named(name)).query_async(&mut self.connection).await.unwrap()
    }

    async fn hset(&mut self, name: &str, field: &str, value: &str) {
        let _: () = redis::cmd("HSET")
            .arg(self.keys.named(name))
            .arg(field)
            .arg(value)
            .query_async(&mut self.connection)
            .await
            .unwrap();
    }
}

fn chosen(verdicts: &[Verdict]) -> Vec<String> {
    verdicts
        .iter()
        .map(|v| match v {
            Verdict::Admitted { worker, .. } => worker.to_string(),
            Verdict::Refused { cause, .. } => cause.code().to_owned(),
        })
        .collect()
}

#[tokio::test]
async fn a_worker_takes_its_cap_and_no_more() {
    let mut shard = Shard::new().await;
    let inc = shard.register("w1", Some((1, 1))).await;
    shard.join().await;
    let got = shard.decide(&[], vec![ask("a"), ask("b"), ask("c")]).await;
    assert_eq!(chosen(&got), ["w1", "w1", "at_capacity"]);
    assert_eq!(shard.hash("inflight").await["w1"], "2");
    assert_eq!(shard.hash("stats").await["inflight_total"], "2");
    assert_eq!(shard.hash("leases:f-1").await["a"], format!("w1|{inc}|100"));
    // The same id again: the same lease; an unknown id is nothing; a release lets the next one in.
    let got = shard.decide(&["a", "unknown"], vec![ask("b"), ask("d")]).await;
    assert_eq!(chosen(&got), ["w1", "w1"]);
    let got = shard.decide(&["b", "d", "b"], vec![]).await;
    assert!(got.is_empty());
    assert_eq!(shard.hash("inflight").await["w1"], "0");
    let beat = Heartbeat(shard.caller());
    assert!(matches!(shard.call(&beat).await, Fenced::Done(_)));
}

#[tokio::test]
async fn idle_workers_are_chosen_in_turn_in_every_mode_that_promises_it() {
    let mut shard = Shard::new().await;
    for id in ["w1", "w2", "w3"] {
        shard.register(id, Some((1, 0))).await;
    }
    shard.join().await;
    for mode in ["least-loaded", "round-robin", "kv"] {
        let op = Configure { source: Source::Cli, changes: vec![("router_mode".into(), Some(mode.into()))] };
        assert!(matches!(shard.call(&op).await, Configured::Ok { .. }));
        let sweep =
            Sweep { workers: ["w1", "w2", "w3"].map(worker).to_vec(), frontends: Vec::new(), nonce: "s".into() };
        shard.call(&sweep).await;
        let mut seen = Vec::new();
        for i in 0..6 {
            let id = format!("{mode}{i}");
            seen.extend(chosen(&shard.decide(&[], vec![ask(&id)]).await));
            shard.decide(&[&id], vec![]).await;
        }
        assert_eq!(seen[..3], seen[3..], "{mode}: {seen:?}");
        let mut three = seen[..3].to_vec();
        three.sort();
        assert_eq!(three, ["w1", "w2", "w3"], "{mode}");
    }
}

#[tokio::test]
async fn a_threshold_makes_a_worker_busy_and_its_removal_frees_it() {
    let mut shard = Shard::new().await;
    let inc = shard.register("w1", None).await;
    shard.join().await;
    shard.hset("config", "active_decode_blocks_threshold", "0.57").await;
    let load = |used| [(FigureKind::ActiveDecodeBlocks, used), (FigureKind::KvTotalBlocks, 100)];
    assert!(!shard.report("w1", None, &inc, &load(57)).await);
    assert!(shard.report("w1", None, &inc, &load(58)).await);
    assert_eq!(chosen(&shard.decide(&[], vec![ask("a")]).await), ["all_workers_busy"]);
    assert_eq!(shard.hash("worker:w1").await["busy_reason"], "0:decode 58/100>0.57 active_decode_blocks");
    // A refused value leaves the one in force, and is shown.
    shard.hset("config", "active_decode_blocks_threshold", "85%").await;
    assert!(shard.report("w1", None, &inc, &[]).await);
    let applied = shard.hash("config:applied").await;
    assert_eq!(applied["active_decode_blocks_threshold"], "0.57");
    assert_eq!(applied["error:active_decode_blocks_threshold"], "85%");
    let _: () = redis::cmd("DEL").arg(shard.keys.named("config")).query_async(&mut shard.connection).await.unwrap();
    assert!(!shard.report("w1", None, &inc, &[]).await);
    assert_eq!(chosen(&shard.decide(&[], vec![ask("b")]).await), ["w1"]);
}

#[tokio::test]
async fn a_key_of_a_wrong_type_starts_a_new_epoch() {
    for key in ["gate", "inflight", "workers", "eligible", "seq", "frontends", "stats", "skips", "due", "busy", "route"]
    {
        let mut shard = Shard::new().await;
        let inc = shard.register("w1", Some((4, 0))).await;
        shard.join().await;
        let _: () =
            redis::cmd("SET").arg(shard.keys.named(key)).arg("x").query_async(&mut shard.connection).await.unwrap();
        let before = shard.caller.epoch.clone();
        // Whoever meets it first; the sidecar's report meets all of them.
        shard.number += 1;
        let op = Report {
            registration: registration("w1", Some((4, 0))),
            incarnation: inc.clone(),
            number: shard.number,
            room: true,
            figures: Vec::new(),
            nonce: "n".into(),
        };
        let _ = shard.call(&op).await;
        let beat = Heartbeat(shard.caller());
        let reply = shard.call(&beat).await;
        assert!(matches!(reply, Fenced::Epoch { .. }), "{key}: {reply:?}");
        assert_ne!(shard.hash("stats").await["epoch"], before, "{key}");
        shard.join().await;
        shard.register("w1", Some((4, 0))).await;
    }
}

mod owned {
    use super::*;

    /// Commands that scripts have run since the last `CONFIG RESETSTAT`, by name.
    async fn commands(shard: &mut Shard) -> BTreeMap<String, u64> {
        let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut shard.connection).await.unwrap();
        let calls = info.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        calls.filter(|(name, _)| !["eval", "info", "config|resetstat"].contains(&name.as_str())).collect()
    }

    /// What twenty groups of sixteen admissions and as many releases cost in a fleet of so many workers.
    async fn cost(workers: usize) -> BTreeMap<String, u64> {
        let mut shard = Shard::on(Redis::own(&[])).await;
        for number in 0..workers {
            // None of them expires while the others are entered.
            let forever =
                Registration { worker_ttl_ms: 3_600_000, ..registration(&format!("w{number}"), Some((4, 2))) };
            shard.enter(forever).await;
        }
        shard.join().await;
        // A new epoch's time of grace has rules of its own; it begins anew after a silence.
        eventually("the grace is over", async || {
            let beat = Heartbeat(shard.caller());
            shard.call(&beat).await;
            shard.acked();
            let until: u64 = shard.hash("stats").await["grace_until"].parse().unwrap();
            let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut shard.connection).await.unwrap();
            seconds * 1000 > until
        })
        .await;
        let group = |number: usize| -> Vec<String> { (0..16).map(|place| format!("l-{number}-{place}")).collect() };
        shard.decide(&[], group(0).iter().map(|id| ask(id)).collect()).await;
        let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut shard.connection).await.unwrap();
        for number in 1..=20 {
            let (old, new) = (group(number - 1), group(number));
            let releases: Vec<&str> = old.iter().map(String::as_str).collect();
            let verdicts = shard.decide(&releases, new.iter().map(|id| ask(id)).collect()).await;
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Admitted { .. })));
        }
        commands(&mut shard).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn decide_costs_the_same_commands_in_small_and_large_fleets() {
        // A group touches at most 32 workers, so fewer of them would be cheaper still.
        let (small, large) = (cost(32).await, cost(crate::harness::rounds(2_000, 10_000)).await);
        assert!(!small.is_empty());
        assert_eq!(small, large);
    }
}

/// Anybody can write to the sets that a heartbeat reads names from.
#[tokio::test]
async fn names_that_are_none_of_ours_do_not_stop_a_heartbeat() {
    let mut shard = Shard::new().await;
    let inc = shard.register("w1", Some((4, 0))).await;
    shard.join().await;
    let (due, long) = (shard.keys.named("due"), "x".repeat(300));
    for name in ["", "\u{7}", &long] {
        let _: () = redis::cmd("ZADD").arg(&due).arg(0).arg(name).query_async(&mut shard.connection).await.unwrap();
    }
    let _: () = redis::cmd("ZADD").arg(&due).arg(0).arg(b"\xff").query_async(&mut shard.connection).await.unwrap();
    let _: () = redis::cmd("ZADD").arg(&due).arg(1).arg("w1").query_async(&mut shard.connection).await.unwrap();
    let beat = Heartbeat(shard.caller());
    match shard.call(&beat).await {
        Fenced::Done(pulse) => assert_eq!(pulse.due_workers, [worker("w1")]),
        other => panic!("{other:?}"),
    }
    assert!(!shard.report("w1", Some((4, 0)), &inc, &[]).await);
}
