//! When a worker is busy (design section 3.1), row by row: the rows of the reference's table that are kept, P1 to P15.
//! A row sets the thresholds, posts load figures to the sidecar, and looks at the flag and at the answer to a request.

use serde_json::{Value, json};

use crate::harness::{Fleet, Process, Script, Stub, chat, eventually, post, publish, thresholds};

const FIELDS: [&str; 3] =
    ["active_decode_blocks_threshold", "active_prefill_tokens_threshold", "active_prefill_tokens_threshold_frac"];

struct Bench {
    fleet: Fleet,
    frontend: Process,
    worker: Process,
    engine: Stub,
}

impl Bench {
    async fn start(worker: &[&str]) -> Self {
        let fleet = Fleet::new();
        let engine = Stub::start().await;
        let worker = fleet.worker("w1", &engine, worker).await;
        let frontend = fleet.frontend(&[]).await;
        Self { fleet, frontend, worker, engine }
    }

    /// Sets exactly these thresholds.
    async fn set(&self, wanted: &Value) {
        let unset: Vec<&str> = FIELDS.into_iter().filter(|field| wanted.get(*field).is_none()).collect();
        let mut body = wanted.clone();
        body["model"] = json!("m");
        body["unset"] = json!(unset);
        let answer = thresholds(&self.frontend, &body).await;
        for field in FIELDS {
            let wanted = wanted.get(field).unwrap_or(&Value::Null);
            assert_eq!(answer[field].as_f64(), wanted.as_f64(), "{field}: {answer}");
        }
    }

    /// Posts figures and checks what comes of it.
    async fn check(&self, row: &str, figures: &[Value], busy: bool) {
        for figure in figures {
            publish(&self.worker, figure).await;
        }
        assert_eq!(self.fleet.is_busy("w1").await, busy, "{row}: the flag");
        let answer = chat(self.frontend.address(), "m").await;
        assert_eq!(answer.status, if busy { 529 } else { 200 }, "{row}: {}", answer.text());
        if busy {
            assert_eq!(answer.reason(), "all_workers_busy", "{row}");
        }
    }
}

fn blocks(active: u64, total: u64) -> Value {
    json!({"dp_rank": 0, "active_decode_blocks": active, "kv_total_blocks": total})
}

fn prefill(tokens: u64) -> Value {
    json!({"dp_rank": 0, "active_prefill_tokens": tokens})
}

