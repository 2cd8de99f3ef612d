//! Who is tried again, where, and how often.

use std::time::Duration;

use super::rig::{BODY, Rig, STREAM, Worker};
use crate::harness::{Act, Script, Stub, chat, eventually, get};

fn refused(why: &str) -> Script {
    Script::raw(529, &format!("Content-Type: application/json\r\nx-tidegate-refused: {why}\r\n"), b"{}")
}

async fn two(change: impl FnOnce(&mut tidegate::frontend::Settings)) -> (Rig, Stub, Stub) {
    let (one, two) = (Stub::start().await, Stub::start().await);
    let mut rig = Rig::bare(change).await;
    rig.add(Worker::new("w1", &one)).await;
    rig.add(Worker::new("w2", &two)).await;
    eventually("both are known", async || {
        get(rig.address(), "/fleet").await.json()["models"][0]["workers"].as_array().is_some_and(|all| all.len() == 2)
    })
    .await;
    (rig, one, two)
}

#[tokio::test(flavor = "multi_thread")]
async fn f116_a_worker_that_is_full_is_an_overload() {
    let message = serde_json::json!({"message": "Worker local total request limit reached (33/32)", "code": 503});
    for full in [Script::json(503, &message), Script::json(529, &message), refused("capacity")] {
        let (rig, one, two) = two(|_| {}).await;
        one.script(full.clone());
        two.script(full.clone());
        for _ in 0..5 {
            let answer = chat(rig.address(), "m").await;
            assert_eq!((answer.status, answer.reason().as_str()), (529, "worker_refused"), "{full:?}");
            assert!(answer.revision().is_some() && answer.header("retry-after").is_some());
            assert_eq!(answer.header("x-tidegate-refused"), None);
        }
        assert_eq!(rig.inflight("w1").await + rig.inflight("w2").await, 0);
        two.script(Script::ok());
        for _ in 0..20 {
            eventually("the other one serves", async || chat(rig.address(), "m").await.status == 200).await;
        }
        let rejected =
            rig.metric("dynamo_frontend_model_rejection_total{endpoint=\"chat_completions\",model=\"m\"}").await;
        assert!(rejected >= 5.0, "{rejected}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f116_a_429_is_the_client_s() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    stub.script(Script::raw(429, "Retry-After: 7\r\n", b"slow down, at capacity"));
    for _ in 0..3 {
        let answer = chat(rig.address(), "m").await;
        assert_eq!(
            (answer.status, answer.header("retry-after"), answer.text().as_str()),
            (429, Some("7"), "slow down, at capacity")
        );
    }
    assert_eq!(stub.count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_that_says_something_else_passes() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    stub.script(Script::raw(503, "X-Engine: 1\r\n", b"model is loading"));
    let answer = chat(rig.address(), "m").await;
    assert_eq!(
        (answer.status, answer.header("x-engine"), answer.text().as_str()),
        (503, Some("1"), "model is loading")
    );
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_that_breaks_off_is_no_whole_answer() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let head = b"HTTP/1.1 503 Stub\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    stub.script(Script(vec![Act::Send(head), Script::event("model is loading"), Act::Fin]));
    let answer = chat(rig.address(), "m").await;
    assert_eq!(answer.status, 502, "{}", answer.text());
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sidecars_say_decides_where_it_goes_next() {
    for (why, limit, status, reason, tries) in [
        ("capacity", 0, 529, "worker_refused", 1),
        ("capacity", 1, 529, "worker_refused", 2),
        ("capacity", 5, 529, "worker_refused", 2),
        ("engine_down", 1, 503, "no_workers", 2),
        ("queue_timeout", 1, 529, "worker_refused", 1),
    ] {
        let (rig, one, two) = two(|settings| settings.migration_limit = limit).await;
        one.script(refused(why));
        two.script(refused(why));
        let answer = chat(rig.address(), "m").await;
        assert_eq!((answer.status, answer.reason().as_str()), (status, reason), "{why} {limit}");
        assert_eq!(one.count() + two.count(), tries, "{why} {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_incarnation_is_tried_elsewhere_without_a_skip() {
    let (rig, one, two) = two(|settings| settings.migration_limit = 0).await;
    one.script(refused("incarnation"));
    two.script(Script::ok());
    for _ in 0..10 {
        assert_eq!(chat(rig.address(), "m").await.status, 200);
    }
    assert!(one.count() > 1, "it is not skipped");
    assert_eq!(two.count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn f120_a_closed_port_costs_one_try_and_is_then_left_out() {
    let (rig, one, two) = two(|_| {}).await;
    one.close_port().await;
    for _ in 0..50 {
        assert_eq!(chat(rig.address(), "m").await.status, 200);
    }
    assert_eq!(two.count(), 50);
    two.close_port().await;
    let answer = chat(rig.address(), "m").await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "no_workers"));
    one.open_port().await;
    eventually("it is tried again", async || chat(rig.address(), "m").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f097_a_stale_connection_is_replaced_and_nothing_runs_twice() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for round in 0..20 {
        stub.next(Script::ok());
        // Dies on the next request, unheard.
        stub.next(Script(vec![if round % 2 == 0 { Act::Fin } else { Act::Rst }]));
        for _ in 0..2 {
            let mut client = rig.send(BODY).await;
            assert_eq!(client.answer().await.unwrap().status, 200);
        }
    }
    assert_eq!(stub.count(), 60, "twenty of them were sent twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_again_once_a_byte_has_come_or_on_a_fresh_connection() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    stub.next(Script(vec![Act::Rst]));
    assert_eq!(chat(rig.address(), "m").await.status, 502);
    assert_eq!(stub.count(), 1);
    assert_eq!(chat(rig.address(), "m").await.status, 200);
    stub.next(Script(vec![Act::Send(b"HTTP/1.1 2".to_vec()), Act::Pause(Duration::from_millis(20)), Act::Rst]));
    assert_eq!(chat(rig.address(), "m").await.status, 502);
    assert_eq!(stub.count(), 3);
    stub.next(Script::stream(vec![Act::Pause(Duration::from_millis(20)), Act::Rst]));
    let mut client = rig.send(STREAM).await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(stub.count(), 4);
    rig.quiet().await;
}
