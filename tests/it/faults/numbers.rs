//! Numbers on their way through Redis and Lua.

use serde_json::json;

use crate::harness::{Fleet, Stub, chat, get, publish, thresholds};

#[tokio::test(flavor = "multi_thread")]
async fn f043_ratios_keep_their_fraction() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    for (threshold, active, total, busy) in [
        (0.85, 85, 100, false),
        (0.85, 86, 100, true),
        (0.85, 8_500_000, 10_000_000, false),
        (0.85, 8_500_001, 10_000_000, true),
        (0.85, 1, 1, true),
        (0.85, 0, 1, false),
        // Products instead of quotients would call these busy.
        (0.57, 57, 100, false),
        (0.29, 29, 100, false),
        (0.29, 30, 100, true),
    ] {
        thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": threshold})).await;
        publish(&worker, &json!({"active_decode_blocks": active, "kv_total_blocks": total})).await;
        let row = format!("{active}/{total} against {threshold}");
        assert_eq!(fleet.is_busy("w1").await, busy, "{row}");
        assert_eq!(chat(frontend.address(), "m").await.status, if busy { 529 } else { 200 }, "{row}");
        let read = thresholds(&frontend, &json!({"model": "m"})).await;
        assert_eq!(read["active_decode_blocks_threshold"], json!(threshold), "the answer keeps the fraction");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f045_large_integers_stay_integers() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let cases = [
        (1_000_000_000_u64, 999_999_999_u64, false),
        (1_000_000_000, 1_000_000_000, false),
        (1_000_000_000, 1_000_000_001, true),
        ((1 << 53) - 2, (1 << 53) - 2, false),
        ((1 << 53) - 2, (1 << 53) - 1, true),
    ];
    for (threshold, tokens, busy) in cases {
        thresholds(&frontend, &json!({"model": "m", "active_prefill_tokens_threshold": threshold})).await;
        publish(&worker, &json!({"active_prefill_tokens": tokens})).await;
        assert_eq!(fleet.is_busy("w1").await, busy, "{tokens} against {threshold}");
        let hash = fleet.worker_hash("w1").await;
        assert_eq!(hash["0.active_prefill_tokens"], tokens.to_string());
        assert_eq!(fleet.applied("active_prefill_tokens_threshold").await, Some(threshold.to_string()));
    }
    thresholds(&frontend, &json!({"model": "m", "unset": ["active_prefill_tokens_threshold"], "recompute": true}))
        .await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    let integer = |text: &str| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let stats = fleet.hash("stats").await;
    for field in ["revision", "inflight_total", "admitted", "released", "fleet_version", "heard", "born"] {
        if let Some(value) = stats.get(field) {
            assert!(integer(value), "{field} = {value}");
        }
    }
    for (worker, count) in fleet.hash("inflight").await {
        assert!(integer(&count), "{worker} = {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f047_nothing_is_divided_by_zero() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let set = json!({"model": "m", "active_decode_blocks_threshold": 0.8, "active_prefill_tokens_threshold_frac": 0.5});
    thresholds(&frontend, &set).await;
    for figures in [
        json!({"active_decode_blocks": 0, "kv_total_blocks": 0}),
        json!({"active_decode_blocks": 5, "kv_total_blocks": 0}),
        json!({"active_prefill_tokens": 10, "max_num_batched_tokens": 0}),
        json!({"active_decode_blocks": 10, "kv_total_blocks": 100, "active_prefill_tokens": 10,
            "max_num_batched_tokens": 100}),
    ] {
        publish(&worker, &figures).await;
        assert_eq!(chat(frontend.address(), "m").await.status, 200, "{figures}");
        for (process, path) in [(&frontend, "/metrics"), (&worker, "/metrics"), (&frontend, "/fleet")] {
            let page = get(process.address(), path).await;
            assert_eq!(page.status, 200);
            let text = page.text().to_lowercase();
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '-' && c != '+');
            for word in words {
                assert!(!["nan", "-nan", "+nan", "inf", "-inf"].contains(&word), "{figures}: {text}");
            }
        }
    }
    publish(&worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
}
