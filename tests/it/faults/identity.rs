//! Worker identity and address.

use serde_json::json;

use crate::harness::{
    Connection, Fleet, Process, Script, Signal, Stub, chat, eventually, get, publish, request, with_status,
};

#[tokio::test(flavor = "multi_thread")]
async fn f052_a_replaced_worker_takes_its_sessions_over() {
    let fleet = Fleet::new();
    let (old_engine, new_engine) = (Stub::start().await, Stub::start().await);
    let mut old = fleet.worker("w1", &old_engine, &["--drain-seconds", "5"]).await;
    let frontend = fleet.frontend(&[]).await;
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(chat(frontend.address(), "m").await);
    }
    let _new = fleet.worker("w2", &new_engine, &[]).await;
    answers.push(chat(frontend.address(), "m").await);
    old.signal(Signal::TERM);
    while old.runs() {
        answers.push(chat(frontend.address(), "m").await);
    }
    assert_eq!(with_status(&answers, 200), answers.len());
    for _ in 0..10 {
        let answer = chat(frontend.address(), "m").await;
        assert_eq!((answer.status, answer.worker()), (200, Some("w2")));
    }
    assert_eq!(old.exit_code().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f054_another_process_at_a_dead_workers_address_is_not_that_worker() {
    let fleet = Fleet::new();
    let (engine_a, engine_b) = (Stub::start().await, Stub::start().await);
    let url = fleet.redis.url();
    let dead = fleet.start_worker(url, "A", "w1", &engine_a.url(), &[]).listening().await;
    fleet.registered("A", "w1").await;
    let frontend = fleet.frontend(&[]).await;
    assert_eq!(chat(frontend.address(), "A").await.status, 200);
    let address = dead.address().to_string();
    dead.signal(Signal::KILL);
    drop(dead);
    let _heir = fleet.start_worker(url, "B", "w2", &engine_b.url(), &["--listen", &address]).listening().await;
    fleet.registered("B", "w2").await;
    for _ in 0..20 {
        let lost = chat(frontend.address(), "A").await;
        assert!([502, 503, 529].contains(&lost.status), "{} {}", lost.status, lost.text());
        assert_eq!(chat(frontend.address(), "B").await.status, 200);
    }
    let seen = engine_b.seen();
    assert_eq!(seen.len(), 20, "requests for A reached the engine of B");
    assert!(seen.iter().all(|seen| String::from_utf8_lossy(&seen.body).contains("\"B\"")));
    eventually("A has no live worker", async || {
        let answer = chat(frontend.address(), "A").await;
        answer.status == 503 && answer.reason() == "no_workers"
    })
    .await;
    assert_eq!(engine_b.count(), 20);
}

async fn stream(frontend: &Process) -> Connection {
    let mut client = Connection::open(frontend.address()).await.unwrap();
    let body = json!({"model": "m", "messages": [], "stream": true}).to_string();
    let headers = "Content-Type: application/json\r\n";
    client.send(request("POST", "/v1/chat/completions", headers, body.as_bytes())).await.unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn f056_nothing_of_a_dead_worker_stays_for_ever() {
    let fleet = Fleet::new();
    let (engine, other_engine) = (Stub::start().await, Stub::start().await);
    engine.script(Script::held_stream());
    let dead = fleet.worker("w1", &engine, &["--engine-request-limit", "8"]).await;
    let frontend = fleet.frontend(&[]).await;
    let streams = [stream(&frontend).await, stream(&frontend).await, stream(&frontend).await];
    let other = fleet.worker("w2", &other_engine, &[]).await;
    dead.signal(Signal::STOP);
    let closed = async || {
        let gate = fleet.hash("gate").await;
        gate.get("w1").map(|entry| entry.split('|').nth(2).unwrap_or_default().to_owned())
    };
    eventually("the gate of w1 is closed", async || closed().await.is_none_or(|letters| letters.contains('x'))).await;
    assert_eq!(fleet.inflight("w1").await, 3, "its count stays until it is 0");
    drop(streams);
    eventually("the streams are given back", async || fleet.inflight("w1").await == 0).await;
    publish(&other, &json!({"active_decode_blocks": 1, "kv_total_blocks": 100})).await;
    eventually("the entry of w1 is forgotten", async || closed().await.is_none()).await;
    let key = fleet.keys().worker(&tidegate::core::id::WorkerId::parse("w1").unwrap());
    let ttl: i64 = fleet.redis.command(&["TTL", &key]).await;
    assert_ne!(ttl, -1, "a record without an owner and without an end");
    let page = get(frontend.address(), "/fleet").await.text();
    eventually("w1 is not listed", async || !get(frontend.address(), "/fleet").await.text().contains("\"w1\"")).await;
    assert!(page.contains("w2"), "{page}");

    dead.signal(Signal::KILL);
    drop(dead);
    drop(other);
    engine.script(Script::ok());
    let _again = fleet.worker("w1", &engine, &[]).await;
    eventually("a new w1 serves", async || chat(frontend.address(), "m").await.worker() == Some("w1")).await;
}
