//! Stale load, and last writer wins.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Crowd, Fleet, Script, Signal, Stub, chat, chat_body, eventually, get, holds_for, metric, post, publish, thresholds,
    with_status,
};

#[tokio::test(flavor = "multi_thread")]
async fn f023_a_signal_that_is_no_longer_sent_ages_out() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&["--load-ttl-ms", "1000"]).await;
    let set = json!({"model": "m", "active_decode_blocks_threshold": 0.8, "active_prefill_tokens_threshold": 1000});
    thresholds(&frontend, &set).await;
    eventually("the short time is in force", async || fleet.applied("load_ttl_ms").await.as_deref() == Some("1000"))
        .await;
    publish(&worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100, "active_prefill_tokens": 5000})).await;
    assert!(fleet.is_busy("w1").await);
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
    eventually("only the blocks are reported, and they are low", async || {
        publish(&worker, &json!({"active_decode_blocks": 10})).await;
        !fleet.is_busy("w1").await
    })
    .await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
}

/// The same without any report of load at all: the sweep notices, with no event from anyone.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_engine_does_not_stay_busy() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&["--load-ttl-ms", "1000"]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.8})).await;
    publish(&worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
    eventually("free again", async || chat(frontend.address(), "m").await.status == 200).await;
    assert!(!fleet.is_busy("w1").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn f025_a_frozen_idle_worker_gets_nothing() {
    let fleet = Fleet::new();
    let (idle, two, three) = (Stub::start().await, Stub::start().await, Stub::start().await);
    let frozen = fleet.worker("w1", &idle, &[]).await;
    let second = fleet.worker("w2", &two, &[]).await;
    let third = fleet.worker("w3", &three, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.8})).await;
    publish(&frozen, &json!({"active_decode_blocks": 0, "kv_total_blocks": 100})).await;
    frozen.signal(Signal::STOP);
    eventually("w1 is not alive", async || {
        let gate = fleet.hash("gate").await;
        gate.get("w1").is_none_or(|entry| entry.split('|').nth(2).is_some_and(|closed| closed.contains('x')))
    })
    .await;
    for worker in [&second, &third] {
        publish(worker, &json!({"active_decode_blocks": 60, "kv_total_blocks": 100})).await;
    }
    for _ in 0..300 {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
    }
    assert_eq!((idle.count(), two.count() + three.count()), (0, 300));
    frozen.signal(Signal::CONT);
    eventually("w1 is back", async || {
        chat(frontend.address(), "m").await;
        idle.count() > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f026_a_frozen_only_worker_is_503_and_back_at_once() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    worker.signal(Signal::STOP);
    // Requests of the first seconds lie in the frozen process and are served when it wakes up.
    let early = Crowd::start(&[frontend.address()], 3, &chat_body("m")).await;
    let alive = fleet.keys().named("workers");
    eventually("not alive any more", async || {
        fleet.redis.command::<Option<String>>(&["ZSCORE", &alive, "w1"]).await.is_none()
    })
    .await;
    for _ in 0..10 {
        let answer = chat(frontend.address(), "m").await;
        assert_eq!((answer.status, answer.reason().as_str()), (503, "no_workers"));
    }
    worker.signal(Signal::CONT);
    eventually("served again", async || chat(frontend.address(), "m").await.status == 200).await;
    assert_eq!(with_status(&early.finish().await, 200), 3);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f027_a_dead_sensor_is_shown_and_the_hard_cap_holds() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let worker = fleet.worker("w1", &engine, &["--engine-request-limit", "2", "--request-queue-limit", "0"]).await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.8})).await;
    publish(&worker, &json!({"active_decode_blocks": 0, "kv_total_blocks": 0})).await;
    let mut crowd = Crowd::start(&[frontend.address()], 10, &chat_body("m")).await;
    crowd.answered(8).await;
    engine.open();
    let answers = crowd.finish().await;
    assert_eq!((with_status(&answers, 200), with_status(&answers, 529)), (2, 8));
    let missing = metric(&worker, "tidegate_worker_missing", &["figure=\"kv_total_blocks\""]).await;
    assert_eq!(missing, Some(1.0), "nobody can see that the check cannot fire");
}

#[tokio::test(flavor = "multi_thread")]
async fn f029_of_two_processes_with_one_id_the_newer_one_counts() {
    let fleet = Fleet::new();
    let (one, two) = (Stub::start().await, Stub::start().await);
    let old = fleet.worker("w1", &one, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.6})).await;
    let before = fleet.worker_hash("w1").await["incarnation"].clone();
    let new = fleet.start_worker(fleet.redis.url(), "m", "w1", &two.url(), &[]).listening().await;
    eventually("the newer one has taken the id", async || fleet.worker_hash("w1").await["incarnation"] != before).await;
    eventually("the older one says so", async || get(old.address(), "/ready").await.status == 503).await;

    publish(&new, &json!({"active_decode_blocks": 161_000, "kv_total_blocks": 162_938})).await;
    holds_for(Duration::from_secs(3), "busy, as the newer one says", async || {
        let stray = json!({"active_decode_blocks": 2_100, "kv_total_blocks": 162_938});
        let stray = post(old.address(), "/load", &stray).await;
        assert!(stray.status >= 400, "the older one's figures were taken: {}", stray.status);
        publish(&new, &json!({"active_decode_blocks": 161_000, "kv_total_blocks": 162_938})).await;
        chat(frontend.address(), "m").await.status == 529
    })
    .await;
    assert_eq!(get(new.address(), "/ready").await.status, 200);
    assert_eq!(one.count() + two.count(), 0);

    drop(new);
    eventually("the older one comes back", async || chat(frontend.address(), "m").await.status == 200).await;
    assert_eq!((one.count(), two.count()), (1, 0));
}
