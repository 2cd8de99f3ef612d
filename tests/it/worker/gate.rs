//! N slots, Q places, and nobody else.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{figure, send};
use crate::harness::{Connection, Fleet, Process, Script, Stub, chat, chat_body, eventually, holds_for, post, request};

async fn worker(fleet: &Fleet, engine: &Stub, n: usize, q: usize, more: &[&str]) -> Process {
    named(fleet, "w1", engine, n, q, more).await
}

async fn named(fleet: &Fleet, id: &str, engine: &Stub, n: usize, q: usize, more: &[&str]) -> Process {
    let (n, q) = (n.to_string(), q.to_string());
    let mut flags = vec!["--engine-request-limit", &*n, "--request-queue-limit", &*q];
    flags.extend(more);
    fleet.worker(id, engine, &flags).await
}

async fn waiting(worker: &Process, running: usize, queued: usize) {
    eventually(&format!("{running} run and {queued} wait"), async || {
        figure(worker.address(), "dynamo_engine_request").await == running as f64
            && figure(worker.address(), "dynamo_request_queue").await == queued as f64
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_n_plus_q_are_taken_and_the_others_are_told_at_once() {
    let fleet = Fleet::new();
    for (n, q) in [(1, 0), (1, 1), (1, 2), (4, 1), (4, 16)] {
        let engine = Stub::start().await;
        engine.script(Script::hold());
        let worker = named(&fleet, &format!("w{n}-{q}"), &engine, n, q, &[]).await;
        for round in 1..=3 {
            let mut requests = JoinSet::new();
            for _ in 0..40 {
                let address = worker.address();
                requests.spawn(async move { chat(address, "m").await });
            }
            for _ in 0..40 - n - q {
                let refused = requests.join_next().await.unwrap().unwrap();
                assert_eq!(refused.status, 529, "N={n} Q={q}: {}", refused.text());
                assert_eq!(refused.header("x-tidegate-refused"), Some("capacity"));
                assert_eq!(refused.header("retry-after"), Some("1"));
                let body = refused.json();
                assert_eq!(body["message"], "Server overloaded: worker at capacity");
                assert_eq!((&body["type"], &body["code"]), (&json!("Overloaded"), &json!(529)));
            }
            waiting(&worker, n, q).await;
            assert_eq!(engine.running(), n);
            engine.release(n + q);
            while let Some(answer) = requests.join_next().await {
                assert_eq!(answer.unwrap().status, 200, "N={n} Q={q}");
            }
            waiting(&worker, 0, 0).await;
            let refused = figure(worker.address(), "dynamo_rejection_request_total").await;
            assert_eq!(refused, (round * (40 - n - q)) as f64);
        }
        assert_eq!(engine.peak(), n, "the engine never sees more than N");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_refused_while_fewer_are_in_the_system() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = worker(&fleet, &engine, 2, 1, &[]).await;
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        let address = worker.address();
        clients.spawn(async move {
            for i in 0..200 {
                let answer = chat(address, "m").await;
                assert_eq!(answer.status, 200, "request {i}: {}", answer.text());
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert!(engine.peak() <= 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn f009_clients_that_hang_up_while_queued_free_their_places() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let worker = worker(&fleet, &engine, 1, 2, &[]).await;
    let a = send(worker.address());
    waiting(&worker, 1, 0).await;
    let body = chat_body("m").to_string();
    let mut queued = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(worker.address()).await.unwrap();
        let bytes = request("POST", "/v1/chat/completions", "", body.as_bytes());
        connection.send(bytes).await.unwrap();
        queued.push(connection);
    }
    waiting(&worker, 1, 2).await;
    drop(queued);
    waiting(&worker, 1, 0).await;
    let d = send(worker.address());
    waiting(&worker, 1, 1).await;
    engine.open();
    assert_eq!((a.await.unwrap().status, d.await.unwrap().status), (200, 200));
    assert_eq!(engine.count(), 2, "the engine never sees those who left");
    assert_eq!(figure(worker.address(), "dynamo_rejection_request_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f010_requests_that_wait_too_long_are_turned_away_and_leave_no_ghosts() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let worker = worker(&fleet, &engine, 1, 2, &["--queue-timeout-ms", "300"]).await;
    let a = send(worker.address());
    waiting(&worker, 1, 0).await;
    for late in [send(worker.address()), send(worker.address())] {
        let late = late.await.unwrap();
        assert_eq!((late.status, late.header("x-tidegate-refused")), (529, Some("queue_timeout")));
    }
    waiting(&worker, 1, 0).await;
    engine.open();
    assert_eq!(a.await.unwrap().status, 200);
    assert_eq!(chat(worker.address(), "m").await.status, 200);
    assert_eq!(engine.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_at_run_time_and_redis_knows() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let worker = worker(&fleet, &engine, 1, 3, &[]).await;
    let requests: Vec<_> = (0..4).map(|_| send(worker.address())).collect();
    waiting(&worker, 1, 3).await;
    let set = async |body| post(worker.address(), "/limits", &body).await.status;
    assert_eq!(set(json!({"engine_request_limit": 3})).await, 204);
    waiting(&worker, 3, 1).await;
    assert_eq!(fleet.hash("gate").await["w1"].split('|').nth(1), Some("6"), "204: it is in Redis");
    assert_eq!(set(json!({"engine_request_limit": 1, "request_queue_limit": 0})).await, 204);
    assert_eq!(chat(worker.address(), "m").await.status, 529);
    waiting(&worker, 3, 1).await;
    assert_eq!(fleet.worker_hash("w1").await["engine_request_limit"], "1");
    engine.open();
    for request in requests {
        assert_eq!(request.await.unwrap().status, 200, "lowering cuts nobody");
    }
    assert_eq!(set(json!({"engine_request_limit": null})).await, 204);
    assert_eq!(fleet.hash("gate").await["w1"].split('|').nth(1), Some(""));
    let wrong = post(worker.address(), "/limits", &json!({"engine_request_limit": 0})).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text().contains("engine_request_limit"), "{}", wrong.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_n_there_is_no_cap() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let worker = fleet.worker("w1", &engine, &[]).await;
    let requests: Vec<_> = (0..60).map(|_| send(worker.address())).collect();
    waiting(&worker, 60, 0).await;
    engine.open();
    for request in requests {
        assert_eq!(request.await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arrival_takes_the_place_of_one_who_is_just_leaving() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = worker(&fleet, &engine, 1, 0, &[]).await;
    // Each client hangs up at once and the next one follows: its place must not be taken for a full one.
    for i in 0..50 {
        engine.next(Script(vec![crate::harness::Act::Silence]));
        let mut gone = Connection::open(worker.address()).await.unwrap();
        let body = chat_body("m").to_string();
        gone.send(request("POST", "/v1/chat/completions", "", body.as_bytes())).await.unwrap();
        eventually("the engine works on it", async || engine.running() == 1).await;
        if i % 2 == 0 {
            gone.reset();
        } else {
            drop(gone);
        }
        assert_eq!(chat(worker.address(), "m").await.status, 200);
    }
    assert_eq!(figure(worker.address(), "tidegate_worker_cancelled_total").await, 50.0);
    holds_for(Duration::from_millis(100), "nothing is left", async || engine.running() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_a_frontend_has_given_back_is_free_at_the_gate_too() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = worker(&fleet, &engine, 1, 0, &[]).await;
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    let body = chat_body("m").to_string();
    for i in 0..40 {
        engine.next(Script(vec![crate::harness::Act::Silence]));
        let mut gone = Connection::open(frontends[i % 2].address()).await.unwrap();
        let bytes = request("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body.as_bytes());
        gone.send(bytes).await.unwrap();
        eventually("the engine works on it", async || engine.running() == 1).await;
        if i % 3 == 0 {
            drop(gone);
        } else {
            gone.reset();
        }
        eventually("the place serves another", async || {
            let answer = chat(frontends[(i + 1) % 2].address(), "m").await;
            assert!(answer.status == 200 || answer.reason() == "at_capacity", "{}", answer.text());
            answer.status == 200
        })
        .await;
    }
}
