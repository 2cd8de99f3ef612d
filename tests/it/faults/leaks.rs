//! Slot leaks: every way a request can end gives its place back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Act, Connection, Crowd, Fleet, Process, Script, Stub, chat, chat_body, eventually, eventually_within, metric, post,
    request, with_status,
};

/// Design section 3.7: one second, and what a busy machine needs.
const FREED: Duration = Duration::from_secs(5);

async fn fleet_of_one(slots: &str, queue: &str, flags: &[&str]) -> (Fleet, Stub, Process, Process) {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let limits = [&["--engine-request-limit", slots, "--request-queue-limit", queue], flags].concat();
    let worker = fleet.worker("w1", &engine, &limits).await;
    let frontend = fleet.frontend(&[]).await;
    (fleet, engine, worker, frontend)
}

/// Sends a chat request and keeps the connection.
async fn send(frontend: &Process, body: &Value) -> Connection {
    let mut client = Connection::open(frontend.address()).await.unwrap();
    let headers = "Content-Type: application/json\r\n";
    client.send(request("POST", "/v1/chat/completions", headers, body.to_string().as_bytes())).await.unwrap();
    client
}

fn streaming() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

async fn freed(fleet: &Fleet, engine: &Stub, what: &str) {
    eventually_within(FREED, what, async || fleet.inflight_total().await == 0 && engine.running() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_a_client_that_leaves_before_any_byte() {
    let (fleet, engine, _worker, frontend) = fleet_of_one("2", "0", &[]).await;
    engine.script(Script(vec![Act::Silence]));
    let clients = [send(&frontend, &chat_body("m")).await, send(&frontend, &chat_body("m")).await];
    eventually("both are at the engine", async || engine.running() == 2).await;
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
    drop(clients);
    freed(&fleet, &engine, "both places are given back").await;
    assert_eq!(engine.abandoned(), 2);
    engine.script(Script::ok());
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f003_a_client_that_leaves_a_silent_stream() {
    let (fleet, engine, _worker, frontend) = fleet_of_one("1", "0", &[]).await;
    engine.next(Script::stream(vec![Act::Silence]));
    let mut client = send(&frontend, &streaming()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(client.chunk().await.unwrap(), b"data: {\"n\":0}\n\n");
    drop(client);
    freed(&fleet, &engine, "the stream is cancelled").await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    fleet.quiet().await;
}

/// FIN, RST, half-close, and stray bytes behind the request.
#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_leave_gives_the_place_back() {
    let (fleet, engine, _worker, frontend) = fleet_of_one("1", "0", &[]).await;
    for streamed in [false, true] {
        for way in ["fin", "rst", "half-close", "stray bytes, then fin"] {
            let script = if streamed { Script::stream(vec![Act::Silence]) } else { Script(vec![Act::Silence]) };
            engine.next(script);
            let body = if streamed { streaming() } else { chat_body("m") };
            let mut client = send(&frontend, &body).await;
            if streamed {
                client.head().await.unwrap();
            }
            eventually("it is at the engine", async || engine.running() == 1).await;
            let mut kept = None;
            match way {
                "rst" => client.reset(),
                "half-close" => {
                    client.finish().await.unwrap();
                    kept = Some(client);
                }
                "stray bytes, then fin" => {
                    client.send(b"GET /live HTTP/1.1\r\n").await.unwrap();
                    drop(client);
                }
                _ => drop(client),
            }
            freed(&fleet, &engine, &format!("{way}, streamed: {streamed}")).await;
            drop(kept);
            assert_eq!(chat(frontend.address(), "m").await.status, 200, "{way}");
        }
    }
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f005_failures_of_the_engine_give_the_place_back() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let limits = ["--engine-request-limit", "3", "--request-queue-limit", "0"];
    let _worker = fleet.worker("w1", &engine, &limits).await;
    let frontend = fleet.frontend(&["--engine-timeout-ms", "300"]).await;
    let garbage = Script(vec![Act::Send(b"HTTP/9.9 ???\r\n\r\n".to_vec()), Act::Fin]);
    let groups = [
        ("502", Script::json(502, &json!({"error": "bad"})), vec![502]),
        ("504", Script::json(504, &json!({"error": "slow"})), vec![504]),
        ("silence", Script(vec![Act::Silence]), vec![504, 502]),
        ("reset", Script(vec![Act::Rst]), vec![502]),
        ("garbage", garbage, vec![502]),
    ];
    for (name, script, statuses) in groups {
        engine.script(script);
        for _ in 0..5 {
            let answer = chat(frontend.address(), "m").await;
            assert!(statuses.contains(&answer.status), "{name}: {} {}", answer.status, answer.text());
        }
        fleet.quiet().await;
    }
    engine.script(Script::ok());
    engine.close_port().await;
    for _ in 0..5 {
        let status = chat(frontend.address(), "m").await.status;
        assert!([502, 503].contains(&status), "port closed: {status}");
    }
    fleet.quiet().await;
    engine.open_port().await;
    eventually("the engine is seen again", async || chat(frontend.address(), "m").await.status == 200).await;
    let answers = Crowd::start(&[frontend.address()], 3, &chat_body("m")).await.finish().await;
    assert_eq!(with_status(&answers, 200), 3);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f007_a_limit_is_not_a_lifetime_limit_on_any_route() {
    let (fleet, engine, _worker, frontend) = fleet_of_one("2", "0", &[]).await;
    let messages = json!([{"role": "user", "content": "x"}]);
    let routes = [
        ("/v1/chat/completions", json!({"model": "m", "messages": messages}), true),
        ("/v1/completions", json!({"model": "m", "prompt": "x"}), true),
        ("/v1/embeddings", json!({"model": "m", "input": "x"}), false),
        ("/v1/responses", json!({"model": "m", "input": "x"}), true),
        ("/v1/messages", json!({"model": "m", "messages": messages, "max_tokens": 1}), true),
        ("/v1/messages/count_tokens", json!({"model": "m", "messages": messages}), false),
    ];
    for (path, body, streams) in routes {
        for stream in [false, true] {
            if stream && !streams {
                continue;
            }
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let script = Script::stream(vec![Script::event("[DONE]"), Script::last_chunk()]);
            engine.script(if stream { script } else { Script::ok() });
            for _ in 0..5 {
                let answer = post(frontend.address(), path, &body).await;
                assert_eq!((answer.status, answer.complete), (200, true), "{path} stream={stream}");
                assert_eq!(engine.seen().last().unwrap().path(), path);
                fleet.quiet().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f009_clients_that_leave_the_queue_leave_it_at_once() {
    let (fleet, engine, worker, frontend) = fleet_of_one("1", "2", &[]).await;
    engine.script(Script::hold());
    let mut first = send(&frontend, &chat_body("m")).await;
    eventually("the first one runs", async || engine.holding() == 1).await;
    let queued = [send(&frontend, &chat_body("m")).await, send(&frontend, &chat_body("m")).await];
    let waiting = async || metric(&worker, "dynamo_request_queue", &[]).await;
    eventually("two wait", async || waiting().await == Some(2.0)).await;
    drop(queued);
    eventually_within(FREED, "nobody waits", async || {
        waiting().await == Some(0.0) && fleet.inflight_total().await == 1
    })
    .await;
    let mut last = send(&frontend, &chat_body("m")).await;
    eventually("the last one waits", async || waiting().await == Some(1.0)).await;
    engine.open();
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(last.answer().await.unwrap().status, 200);
    assert_eq!(engine.count(), 2, "those that left never reached the engine");
    let refused = metric(&worker, "dynamo_rejection_request_total", &[]).await;
    assert!(matches!(refused, None | Some(0.0)), "leaving the queue is no refusal: {refused:?}");
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f010_requests_that_time_out_in_the_queue_leave_it() {
    let (fleet, engine, worker, frontend) = fleet_of_one("1", "2", &["--queue-timeout-ms", "300"]).await;
    engine.script(Script::hold());
    let mut first = send(&frontend, &chat_body("m")).await;
    eventually("the first one runs", async || engine.holding() == 1).await;
    let refused = Crowd::start(&[frontend.address()], 2, &chat_body("m")).await.finish().await;
    assert_eq!(with_status(&refused, 529), 2);
    assert_eq!(metric(&worker, "dynamo_request_queue", &[]).await, Some(0.0));
    assert_eq!(engine.count(), 1, "no retry of a queue timeout");
    engine.open();
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(chat(frontend.address(), "m").await.status, 200, "no skip after a queue timeout");
    fleet.quiet().await;
}
