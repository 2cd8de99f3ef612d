//! Leaving in good order.

use std::time::Duration;

use super::rig::{BODY, CHAT, JSON, Rig, STREAM};
use crate::harness::{Connection, Script, Stub, eventually, get, request};

#[tokio::test(flavor = "multi_thread")]
async fn f129_streams_end_and_nothing_new_begins() {
    let stub = Stub::start().await;
    stub.script(Script::held_stream());
    let mut rig = Rig::with(&stub, 10, |_| {}).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut client = rig.send(STREAM).await;
        let head = client.head().await.unwrap();
        streams.push((client, head));
    }
    let mut idle = rig.connect().await;
    idle.send(request("GET", "/live", "", b"")).await.unwrap();
    assert_eq!(idle.answer().await.unwrap().header("connection"), None);
    rig.shutdown.cancel();
    eventually("it is not ready", async || get(rig.address(), "/ready").await.status == 503).await;
    assert_eq!(get(rig.address(), "/live").await.status, 200);
    assert_eq!(get(rig.address(), "/health").await.json()["status"], "shutting_down");
    for client in [&mut idle, &mut rig.connect().await] {
        client.send(request("POST", CHAT, JSON, BODY)).await.unwrap();
        let refused = client.answer().await.unwrap();
        assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
        assert_eq!(refused.reason(), "draining");
        assert!(client.rest().await.is_empty());
    }
    stub.open();
    for (mut client, head) in streams {
        let answer = client.body(head).await;
        assert!(answer.complete && answer.text().ends_with("data: [DONE]\n\n"));
    }
    rig.ended().await;
    assert_eq!(rig.inflight("w1").await, 0);
    assert!(Connection::open(rig.address()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_pause_requests_are_still_taken() {
    let stub = Stub::start().await;
    let mut rig = Rig::with(&stub, 10, |settings| settings.drain_pause = Duration::from_secs(2)).await;
    let mut client = rig.send(BODY).await;
    client.answer().await.unwrap();
    rig.shutdown.cancel();
    eventually("it is not ready", async || get(rig.address(), "/ready").await.status == 503).await;
    client.send(request("POST", CHAT, JSON, BODY)).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    rig.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_drain_limit_running_requests_are_cut_and_their_places_given_back() {
    let stub = Stub::start().await;
    stub.script(Script::held_stream());
    let mut rig = Rig::with(&stub, 10, |settings| settings.drain = Duration::from_millis(300)).await;
    let mut client = rig.send(STREAM).await;
    let head = client.head().await.unwrap();
    rig.shutdown.cancel();
    rig.ended().await;
    assert!(!client.body(head).await.complete);
    assert_eq!(rig.inflight("w1").await, 0);
    eventually("the engine request is cancelled", async || stub.running() == 0).await;
}
