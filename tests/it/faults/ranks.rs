//! Data-parallel ranks.

use serde_json::{Value, json};

use crate::harness::{Fleet, Stub, chat, publish, thresholds};

fn rank(rank: u32, active: u64) -> Value {
    json!({"dp_rank": rank, "active_decode_blocks": active, "kv_total_blocks": 100})
}

#[tokio::test(flavor = "multi_thread")]
async fn f049_a_worker_is_judged_by_the_ranks_it_declared() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &["--data-parallel-size", "4"]).await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.8})).await;
    for (row, reports, busy) in [
        ("two of four, the others silent", vec![rank(0, 95), rank(1, 95)], false),
        ("all four", vec![rank(0, 95), rank(1, 95), rank(2, 95), rank(3, 95)], true),
        ("the last one is free", vec![rank(3, 10)], false),
    ] {
        for report in reports {
            publish(&worker, &report).await;
        }
        assert_eq!(fleet.is_busy("w1").await, busy, "{row}");
        assert_eq!(chat(frontend.address(), "m").await.status, if busy { 529 } else { 200 }, "{row}");
    }
    let mut refused = fleet.start_worker(fleet.redis.url(), "m", "w2", &engine.url(), &["--data-parallel-size", "0"]);
    assert_eq!(refused.exit_code().await, 2);
    assert!(refused.log().contains("data-parallel-size"), "{}", refused.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn f051_ranks_do_not_leak_into_addresses() {
    let fleet = Fleet::new();
    let (one, two) = (Stub::start().await, Stub::start().await);
    let frontend = fleet.frontend(&["--router-mode", "round-robin"]).await;
    let _first = fleet.worker("w1", &one, &["--data-parallel-size", "2"]).await;
    let _second = fleet.worker("w2", &two, &["--data-parallel-size", "2", "--listen", "[::1]:0"]).await;
    for _ in 0..50 {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
    }
    assert_eq!((one.count(), two.count()), (25, 25));
    for (stub, seen) in [(&one, one.seen()), (&two, two.seen())] {
        for request in seen {
            assert_eq!(request.header("host"), Some(stub.address().to_string()), "the engine's own address");
        }
    }
    for (worker, entry) in fleet.hash("gate").await {
        let url = entry.rsplit('|').next().unwrap();
        let expected = if worker == "w1" { "http://127.0.0.1:" } else { "http://[::1]:" };
        assert!(url.starts_with(expected) && !url.contains('@'), "{worker}: {entry}");
    }
}
