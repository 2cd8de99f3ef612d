//! Registration, rivals, restarts, and the way out.

use std::time::Duration;

use serde_json::json;

use super::send;
use crate::harness::{Fleet, Script, Signal, Stub, eventually, get, holds_for, post};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_registers_once_its_engine_has_answered() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.health(503);
    let flags = ["--report-interval-ms", "50"];
    let worker = fleet.start_worker(fleet.redis.url(), "m", "w1", &engine.url(), &flags).listening().await;
    holds_for(Duration::from_millis(400), "it is not registered", async || fleet.worker_hash("w1").await.is_empty())
        .await;
    assert_eq!(get(worker.address(), "/live").await.status, 200);
    let ready = get(worker.address(), "/ready").await;
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &json!("engine_not_seen")));
    assert_eq!(post(worker.address(), "/load", &json!({"active_decode_blocks": 1})).await.status, 503);
    engine.health(404);
    fleet.registered("m", "w1").await;
    eventually("it is ready", async || get(worker.address(), "/ready").await.status == 200).await;
    engine.health(500);
    eventually("Redis knows", async || fleet.worker_hash("w1").await["engine_down"] == "1").await;
    engine.health(200);
    eventually("Redis knows", async || fleet.worker_hash("w1").await["engine_down"] == "0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f029_of_two_processes_with_one_id_the_newer_one_counts() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let old = fleet.worker("w1", &engine, &["--kv-total-blocks", "100"]).await;
    let first = fleet.worker_hash("w1").await["incarnation"].clone();
    fleet.set_config("active_decode_blocks_threshold", "0.6").await;
    let mut new = fleet
        .start_worker(fleet.redis.url(), "m", "w1", &engine.url(), &["--kv-total-blocks", "100"])
        .listening()
        .await;
    eventually("the newer one has it", async || fleet.worker_hash("w1").await["incarnation"] != first).await;
    eventually("and knows it", async || get(new.address(), "/ready").await.status == 200).await;
    for _ in 0..5 {
        assert_eq!(post(new.address(), "/load", &json!({"active_decode_blocks": 99})).await.status, 204);
        let refused = post(old.address(), "/load", &json!({"active_decode_blocks": 1})).await;
        assert_eq!((refused.status, refused.reason().as_str()), (409, "superseded"));
        assert!(fleet.is_busy("w1").await);
    }
    let ready = get(old.address(), "/ready").await;
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &json!("superseded")));
    assert_eq!(get(old.address(), "/live").await.status, 200);
    assert_eq!(old.log().matches("another process has this worker's id").count(), 1, "one line a minute");
    let second = fleet.worker_hash("w1").await["incarnation"].clone();
    new.signal(Signal::TERM);
    assert_eq!(new.exit_code().await, 0, "{}", new.log());
    eventually("the old one comes back", async || get(old.address(), "/ready").await.status == 200).await;
    let third = fleet.worker_hash("w1").await["incarnation"].clone();
    let parts = |incarnation: &str| {
        let (ms, nonce) = incarnation.split_once('-').unwrap();
        (ms.parse::<u64>().unwrap(), nonce.to_owned())
    };
    assert!(parts(&third).0 > parts(&second).0 && parts(&second).0 > parts(&first).0);
    assert_ne!(parts(&third).1, parts(&first).1, "never with its old incarnation");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_that_restarts_at_once_is_another_incarnation() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let mut first = fleet.worker("w1", &engine, &[]).await;
    let before = fleet.worker_hash("w1").await["incarnation"].clone();
    first.signal(Signal::KILL);
    first.exit_code().await;
    let second = fleet.start_worker(fleet.redis.url(), "m", "w1", &engine.url(), &[]).listening().await;
    eventually("it is ready", async || get(second.address(), "/ready").await.status == 200).await;
    let hash = fleet.worker_hash("w1").await;
    assert!(hash["incarnation"] > before);
    assert_eq!(hash["url"], format!("http://{}", second.address()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains_waits_for_what_runs_and_leaves() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::held_stream());
    let flags = ["--engine-request-limit", "1", "--request-queue-limit", "1"];
    let mut worker = fleet.worker("w1", &engine, &flags).await;
    let requests = [send(worker.address()), send(worker.address())];
    eventually("it streams", async || engine.holding() == 1).await;
    worker.signal(Signal::TERM);
    eventually("Redis knows", async || fleet.hash("gate").await["w1"].split('|').nth(2) == Some("d")).await;
    let ready = get(worker.address(), "/ready").await;
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &json!("draining")));
    assert!(worker.runs());
    engine.open();
    for request in requests {
        let answer = request.await.unwrap();
        assert_eq!((answer.status, answer.complete), (200, true), "what was taken is served to its end");
    }
    assert_eq!(worker.exit_code().await, 0, "{}", worker.log());
    assert!(!fleet.hash("gate").await.contains_key("w1"), "it has left");
    let alive: Option<String> = fleet.redis.command(&["ZSCORE", &fleet.keys().named("workers"), "w1"]).await;
    assert_eq!(alive, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_after_its_time() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::stream(vec![crate::harness::Act::Silence]));
    let mut worker = fleet.worker("w1", &engine, &["--drain-seconds", "1"]).await;
    let request = send(worker.address());
    eventually("it streams", async || engine.running() == 1).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit_code().await, 0, "{}", worker.log());
    let answer = request.await.unwrap();
    assert_eq!((answer.status, answer.complete), (200, false), "cut, and not to be taken for whole");
    eventually("the engine is told", async || engine.running() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_id_may_serve_two_models() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let url = engine.url();
    let limit = |n| ["--engine-request-limit", n, "--request-queue-limit", "0"];
    let _a = fleet.start_worker(fleet.redis.url(), "org/a", "pod:1|x", &url, &limit("1")).listening().await;
    let _b = fleet.start_worker(fleet.redis.url(), "{模型}", "pod:1|x", &url, &limit("5")).listening().await;
    for (model, cap) in [("org/a", "1"), ("{模型}", "5")] {
        fleet.registered(model, "pod:1|x").await;
        let key = fleet_keys(&fleet, model).named("gate");
        let gate: String = fleet.redis.command(&["HGET", &key, "pod:1|x"]).await;
        assert_eq!(gate.split('|').nth(1), Some(cap), "{model}");
    }
}

