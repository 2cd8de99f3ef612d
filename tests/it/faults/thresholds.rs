//! Thresholds: unset ones, bad ones, misspelt ones.

use std::net::TcpListener;

use serde_json::json;

use crate::harness::{Fleet, Stub, chat, eventually, get, post, publish, thresholds};

#[tokio::test(flavor = "multi_thread")]
async fn f035_what_nobody_set_does_not_act() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let full = json!({"active_decode_blocks": 100, "kv_total_blocks": 100, "active_prefill_tokens": 50_000_000,
        "max_num_batched_tokens": 1});
    publish(&worker, &full).await;
    for _ in 0..20 {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
    }
    let read = thresholds(&frontend, &json!({"model": "m"})).await;
    for field in
        ["active_decode_blocks_threshold", "active_prefill_tokens_threshold", "active_prefill_tokens_threshold_frac"]
    {
        assert!(read[field].is_null(), "{read}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f037_nan_and_its_like_stop_the_start() {
    let fleet = Fleet::new();
    // Taken by somebody else: a process that opened it before it checked its settings would say so instead.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let bad = ["nan", "NaN", "inf", "-inf", "-0.1", "1.0000001", "1e309", "0x1", "", "0,85", "85%"];
    for value in bad {
        let flag = ["--http-listen", &port, "--active-decode-blocks-threshold", value];
        let variable = [("TIDEGATE_ACTIVE_DECODE_BLOCKS_THRESHOLD", value)];
        for (name, mut process) in [
            ("active-decode-blocks-threshold", fleet.start_frontend(fleet.redis.url(), &flag, &[])),
            (
                "ACTIVE_DECODE_BLOCKS_THRESHOLD",
                fleet.start_frontend(fleet.redis.url(), &["--http-listen", &port], &variable),
            ),
        ] {
            assert_eq!(process.exit_code().await, 2, "{name} {value:?}: {}", process.log());
            let log = process.log();
            assert!(log.contains(name) && log.contains(value), "{value:?}: {log}");
            assert!(!log.contains("panicked") && !log.contains("listening"), "{value:?}: {log}");
        }
    }
    for value in ["0", "1", "0.85", "8.5e-1"] {
        let flag = ["--active-decode-blocks-threshold", value];
        let frontend = fleet.start_frontend(fleet.redis.url(), &flag, &[]).listening().await;
        assert_eq!(get(frontend.address(), "/live").await.status, 200, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f039_a_missing_field_is_unknown_and_not_an_error() {
    let fleet = Fleet::new();
    let (engine, other) = (Stub::start().await, Stub::start().await);
    let worker = fleet.worker("w1", &engine, &["--report-interval-ms", "2000"]).await;
    let busy = fleet.worker("w2", &other, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let set = json!({"model": "m", "active_decode_blocks_threshold": 0.8, "active_prefill_tokens_threshold_frac": 2.0,
        "recompute": true});
    thresholds(&frontend, &set).await;
    let full = json!({"active_decode_blocks": 90, "kv_total_blocks": 100, "active_prefill_tokens": 10,
        "max_num_batched_tokens": 100});
    let key = fleet.keys().worker(&tidegate::core::id::WorkerId::parse("w1").unwrap());
    let fields = ["0.active_decode_blocks", "0.kv_total_blocks", "0.active_prefill_tokens", "0.max_num_batched_tokens"];
    for field in fields {
        publish(&worker, &full).await;
        publish(&busy, &full).await;
        assert!(fleet.is_busy("w1").await && fleet.is_busy("w2").await);
        let gone: i64 = fleet.redis.command(&["HDEL", &key, field, &format!("{field}_ms")]).await;
        assert!(gone > 0, "{field}: {:?}", fleet.worker_hash("w1").await);
        // A partial report makes the worker's flag anew. The sidecar names the capacity it knows in every report, but
        // a signal only when it has been told.
        publish(&worker, &json!({"active_prefill_tokens": 11})).await;
        let known = field != "0.active_decode_blocks";
        assert_eq!(fleet.is_busy("w1").await, known, "{field}");
        assert!(fleet.is_busy("w2").await, "another worker's flag changed with {field}");
        let answer = chat(frontend.address(), "m").await;
        assert_eq!(answer.status, if known { 529 } else { 200 }, "{field}: {}", answer.text());
    }
    fleet.redis.command::<i64>(&["DEL", &key]).await;
    eventually("the next full report brings everything back", async || {
        post(worker.address(), "/load", &full).await.status == 204 && fleet.is_busy("w1").await
    })
    .await;
    for process in [&frontend, &worker] {
        assert!(!process.log().contains("ERR ") && !process.log().contains("panicked"), "{}", process.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f041_a_bad_value_leaves_the_good_one_in_force_and_is_told() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let (first, second) = (fleet.frontend(&[]).await, fleet.frontend(&[]).await);
    let field = "active_decode_blocks_threshold";
    thresholds(&first, &json!({"model": "m", field: 0.5, "recompute": true})).await;
    let figures = json!({"active_decode_blocks": 60, "kv_total_blocks": 100});
    publish(&worker, &figures).await;

    fleet.set_config(field, "{\"active_decode_blocks_threshold\":0.9").await;
    let error = format!("error:{field}");
    eventually("the refusal is told", async || fleet.applied(&error).await.is_some()).await;
    assert_eq!(fleet.applied(field).await.as_deref(), Some("0.5"));
    publish(&worker, &figures).await;
    assert_eq!(chat(first.address(), "m").await.status, 529);

    drop(second);
    let second = fleet.frontend(&[]).await;
    publish(&worker, &figures).await;
    for frontend in [&first, &second] {
        assert_eq!(chat(frontend.address(), "m").await.status, 529);
        assert_eq!(thresholds(frontend, &json!({"model": "m"})).await[field], json!(0.5));
    }

    fleet.set_config(field, "0.7").await;
    eventually("the good value is in force", async || fleet.applied(field).await.as_deref() == Some("0.7")).await;
    assert_eq!(fleet.applied(&error).await, None, "nothing is wrong any more");
    publish(&worker, &figures).await;
    for frontend in [&first, &second] {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
        assert_eq!(thresholds(frontend, &json!({"model": "m"})).await[field], json!(0.7));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f042_a_misspelt_field_is_refused_by_name() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
    for (body, word) in [
        (json!({"model": "m", "busy_threshold": 0.9}), "busy_threshold"),
        (json!({"model": "m", "active_decode_block_threshold": 0.9}), "active_decode_block_threshold"),
        (json!({"model": "m", "active_decode_blocks_threshold": "0.9"}), "active_decode_blocks_threshold"),
        (json!({"Model": "m", "active_decode_blocks_threshold": 0.9}), "Model"),
    ] {
        let answer = post(frontend.address(), "/busy_threshold", &body).await;
        assert_eq!(answer.status, 422, "{body}: {}", answer.text());
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    let read = thresholds(&frontend, &json!({"model": "m"})).await;
    assert_eq!(read["active_decode_blocks_threshold"], json!(0.5));
}
