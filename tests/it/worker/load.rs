//! What reaches Redis, from whom.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;

use super::{figure, send};
use crate::harness::{Connection, Fleet, Process, Script, Stub, chat_body, eventually, get, holds_for, post, request};

async fn load(worker: &Process, body: &serde_json::Value) -> u16 {
    post(worker.address(), "/load", body).await.status
}

fn number(hash: &HashMap<String, String>, field: &str) -> Option<u64> {
    hash.get(field).map(|value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_was_answered_204_is_in_redis() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    for n in [0_u64, 1, 999_999_999, 1_000_000_001, (1 << 53) - 1] {
        let body = json!({"active_decode_blocks": n, "kv_total_blocks": n, "active_prefill_tokens": n,
                          "max_num_batched_tokens": n, "dp_rank": 0});
        assert_eq!(load(&worker, &body).await, 204);
        let hash = fleet.worker_hash("w1").await;
        for field in ["active_decode_blocks", "kv_total_blocks", "active_prefill_tokens", "max_num_batched_tokens"] {
            assert_eq!(number(&hash, &format!("0.{field}")), Some(n), "{field}");
        }
    }
    for (body, named) in [
        (json!({"active_decode_block": 5}), "active_decode_block"),
        (json!({"active_decode_blocks": -5}), "active_decode_blocks"),
        (json!({"kv_total_blocks": "5"}), "kv_total_blocks"),
        (json!({"active_prefill_tokens": 1.5}), "active_prefill_tokens"),
        (json!({"max_num_batched_tokens": 1_u64 << 53}), "max_num_batched_tokens"),
        (json!({"dp_rank": 1}), "dp_rank"),
    ] {
        let answer = post(worker.address(), "/load", &body).await;
        assert_eq!(answer.status, 422, "{body}");
        assert!(answer.text().contains(named), "{}", answer.text());
    }
    let hash = fleet.worker_hash("w1").await;
    assert_eq!(number(&hash, "0.active_decode_blocks"), Some((1 << 53) - 1), "nothing of a refused body is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn f049_a_worker_is_busy_when_all_declared_ranks_are() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let flags = ["--data-parallel-size", "4", "--data-parallel-start-rank", "2"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    fleet.set_config("active_decode_blocks_threshold", "0.8").await;
    let publish = async |rank: u32, blocks: u64| {
        let body = json!({"dp_rank": rank, "active_decode_blocks": blocks, "kv_total_blocks": 100});
        assert_eq!(load(&worker, &body).await, 204);
    };
    publish(2, 95).await;
    publish(3, 95).await;
    assert!(!fleet.is_busy("w1").await, "two ranks are silent");
    publish(4, 95).await;
    publish(5, 95).await;
    assert!(fleet.is_busy("w1").await);
    publish(5, 10).await;
    assert!(!fleet.is_busy("w1").await);
    let no_rank = post(worker.address(), "/load", &json!({"active_decode_blocks": 5})).await;
    assert_eq!(no_rank.status, 422);
    assert!(no_rank.text().contains("dp_rank"));
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_ranks_as_a_worker_may_have_fit_into_a_report() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    fleet.set_config("track_output_blocks", "true").await;
    let flags = ["--data-parallel-size", "1024", "--kv-total-blocks", "100", "--max-num-batched-tokens", "5"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    assert_eq!(load(&worker, &json!({"dp_rank": 1023, "active_decode_blocks": 7})).await, 204);
    let hash = fleet.worker_hash("w1").await;
    assert_eq!(number(&hash, "1023.active_decode_blocks"), Some(7));
    assert!((0..1024).all(|rank| number(&hash, &format!("{rank}.kv_total_blocks")) == Some(100)));
}

#[tokio::test(flavor = "multi_thread")]
async fn f023_a_signal_that_is_not_told_any_more_is_not_kept_fresh() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    fleet.set_config("active_prefill_tokens_threshold", "1000").await;
    fleet.set_config("load_ttl_ms", "1000").await;
    assert_eq!(load(&worker, &json!({"active_prefill_tokens": 5000, "kv_total_blocks": 100})).await, 204);
    assert!(fleet.is_busy("w1").await);
    eventually("it is free again", async || {
        assert_eq!(load(&worker, &json!({"active_decode_blocks": 10})).await, 204);
        !fleet.is_busy("w1").await
    })
    .await;
    assert_eq!(number(&fleet.worker_hash("w1").await, "0.kv_total_blocks"), Some(100), "a capacity does not age");
}

#[tokio::test(flavor = "multi_thread")]
async fn prompt_tokens_without_an_answer_are_tracked() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let flags = ["--data-parallel-size", "2", "--report-interval-ms", "50"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    engine.next(Script::held_stream());
    engine.script(Script::hold());
    let prompt = "x".repeat(4_001);
    let ask = |address| {
        let body = json!({"model": "m", "prompt": prompt});
        tokio::spawn(async move { post(address, "/v1/completions", &body).await })
    };
    let streaming = ask(worker.address());
    eventually("the stream has begun", async || engine.holding() == 1).await;
    let silent = ask(worker.address());
    let told = async |rank_0: u64, rank_1: u64| {
        let hash = fleet.worker_hash("w1").await;
        let tracked = |rank: u32| number(&hash, &format!("{rank}.tracked_prefill_tokens"));
        (tracked(0), tracked(1)) == (Some(rank_0), Some(rank_1))
    };
    eventually("1,001 tokens, spread over two ranks", async || told(501, 500).await).await;
    engine.open();
    assert_eq!((silent.await.unwrap().status, streaming.await.unwrap().status), (200, 200));
    eventually("none are left", async || told(0, 0).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_output_is_tracked_when_the_fleet_wants_it() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let flags = ["--kv-block-size", "4", "--report-interval-ms", "50"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    let mut acts: Vec<_> = (0..10).map(|n| Script::event(&format!("{{\"n\":{n}}}"))).collect();
    acts.extend(Script::held_stream().0.split_off(2));
    engine.script(Script::stream(acts));
    let mut client = Connection::open(worker.address()).await.unwrap();
    // 8 bytes of prompt: 2 tokens; with 11 events 13 tokens, 4 blocks of 4.
    let body = json!({"model": "m", "prompt": "12345678"}).to_string();
    client.send(request("POST", "/v1/completions", "", body.as_bytes())).await.unwrap();
    eventually("the stream holds", async || engine.holding() == 1).await;
    let blocks = async || number(&fleet.worker_hash("w1").await, "0.tracked_decode_blocks");
    holds_for(Duration::from_millis(300), "not tracked unless wanted", async || blocks().await.is_none()).await;
    fleet.set_config("track_output_blocks", "true").await;
    eventually("13 tokens in blocks of 4", async || blocks().await == Some(4)).await;
    drop(client);
    eventually("nothing is left", async || blocks().await == Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_page_is_read_rank_by_rank() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let page = |usage: f64| {
        format!(
            "vllm:num_requests_waiting{{engine=\"0\"}} 3.0\nvllm:kv_cache_usage_perc{{engine=\"0\"}} {usage}\n\
             vllm:kv_cache_usage_perc{{engine=\"1\"}} 0.25\n\
             vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"}} 1.0\n\
             vllm:cache_config_info{{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"None\"}} 1.0\n"
        )
    };
    engine.metrics(&page(0.5));
    let flags = ["--engine-metrics", "vllm", "--data-parallel-size", "2", "--report-interval-ms", "50"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    let told = async |blocks: u64| {
        let hash = fleet.worker_hash("w1").await;
        number(&hash, "0.active_decode_blocks") == Some(blocks) && number(&hash, "0.kv_total_blocks") == Some(1_000)
    };
    eventually("half of 1,000", async || told(500).await).await;
    engine.metrics(&page(0.75));
    eventually("three quarters", async || told(750).await).await;
    assert_eq!(number(&fleet.worker_hash("w1").await, "1.kv_total_blocks"), None, "unknown stays unknown");
    assert_eq!(figure(worker.address(), "tidegate_engine_requests_waiting").await, 3.0);
    assert_eq!(figure(worker.address(), "tidegate_worker_missing{figure=\"max_num_batched_tokens\"}").await, 1.0);
    assert_eq!(figure(worker.address(), "tidegate_worker_missing{figure=\"kv_total_blocks\"}").await, 0.0);
    engine.metrics("");
    eventually("it shows", async || figure(worker.address(), "tidegate_worker_scrape_failures_total").await > 0.0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f027_a_dead_sensor_is_shown_and_the_cap_still_holds() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let flags = ["--engine-request-limit", "2", "--request-queue-limit", "0"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    fleet.set_config("active_decode_blocks_threshold", "0.5").await;
    assert_eq!(load(&worker, &json!({"active_decode_blocks": 0, "kv_total_blocks": 0})).await, 204);
    assert!(!fleet.is_busy("w1").await);
    assert_eq!(figure(worker.address(), "tidegate_worker_missing{figure=\"kv_total_blocks\"}").await, 1.0);
    let requests: Vec<_> = (0..10).map(|_| send(worker.address())).collect();
    eventually("eight are refused", async || figure(worker.address(), "dynamo_rejection_request_total").await == 8.0)
        .await;
    engine.open();
    let mut served = 0;
    for request in requests {
        served += usize::from(request.await.unwrap().status == 200);
    }
    assert_eq!(served, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_has_the_references_names_from_the_start() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let page = get(worker.address(), "/metrics").await;
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4"));
    for series in [
        "dynamo_rejection_request_total",
        "dynamo_engine_request",
        "dynamo_request_queue",
        "tidegate_worker_refused_total{reason=\"engine_down\"}",
        "tidegate_worker_reports_total{outcome=\"failed\"}",
    ] {
        assert_eq!(figure(worker.address(), series).await, 0.0);
    }
    assert!(!page.text().to_lowercase().contains("nan"));
}

mod owned {
    use super::*;
    use crate::harness::Redis;

    #[tokio::test(flavor = "multi_thread")]
    async fn without_redis_a_load_is_answered_503_and_requests_are_still_served() {
        let redis = Redis::own(&[]);
        let fleet = Fleet::on(redis.clone());
        let engine = Stub::start().await;
        let worker = fleet.worker("w1", &engine, &[]).await;
        redis.signal(crate::harness::Signal::STOP);
        assert_eq!(load(&worker, &json!({"active_decode_blocks": 5})).await, 503);
        let body = chat_body("m");
        assert_eq!(post(worker.address(), "/v1/chat/completions", &body).await.status, 200);
        redis.signal(crate::harness::Signal::CONT);
        eventually("Redis is back", async || load(&worker, &json!({"active_decode_blocks": 6})).await == 204).await;
        assert_eq!(number(&fleet.worker_hash("w1").await, "0.active_decode_blocks"), Some(6));
    }
}