fn fleet_keys(fleet: &Fleet, model: &str) -> tidegate::keys::ModelKeys {
    tidegate::keys::ModelKeys::new(fleet.redis.namespace(), &tidegate::core::id::ModelName::parse(model).unwrap())
}

mod owned {
    use super::*;
    use crate::harness::Redis;

    #[tokio::test(flavor = "multi_thread")]
    async fn after_flushall_a_worker_is_back_as_the_same_incarnation() {
        let redis = Redis::own(&[]);
        let fleet = Fleet::on(redis.clone());
        let engine = Stub::start().await;
        let worker = fleet.worker("w1", &engine, &["--engine-request-limit", "2"]).await;
        assert_eq!(post(worker.address(), "/load", &json!({"kv_total_blocks": 77})).await.status, 204);
        let before = fleet.worker_hash("w1").await["incarnation"].clone();
        redis.command::<String>(&["FLUSHALL"]).await;
        eventually("it is back", async || {
            fleet.worker_hash("w1").await.get("incarnation").is_some_and(|now| *now == before)
        })
        .await;
        eventually("with its capacity", async || {
            fleet.worker_hash("w1").await.get("0.kv_total_blocks").is_some_and(|blocks| blocks == "77")
        })
        .await;
        let index = format!("{}:models", redis.namespace());
        eventually("and its model", async || redis.command::<Option<String>>(&["ZSCORE", &index, "m"]).await.is_some())
            .await;
        assert_eq!(get(worker.address(), "/ready").await.status, 200);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_worker_that_starts_before_redis_registers_when_it_comes() {
        let redis = Redis::own(&[]);
        let fleet = Fleet::on(redis.clone());
        let engine = Stub::start().await;
        redis.signal(Signal::STOP);
        let worker = fleet.start_worker(redis.url(), "m", "w1", &engine.url(), &[]).listening().await;
        holds_for(Duration::from_millis(700), "it is not ready", async || {
            get(worker.address(), "/ready").await.status == 503
        })
        .await;
        assert_eq!(get(worker.address(), "/live").await.status, 200);
        redis.signal(Signal::CONT);
        eventually("it is ready", async || get(worker.address(), "/ready").await.status == 200).await;
        let alive: u64 = redis.command(&["ZCARD", &fleet.keys().named("workers")]).await;
        assert_eq!(alive, 1, "whatever became of the first registration");
    }
}
