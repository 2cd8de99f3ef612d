//! The pages that a frontend answers by itself.

use super::rig::{CHAT, JSON, Rig, Worker};
use crate::harness::{Connection, Script, Stub, chat, eventually, get, post, request};
use tidegate::core::id::ModelName;
use tidegate::core::op::FigureKind;
use tidegate::core::refusal::OverloadStatus;
use tidegate::keys::ModelKeys;

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_a_body() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for path in ["/v1/models", "/v1/models/m", "/live", "/ready", "/health", "/busy_threshold", "/v1/models/x", "/x"] {
        let whole = get(rig.address(), path).await;
        let mut client = rig.connect().await;
        client.send(request("HEAD", path, "Connection: close\r\n", b"")).await.unwrap();
        let head = client.head().await.unwrap();
        assert_eq!(head.status, whole.status, "{path}");
        assert_eq!(head.header("content-type"), whole.header("content-type"));
        assert_eq!(head.header("content-length"), whole.header("content-length"), "{path}");
        assert!(client.rest().await.is_empty(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_and_lists() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 2, |_| {}).await;
    assert_eq!(get(rig.address(), "/live").await.json()["status"], "live");
    assert_eq!(get(rig.address(), "/ready").await.json()["status"], "ready");
    let health = get(rig.address(), "/health").await.json();
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["endpoints"], serde_json::json!([stub.url()]));
    assert_eq!(health["instances"][0]["worker_id"], "w1");
    let list = get(rig.address(), "/v1/models").await.json();
    assert_eq!((list["object"].as_str(), list["data"].as_array().map(Vec::len)), (Some("list"), Some(1)));
    assert_eq!(list["data"][0]["object"], "model");
    assert!(list["data"][0]["created"].as_u64().is_some_and(|seconds| seconds > 1_600_000_000));
    let fleet = get(rig.address(), "/fleet").await.json();
    assert_eq!(fleet["models"][0]["workers"][0]["cap"], 2);
    let metrics = get(rig.address(), "/metrics").await;
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4"));
    assert!(metrics.text().contains("process_resident_memory_bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f132_ready_needs_no_workers_and_a_busy_fleet_is_ready() {
    let rig = Rig::bare(|_| {}).await;
    assert_eq!(get(rig.address(), "/ready").await.status, 200);
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let _held = rig.send(super::rig::BODY).await;
    eventually("it is full", async || stub.holding() == 1).await;
    let refused = chat(rig.address(), "m").await;
    assert_eq!((refused.status, refused.reason().as_str()), (529, "at_capacity"));
    assert_eq!(get(rig.address(), "/ready").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn f118_every_refusal_says_when_to_come_back() {
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let rig = Rig::with(&stub, 1, |settings| settings.overload = OverloadStatus::parse(Some("429"))).await;
    let _held = rig.send(super::rig::BODY).await;
    eventually("it is full", async || stub.holding() == 1).await;
    let check = |answer: &crate::harness::Answer| {
        let seconds: u32 = answer.header("retry-after").expect("Retry-After").parse().unwrap();
        let ms: u32 = answer.header("retry-after-ms").expect("retry-after-ms").parse().unwrap();
        assert!((1..=60).contains(&seconds) && ms.div_ceil(1000) == seconds, "{seconds} {ms}");
    };
    for _ in 0..50 {
        let full = chat(rig.address(), "m").await;
        check(&full);
        let json = full.json();
        assert_eq!((full.status, json["code"].as_u64(), json["type"].as_str()), (429, Some(429), Some("Overloaded")));
        assert_eq!(json["message"], "Service temporarily overloaded");
        assert_eq!(json["error"]["revision"].as_u64(), full.revision());
        assert_eq!(full.worker(), None);
    }
    let anthropic = post(rig.address(), "/v1/messages", &crate::harness::chat_body("m")).await;
    check(&anthropic);
    assert_eq!(anthropic.json()["error"]["type"], "overloaded_error");
    assert_eq!(anthropic.json()["type"], "error");
    stub.open();
    let mut client = rig.connect().await;
    client.send(request("POST", CHAT, JSON, super::rig::BODY)).await.unwrap();
    client.answer().await.unwrap();
    rig.shutdown.cancel();
    eventually("it drains", async || match Connection::open(rig.address()).await {
        Ok(mut client) => {
            let _ = client.send(request("POST", CHAT, JSON, super::rig::BODY)).await;
            let Some(answer) = client.answer().await else { return true };
            if answer.status != 503 {
                return false;
            }
            check(&answer);
            assert_eq!((answer.reason().as_str(), answer.header("connection")), ("draining", Some("close")));
            true
        }
        Err(_) => true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_fleet() {
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let mut rig = Rig::bare(|_| {}).await;
    let figures = vec![(FigureKind::ActiveDecodeBlocks, 60), (FigureKind::KvTotalBlocks, 100)];
    rig.add(Worker { figures, cap: 2, ..Worker::new("w1", &stub) }).await;
    let _held = rig.send(super::rig::BODY).await;
    let body = serde_json::json!({
        "model": "m", "active_decode_blocks_threshold": 0.5, "active_prefill_tokens_threshold": 7, "recompute": true,
    });
    eventually("it is held", async || stub.holding() == 1).await;
    assert_eq!(post(rig.address(), "/busy_threshold", &body).await.status, 200);
    let config = ModelKeys::new(rig.redis.namespace(), &ModelName::parse("m").unwrap()).named("config");
    rig.redis.command::<i64>(&["HSET", &config, "max_inflight", "-1"]).await;
    let shows = async |series: &str, value: f64| {
        eventually(&format!("{series} {value}"), async || rig.metric(series).await == value).await;
    };
    let worker = |name: &str| {
        format!("dynamo_frontend_worker_{name}{{dp_rank=\"0\",model=\"m\",worker_id=\"w1\",worker_type=\"decode\"}}")
    };
    shows(&worker("active_decode_blocks"), 60.0).await;
    shows("dynamo_frontend_model_total_kv_blocks{model=\"m\"}", 100.0).await;
    for (state, n) in [("alive", 1.0), ("busy", 1.0), ("free", 0.0)] {
        shows(&format!("tidegate_workers{{model=\"m\",state=\"{state}\"}}"), n).await;
    }
    shows("tidegate_threshold{field=\"active_decode_blocks_threshold\",model=\"m\"}", 0.5).await;
    shows("tidegate_config_refused{field=\"max_inflight\",model=\"m\"}", 1.0).await;
    shows("tidegate_missing_signal{check=\"active_prefill_tokens_threshold\",model=\"m\"}", 1.0).await;
    shows("tidegate_missing_signal{check=\"active_decode_blocks_threshold\",model=\"m\"}", 0.0).await;
    shows("tidegate_inflight{model=\"m\"}", 1.0).await;
    shows("tidegate_frontends{model=\"m\"}", 1.0).await;
    shows("tidegate_ready", 1.0).await;
    assert!(rig.metric("tidegate_revision{model=\"m\"}").await > 1e15);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_do_not_mix() {
    let (one, two) = (Stub::start().await, Stub::start().await);
    let mut rig = Rig::bare(|_| {}).await;
    rig.add(Worker { model: "a", ..Worker::new("w", &one) }).await;
    rig.add(Worker { model: "b", ..Worker::new("w", &two) }).await;
    for _ in 0..10 {
        assert_eq!(chat(rig.address(), "a").await.status, 200);
    }
    assert_eq!((one.count(), two.count()), (10, 0));
}
