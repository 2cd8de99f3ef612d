//! Every way in which a client can leave gives its place back, and ends what the engine does for it.

use std::time::Duration;

use super::rig::{BODY, CHAT, JSON, Rig, STREAM};
use crate::harness::{Connection, Script, Stub, chat, eventually, eventually_within, request};

/// What the design promises for it (section 3.7), and some air for a busy machine.
const SOON: Duration = Duration::from_secs(3);

async fn given_back(rig: &Rig, stub: &Stub) {
    eventually_within(SOON, "the engine request is cancelled and the place free", async || {
        stub.running() == 0 && rig.inflight("w1").await == 0
    })
    .await;
    stub.script(Script::ok());
    assert_eq!(chat(rig.address(), "m").await.status, 200);
}

/// A frontend, a stub that never begins to answer, and a client that waits for it.
async fn silent() -> (Rig, Stub, Connection) {
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let client = rig.send(BODY).await;
    eventually("the engine has it", async || stub.holding() == 1).await;
    (rig, stub, client)
}

/// The same, in the middle of a stream.
async fn streaming() -> (Rig, Stub, Connection) {
    let stub = Stub::start().await;
    stub.script(Script::held_stream());
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let mut client = rig.send(STREAM).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.chunk().await.unwrap(), b"data: {\"n\":0}\n\n");
    eventually("the stream is silent", async || stub.holding() == 1).await;
    (rig, stub, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_a_client_leaves_before_any_byte() {
    let (rig, stub, client) = silent().await;
    assert_eq!(rig.inflight("w1").await, 1);
    drop(client);
    given_back(&rig, &stub).await;
    assert_eq!(stub.abandoned(), 1);
    let left = "dynamo_frontend_model_cancellation_total\
                {endpoint=\"chat_completions\",model=\"m\",request_type=\"unary\"}";
    eventually("it is counted", async || rig.metric(left).await == 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_a_client_resets() {
    let (rig, stub, client) = silent().await;
    client.reset();
    given_back(&rig, &stub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_a_client_leaves_a_silent_stream() {
    let (rig, stub, client) = streaming().await;
    drop(client);
    given_back(&rig, &stub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_a_client_resets_a_silent_stream() {
    let (rig, stub, client) = streaming().await;
    client.reset();
    given_back(&rig, &stub).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f104_a_client_that_ends_its_side_has_gone() {
    for begin in [true, false] {
        let (rig, stub, mut client) = if begin { streaming().await } else { silent().await };
        client.finish().await.unwrap();
        given_back(&rig, &stub).await;
        assert!(client.rest().await.is_empty(), "no third outcome");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f104_a_client_that_ends_its_side_gets_what_is_ready() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let mut client = rig.send(BODY).await;
    client.finish().await.unwrap();
    let answer = client.answer().await;
    assert!(answer.is_none_or(|answer| answer.status == 200 && answer.complete));
    let mut client = rig.connect().await;
    client.send(request("GET", "/live", "", b"")).await.unwrap();
    client.finish().await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stray_bytes_behind_a_request_do_not_hide_that_its_client_has_gone() {
    for stray in ["\r\n", "x", "GET /live HTTP/1.1\r\nHost: test\r\n\r\n", "POST /v1/chat/completions HTTP/1.1\r\n"] {
        for reset in [true, false] {
            let (rig, stub, mut client) = silent().await;
            client.send(stray).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            if reset {
                client.reset();
            } else {
                drop(client);
            }
            given_back(&rig, &stub).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f007_places_come_back_on_every_route_and_in_every_mode() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let paths =
        [CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"];
    for path in paths {
        for stream in [true, false] {
            let mut client = rig.connect().await;
            for _ in 0..5 {
                stub.script(if stream { Script::stream(vec![Script::last_chunk()]) } else { Script::ok() });
                client.send(request("POST", path, JSON, if stream { STREAM } else { BODY })).await.unwrap();
                let answer = client.answer().await.unwrap();
                assert_eq!((answer.status, answer.complete), (200, true), "{path} {stream}");
                rig.quiet().await;
            }
        }
    }
    assert!(stub.seen().iter().all(|seen| paths.contains(&seen.path().as_str())));
}

#[tokio::test(flavor = "multi_thread")]
async fn f005_every_failure_of_a_worker_gives_the_place_back() {
    use crate::harness::Act;
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 3, |settings| settings.engine_timeout = Some(Duration::from_millis(200))).await;
    let fails: [(Script, &[u16]); 8] = [
        (Script::json(502, &serde_json::json!({})), &[502]),
        (Script::json(504, &serde_json::json!({})), &[504]),
        (Script(vec![Act::Silence]), &[504]),
        (Script(vec![Act::Rst]), &[502]),
        (Script(vec![Act::Fin]), &[502]),
        (Script(vec![Act::Send(b"HTTP/9.9 ???\r\n\r\n".to_vec()), Act::Fin]), &[502]),
        (Script(vec![Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec()), Act::Rst]), &[200]),
        (Script(vec![Act::Send(b"HTTP/1.1 200 OK\r\nContent-Len".to_vec()), Act::Rst]), &[502]),
    ];
    for (script, statuses) in fails {
        stub.script(script.clone());
        for _ in 0..5 {
            let answer = chat(rig.address(), "m").await;
            assert!(statuses.contains(&answer.status), "{script:?}: {} {}", answer.status, answer.text());
            assert_eq!(answer.complete, answer.status != 200, "{script:?}");
        }
        rig.quiet().await;
    }
    stub.close_port().await;
    let refused = chat(rig.address(), "m").await;
    assert_eq!((refused.status, refused.reason()), (503, "no_workers".into()));
    rig.quiet().await;
    stub.open_port().await;
    stub.script(Script::ok());
    eventually("the worker is tried again", async || chat(rig.address(), "m").await.status == 200).await;
    let three = [(); 3].map(|()| tokio::spawn(chat(rig.address(), "m")));
    for answer in three {
        assert_eq!(answer.await.unwrap().status, 200);
    }
}