#[tokio::test(flavor = "multi_thread")]
async fn decode_blocks() {
    let bench = Bench::start(&[]).await;
    bench.set(&json!({"active_decode_blocks_threshold": 0.6})).await;
    bench.check("P1, P2, P3: 90 of 100 over 0.6", &[blocks(90, 100)], true).await;
    bench.check("P10 without a latch: 10 of 100 frees at once", &[blocks(10, 100)], false).await;
    bench.check("exactly the threshold is not over it", &[blocks(60, 100)], false).await;
    bench.check("just over", &[blocks(61, 100)], true).await;
    bench.check("a total of 0 cannot be divided by", &[blocks(90, 0)], false).await;
    bench.check("busy again", &[blocks(90, 100)], true).await;

    bench.set(&json!({"active_decode_blocks_threshold": 0.0})).await;
    bench.check("0 of 100 over 0", &[blocks(0, 100)], false).await;
    bench.check("1 of 100 over 0", &[blocks(1, 100)], true).await;
    bench.set(&json!({"active_decode_blocks_threshold": 1.0})).await;
    bench.check("100 of 100 over 1", &[blocks(100, 100)], false).await;
    bench.check("101 of 100 over 1", &[blocks(101, 100)], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p4_nothing_set_is_never_busy() {
    let bench = Bench::start(&[]).await;
    let mut all = blocks(100, 100);
    all["active_prefill_tokens"] = json!(50_000_000);
    all["max_num_batched_tokens"] = json!(1);
    bench.check("P4", &[all], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prefill_tokens() {
    let bench = Bench::start(&[]).await;
    let mut with_size = prefill(5_000);
    with_size["max_num_batched_tokens"] = json!(1_000);

    bench.set(&json!({"active_decode_blocks_threshold": 0.6})).await;
    bench.check("P5: only decode is set", std::slice::from_ref(&with_size), false).await;

    bench.set(&json!({"active_prefill_tokens_threshold": 9_007_199_254_740_991_u64})).await;
    bench.check("P6: only the absolute one is set", &[blocks(90, 100)], false).await;
    bench.set(&json!({"active_prefill_tokens_threshold_frac": 20.0})).await;
    bench.check("P6: only the fraction is set", &[blocks(90, 100)], false).await;

    bench.set(&json!({"active_prefill_tokens_threshold": 1_000})).await;
    bench.check("P7: 5000 over 1000", &[prefill(5_000)], true).await;
    bench.check("exactly the threshold", &[prefill(1_000)], false).await;
    bench.check("one more", &[prefill(1_001)], true).await;

    bench.set(&json!({"active_prefill_tokens_threshold_frac": 2.0})).await;
    bench.check("P8: 2500 over 2.0 of 1000", &[prefill(2_500)], true).await;
    bench.check("2000 over 2.0 of 1000", &[prefill(2_000)], false).await;
    bench.check("no truncation: 2001", &[prefill(2_001)], true).await;
    bench.set(&json!({"active_prefill_tokens_threshold_frac": 0.0015})).await;
    bench.check("no truncation: 2 over 1.5", &[prefill(2)], true).await;
    bench.check("no truncation: 1 over 1.5", &[prefill(1)], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p8_a_missing_batch_size_keeps_the_fraction_from_firing() {
    let bench = Bench::start(&[]).await;
    bench.set(&json!({"active_prefill_tokens_threshold_frac": 0.0})).await;
    bench.check("no max_num_batched_tokens was ever named", &[prefill(50_000_000)], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn either_check_is_enough() {
    let bench = Bench::start(&[]).await;
    bench.set(&json!({"active_decode_blocks_threshold": 0.6, "active_prefill_tokens_threshold": 1_000})).await;
    bench.check("decode alone", &[blocks(90, 100), prefill(0)], true).await;
    bench.check("prefill alone", &[blocks(10, 100), prefill(5_000)], true).await;
    bench
        .check(
            "P11: both fall in one report",
            &[json!({"active_decode_blocks": 10, "active_prefill_tokens": 0})],
            false,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p13_what_a_report_leaves_out_stays_and_zero_is_a_value() {
    let bench = Bench::start(&[]).await;
    bench.set(&json!({"active_decode_blocks_threshold": 0.6, "active_prefill_tokens_threshold": 100})).await;
    bench
        .check(
            "both",
            &[json!({"active_decode_blocks": 10, "kv_total_blocks": 100, "active_prefill_tokens": 123})],
            true,
        )
        .await;
    bench.check("prefill left out", &[json!({"active_decode_blocks": 11})], true).await;
    bench.check("prefill is 0", &[prefill(0)], false).await;
    bench.check("the capacity was named before", &[json!({"active_decode_blocks": 61})], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p9_every_declared_rank_must_be_busy() {
    let bench = Bench::start(&["--data-parallel-size", "2"]).await;
    let rank =
        |rank: u32, active: u64| json!({"dp_rank": rank, "active_decode_blocks": active, "kv_total_blocks": 100});
    bench.set(&json!({"active_decode_blocks_threshold": 0.6})).await;
    bench.check("rank 1 is silent", &[rank(0, 90)], false).await;
    bench.check("both are busy", &[rank(0, 90), rank(1, 90)], true).await;
    bench.check("rank 0 is free", &[rank(0, 10)], false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p12_only_declared_ranks_count_and_a_new_declaration_forgets_the_others() {
    let bench = Bench::start(&["--data-parallel-start-rank", "2", "--data-parallel-size", "2"]).await;
    let rank =
        |rank: u32, active: u64| json!({"dp_rank": rank, "active_decode_blocks": active, "kv_total_blocks": 100});
    bench.set(&json!({"active_decode_blocks_threshold": 0.6})).await;
    bench.check("ranks 2 and 3", &[rank(2, 90), rank(3, 90)], true).await;
    for wrong in [0, 1, 4] {
        let answer = post(bench.worker.address(), "/load", &rank(wrong, 1)).await;
        assert!((400..500).contains(&answer.status), "rank {wrong}: {}", answer.status);
        assert!(answer.text().contains("dp_rank"), "{}", answer.text());
    }
    let answer = post(bench.worker.address(), "/load", &json!({"active_decode_blocks": 1})).await;
    assert!((400..500).contains(&answer.status), "no rank, and several there are: {}", answer.status);
    assert!(bench.fleet.is_busy("w1").await, "refused reports changed nothing");

    // The same worker comes back with other ranks.
    let Bench { fleet, frontend, worker, engine } = bench;
    drop(worker);
    let worker = fleet.start_worker(fleet.redis.url(), "m", "w1", &engine.url(), &["--data-parallel-start-rank", "3"]);
    let worker = worker.listening().await;
    eventually("it has registered anew", async || {
        fleet.worker_hash("w1").await.get("data_parallel_start_rank").is_some_and(|start| start == "3")
    })
    .await;
    let hash = fleet.worker_hash("w1").await;
    assert!(!hash.keys().any(|field| field.starts_with("2.")), "{hash:?}");
    assert!(!fleet.is_busy("w1").await, "a new declaration starts without figures");
    publish(&worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
    assert!(fleet.is_busy("w1").await, "rank 3 alone is all there is");
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
}

#[tokio::test(flavor = "multi_thread")]
async fn p15_each_worker_is_judged_by_its_own_figures() {
    let bench = Bench::start(&[]).await;
    let engine = Stub::start().await;
    let second = bench.fleet.worker("w2", &engine, &[]).await;
    bench.set(&json!({"active_prefill_tokens_threshold": 5_000})).await;
    publish(&bench.worker, &prefill(300_000)).await;
    publish(&second, &prefill(100)).await;
    let busy: Vec<String> = bench.fleet.redis.command(&["SMEMBERS", &bench.fleet.keys().named("busy")]).await;
    assert_eq!(busy, ["w1"]);
    for _ in 0..6 {
        let answer = chat(bench.frontend.address(), "m").await;
        assert_eq!((answer.status, answer.worker()), (200, Some("w2")), "R2: always the free one");
    }
    publish(&second, &prefill(5_001)).await;
    assert_eq!(chat(bench.frontend.address(), "m").await.status, 529, "R1");
}

/// An engine that exports nothing: the sidecar counts the prompts that wait for their first byte.
#[tokio::test(flavor = "multi_thread")]
async fn prompts_without_a_first_byte_are_counted_by_the_sidecar() {
    let bench = Bench::start(&[]).await;
    bench.set(&json!({"active_prefill_tokens_threshold": 100})).await;
    bench.engine.script(Script::held_stream());
    bench.engine.next(Script::hold());
    let address = bench.frontend.address();
    let long = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(4_000)}]});
    let held = tokio::spawn(async move { post(address, "/v1/chat/completions", &long).await });
    eventually("1,000 tokens in prefill are over 100", async || bench.fleet.is_busy("w1").await).await;
    assert_eq!(chat(address, "m").await.reason(), "all_workers_busy");
    bench.engine.open();
    assert_eq!(held.await.unwrap().status, 200);
    eventually("prefill is over", async || !bench.fleet.is_busy("w1").await).await;
    assert_eq!(chat(address, "m").await.status, 200);
}
