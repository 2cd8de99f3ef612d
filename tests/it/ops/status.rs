//! `tidegate status`.

use serde_json::Value;

use super::{Stage, finished};

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_namespace_has_no_model() {
    let stage = Stage::new();
    assert_eq!(stage.json(&["status", "--json"]).await["models"], serde_json::json!([]));
    let (code, text) = stage.run(&["status"]).await;
    assert_eq!(code, 0);
    assert!(text.contains("no model"), "{text}");
    let (code, text) = stage.run(&["status", "--model", "ghost"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("ghost") && text.contains("not known"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_why_a_worker_is_busy_and_what_is_in_flight() {
    let mut stage = Stage::new();
    stage.worker("w1", 90).await;
    stage.worker("w2", 10).await;
    let (code, text) = stage.run(&["thresholds", "set", "--model", "m", "active_decode_blocks_threshold=0.85"]).await;
    assert_eq!(code, 0, "{text}");
    stage.admit(8).await;
    stage.command(&["HSET", &stage.key("config"), "max_inflight", "many"]).await;

    let view = stage.json(&["status", "--json", "--model", "m"]).await;
    let model = &view["models"][0];
    assert_eq!(model["model"], "m");
    assert_eq!(model["in_force"]["active_decode_blocks_threshold"], 0.85);
    assert_eq!(model["in_force"]["max_inflight"], Value::Null);
    assert_eq!(model["pending"]["max_inflight"], "many");
    assert_eq!(model["counters"]["inflight_total"], 6, "w2 has 6 places, w1 is busy");
    assert_eq!(model["counters"]["admitted"], 6);
    assert_eq!(model["counters"]["refused"]["all_workers_busy"], 2);
    assert_eq!(model["summary"]["busy"], 1);
    assert_eq!(model["frontends"][0]["leases"], 6);
    let (w1, w2) = (&model["workers"][0], &model["workers"][1]);
    assert_eq!((&w1["state"], &w1["eligible"]), (&"busy".into(), &false.into()));
    let busy = &w1["ranks"][0]["busy"];
    assert_eq!((&busy["check"], &busy["source"]), (&"decode".into(), &"active_decode_blocks".into()));
    assert_eq!((&busy["value"], &busy["of"], &busy["threshold"]), (&90.into(), &100.into(), &0.85.into()));
    assert!(busy["age_ms"].as_u64().is_some());
    assert_eq!((&w2["state"], &w2["inflight"], &w2["cap"]), (&"full".into(), &6.into(), &6.into()));
    assert!(model["revision"].as_u64() > Some(1_000_000_000_000_000), "{}", model["revision"]);

    let (code, text) = stage.run(&["status"]).await;
    assert_eq!(code, 0);
    for part in ["model m", "6 of 12 places", "w1 rank 0: 90 of 100 KV blocks > 0.85", "f-00000001 (6 leases)"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_not_there_is_named_and_its_password_is_not() {
    let stage = Stage::new();
    let arguments = ["status", "--redis-url", "redis://me:hunter2@127.0.0.1:1/0", "--log", "off"];
    let (code, text) = finished(stage.fleet.process("status", &arguments, &[])).await;
    assert_eq!(code, 1);
    assert!(text.contains("127.0.0.1:1") && !text.contains("hunter2"), "{text}");
}
