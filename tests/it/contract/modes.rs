//! Router modes (design section 3.6): each chooses eligible workers only, and keeps its promise over two frontends.

use std::collections::BTreeMap;

use serde_json::json;

use crate::harness::{
    Answer, Connection, Crowd, Fleet, Process, Script, Stub, chat, chat_body, eventually, publish, request, thresholds,
    with_status,
};

const MODES: [&str; 5] = ["round-robin", "random", "power-of-two", "least-loaded", "kv"];

async fn fleet_of(workers: usize, mode: &str, limits: &[&str]) -> (Fleet, Vec<(Stub, Process)>, [Process; 2]) {
    let fleet = Fleet::new();
    let mut all = Vec::new();
    for index in 1..=workers {
        let engine = Stub::start().await;
        let worker = fleet.worker(&format!("w{index}"), &engine, limits).await;
        all.push((engine, worker));
    }
    let flags = ["--router-mode", mode];
    let frontends = [fleet.frontend(&flags).await, fleet.frontend(&flags).await];
    eventually("the mode is in force", async || fleet.applied("router_mode").await.as_deref() == Some(mode)).await;
    (fleet, all, frontends)
}

fn per_worker(answers: &[Answer]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers.iter().filter(|answer| answer.status == 200) {
        *counts.entry(answer.worker().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_chooses_only_eligible_workers() {
    for mode in MODES {
        let (fleet, workers, frontends) = fleet_of(3, mode, &["--engine-request-limit", "4"]).await;
        thresholds(&frontends[0], &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
        publish(&workers[1].1, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
        assert!(fleet.is_busy("w2").await);
        let mut answers = Vec::new();
        for index in 0..30 {
            answers.push(chat(frontends[index % 2].address(), "m").await);
        }
        let counts = per_worker(&answers);
        assert_eq!(with_status(&answers, 200), 30, "{mode}");
        assert!(!counts.contains_key("w2"), "{mode}: {counts:?}");
        assert_eq!(counts.len(), 2, "{mode} never chose one of the free ones: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_is_exact_over_two_frontends() {
    let (_fleet, _workers, frontends) = fleet_of(3, "round-robin", &[]).await;
    let mut order = Vec::new();
    for index in 0..12 {
        order.push(chat(frontends[index % 2].address(), "m").await.worker().unwrap().to_owned());
    }
    for round in order.chunks(3) {
        assert_eq!(round, &order[..3], "{order:?}");
    }
    assert_eq!(order[..3].iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn least_loaded_and_kv_spread_a_burst_evenly() {
    for mode in ["least-loaded", "kv"] {
        let limits = ["--engine-request-limit", "4", "--request-queue-limit", "0"];
        let (fleet, workers, frontends) = fleet_of(3, mode, &limits).await;
        workers.iter().for_each(|(engine, _)| engine.script(Script::hold()));
        let addresses = frontends.each_ref().map(Process::address);
        let crowd = Crowd::start(&addresses, 7, &chat_body("m")).await;
        eventually("all are admitted", async || fleet.inflight_total().await == 7).await;
        let mut counts = Vec::new();
        for worker in ["w1", "w2", "w3"] {
            counts.push(fleet.inflight(worker).await);
        }
        counts.sort_unstable();
        assert_eq!(counts, [2, 2, 3], "{mode}");
        workers.iter().for_each(|(engine, _)| engine.open());
        assert_eq!(with_status(&crowd.finish().await, 200), 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_fleet_is_used_evenly() {
    let (_fleet, _workers, frontends) = fleet_of(4, "least-loaded", &[]).await;
    let mut answers = Vec::new();
    for index in 0..16 {
        answers.push(chat(frontends[index % 2].address(), "m").await);
    }
    let counts = per_worker(&answers);
    assert!(counts.values().all(|count| *count == 4) && counts.len() == 4, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_serves_from_the_named_worker_or_not_at_all() {
    let limits = ["--engine-request-limit", "1", "--request-queue-limit", "0"];
    let (fleet, workers, frontends) = fleet_of(2, "direct", &limits).await;
    let ask = async |worker: &str| {
        let headers = format!("Content-Type: application/json\r\nx-tidegate-worker: {worker}\r\n");
        let body = chat_body("m").to_string();
        let mut client = Connection::open(frontends[0].address()).await.unwrap();
        client.send(request("POST", "/v1/chat/completions", &headers, body.as_bytes())).await.unwrap();
        client.answer().await.unwrap()
    };
    for worker in ["w1", "w2", "w2"] {
        assert_eq!(ask(worker).await.worker(), Some(worker));
    }
    fleet.quiet().await;
    workers[1].0.script(Script::hold());
    let address = frontends[1].address();
    let held = tokio::spawn(async move {
        let headers = "Content-Type: application/json\r\nx-tidegate-worker: w2\r\n";
        let mut client = Connection::open(address).await.unwrap();
        client
            .send(request("POST", "/v1/chat/completions", headers, chat_body("m").to_string().as_bytes()))
            .await
            .unwrap();
        client.answer().await.unwrap().status
    });
    eventually("w2 is full", async || fleet.inflight("w2").await == 1).await;
    assert_eq!(ask("w2").await.status, 529, "the other one is free, but was not asked for");
    assert_eq!(ask("w1").await.status, 200);
    let unknown = ask("w9").await;
    assert!([503, 404].contains(&unknown.status), "{}", unknown.status);
    workers[1].0.open();
    assert_eq!(held.await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn kv_prefers_the_worker_with_less_to_do() {
    let (_fleet, workers, frontends) = fleet_of(2, "kv", &[]).await;
    publish(&workers[0].1, &json!({"active_decode_blocks": 900, "kv_total_blocks": 1000})).await;
    publish(&workers[1].1, &json!({"active_decode_blocks": 100, "kv_total_blocks": 1000})).await;
    for index in 0..10 {
        let answer = chat(frontends[index % 2].address(), "m").await;
        assert_eq!(answer.worker(), Some("w2"));
    }
}
