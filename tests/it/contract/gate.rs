//! The sidecar's gate as seen through a frontend: exactly N + Q (design section 3.5).

use serde_json::json;

use crate::harness::{
    Connection, Crowd, Fleet, Script, Stub, chat, chat_body, eventually, metric, post, request, with_status,
};

async fn exactly(slots: usize, queue: usize) {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let limits = ["--engine-request-limit", &slots.to_string(), "--request-queue-limit", &queue.to_string()];
    let _worker = fleet.worker("w1", &engine, &limits).await;
    let frontend = fleet.frontend(&[]).await;
    let fits = slots + queue;

    // One by one: never a refusal while fewer are in the system.
    let mut held = Vec::new();
    for count in 1..=fits {
        let mut client = Connection::open(frontend.address()).await.unwrap();
        let body = chat_body("m").to_string();
        client
            .send(request("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body.as_bytes()))
            .await
            .unwrap();
        held.push(client);
        eventually("it is admitted", async || fleet.inflight("w1").await == count as i64).await;
    }
    let refused = Crowd::start(&[frontend.address()], 10, &chat_body("m")).await.finish().await;
    assert_eq!(with_status(&refused, 529), 10);
    eventually("all slots are taken", async || engine.holding() == slots).await;
    engine.open();
    for client in &mut held {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    fleet.quiet().await;
    engine.shut();

    // All at once.
    let mut crowd = Crowd::start(&[frontend.address()], fits + 30, &chat_body("m")).await;
    crowd.answered(30).await;
    engine.open();
    let answers = crowd.finish().await;
    assert_eq!((with_status(&answers, 200), with_status(&answers, 529)), (fits, 30));
    assert_eq!(engine.peak(), slots);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slot_no_queue() {
    exactly(1, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slot_one_queue_place() {
    exactly(1, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slot_two_queue_places() {
    exactly(1, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_slots_one_queue_place() {
    exactly(4, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_slots_sixteen_queue_places() {
    exactly(4, 16).await;
}

/// The sidecar itself, without a frontend in front.
#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_enforces_its_limit_on_its_own() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let limits = ["--engine-request-limit", "2", "--request-queue-limit", "1"];
    let worker = fleet.worker("w1", &engine, &limits).await;
    let mut crowd = Crowd::start(&[worker.address()], 20, &chat_body("m")).await;
    crowd.answered(17).await;
    for answer in crowd.answers() {
        assert_eq!(answer.status, 529);
        assert_eq!(answer.header("x-tidegate-refused"), Some("capacity"));
        assert!(answer.text().contains("Server overloaded: worker at capacity"), "{}", answer.text());
    }
    assert_eq!(metric(&worker, "dynamo_rejection_request_total", &[]).await, Some(17.0));
    eventually("two run", async || engine.holding() == 2).await;
    assert_eq!(metric(&worker, "dynamo_engine_request", &[]).await, Some(2.0));
    assert_eq!(metric(&worker, "dynamo_request_queue", &[]).await, Some(1.0));
    engine.open();
    assert_eq!(with_status(&crowd.finish().await, 200), 3);
    assert_eq!(engine.peak(), 2);
}

/// T7 of the reference: one long stream, two followers; one of them waits, the other is refused.
#[tokio::test(flavor = "multi_thread")]
async fn t7_a_follower_waits_behind_a_stream() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let limits = ["--engine-request-limit", "1", "--request-queue-limit", "1"];
    let _worker = fleet.worker("w1", &engine, &limits).await;
    let frontend = fleet.frontend(&[]).await;
    engine.next(Script::held_stream());
    let mut stream = Connection::open(frontend.address()).await.unwrap();
    let body = json!({"model": "m", "messages": [], "stream": true}).to_string();
    stream
        .send(request("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body.as_bytes()))
        .await
        .unwrap();
    let head = stream.head().await.unwrap();
    assert_eq!(head.status, 200);
    let mut followers = Crowd::start(&[frontend.address()], 2, &chat_body("m")).await;
    followers.answered(1).await;
    let refused = &followers.answers()[0];
    assert_eq!(refused.status, 529);
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(529), &json!("Overloaded")));
    assert_eq!(engine.count(), 1, "the other one waits in the sidecar");
    engine.release(1);
    assert!(stream.body(head).await.complete);
    assert_eq!(with_status(&followers.finish().await, 200), 1);
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_at_run_time() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let limits = ["--engine-request-limit", "1", "--request-queue-limit", "2"];
    let worker = fleet.worker("w1", &engine, &limits).await;
    let frontend = fleet.frontend(&[]).await;
    let crowd = Crowd::start(&[frontend.address()], 3, &chat_body("m")).await;
    eventually("three are in", async || fleet.inflight("w1").await == 3 && engine.holding() == 1).await;
    let raised = post(worker.address(), "/limits", &json!({"engine_request_limit": 3})).await;
    assert!((200..300).contains(&raised.status), "{} {}", raised.status, raised.text());
    eventually("waiting ones are let in at once", async || engine.holding() == 3).await;
    let lowered =
        post(worker.address(), "/limits", &json!({"engine_request_limit": 1, "request_queue_limit": 0})).await;
    assert!((200..300).contains(&lowered.status), "{} {}", lowered.status, lowered.text());
    eventually("the new cap is in Redis", async || {
        let hash = fleet.worker_hash("w1").await;
        hash["engine_request_limit"] == "1" && hash["request_queue_limit"] == "0"
    })
    .await;
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
    assert_eq!(engine.running(), 3, "lowering cuts nobody");
    engine.open();
    assert_eq!(with_status(&crowd.finish().await, 200), 3);
    fleet.quiet().await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
}
