//! What reaches the engine, and what comes back.

use serde_json::json;

use super::{figure, send};
use crate::harness::{Act, Answer, Connection, Fleet, Script, Stub, chat, chat_body, delete, eventually, get, request};

const SLOT: &[&str] = &["--engine-request-limit", "1", "--request-queue-limit", "0"];

async fn raw(worker: &crate::harness::Process, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut connection = Connection::open(worker.address()).await.unwrap();
    connection.send(request("POST", path, headers, body)).await.unwrap();
    connection.answer().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_the_engine_as_it_came() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let base = format!("{}/base/", engine.url());
    let flags = ["--engine-health-path", "/health", "--advertise-url", "http://127.0.0.1:7/base/"];
    let worker = fleet.start_worker(fleet.redis.url(), "m", "w1", &base, &flags).listening().await;
    fleet.registered("m", "w1").await;
    assert_eq!(fleet.worker_hash("w1").await["url"], "http://127.0.0.1:7/base");
    let body = b"{ \"model\" : \"m\",\n\t\"prompt\":\"\xe5\xb7\xa5\" }";
    let headers = "Content-Type: application/json\r\nAuthorization: Bearer t\r\nX-Request-Id: r1\r\nConnection: X-Hop\r\n\
                   X-Hop: 1\r\nTE: trailers\r\nAccept-Encoding: gzip\r\n";
    engine.next(Script::raw(
        200,
        "Content-Encoding: gzip\r\nX-Engine: e\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nKeep-Alive: timeout=5\r\n",
        b"\x1f\x8b not really",
    ));
    let answer = raw(&worker, "/v1/completions?x=1&y=%2F", headers, body).await;
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"\x1f\x8b not really"[..]));
    assert_eq!((answer.header("content-encoding"), answer.header("x-engine")), (Some("gzip"), Some("e")));
    assert_eq!(answer.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("set-cookie")).count(), 2);
    assert_eq!(answer.header("keep-alive"), None);
    let seen = engine.seen().pop().unwrap();
    assert_eq!((seen.path().as_str(), seen.body.as_slice()), ("/base/v1/completions?x=1&y=%2F", &body[..]));
    assert_eq!(seen.header("host"), Some(engine.address().to_string()));
    for (name, value) in [
        ("authorization", Some("Bearer t")),
        ("x-request-id", Some("r1")),
        ("accept-encoding", Some("gzip")),
        ("content-length", Some("34")),
        ("x-hop", None),
        ("te", None),
        ("connection", None),
    ] {
        assert_eq!(seen.header(name).as_deref(), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_another_life_of_the_worker_is_refused() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let own = fleet.worker_hash("w1").await["incarnation"].clone();
    let body = chat_body("m").to_string();
    let ask = async |incarnation: &str| {
        let header = format!("X-Tidegate-Incarnation: {incarnation}\r\n");
        raw(&worker, "/v1/chat/completions", &header, body.as_bytes()).await
    };
    // Known to Redis a moment before the sidecar has the answer.
    eventually("its own incarnation is taken", async || ask(&own).await.status == 200).await;
    let seen = engine.seen().pop().unwrap();
    assert_eq!(seen.header("x-tidegate-incarnation"), None, "the engine is not told");
    let before = engine.count();
    let other = ask("1-deadbeef").await;
    assert_eq!((other.status, other.header("x-tidegate-refused")), (503, Some("incarnation")));
    assert_eq!(engine.count(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_own_errors_pass_and_its_failures_are_502() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    for status in [400, 404, 429, 500, 502, 503, 504, 529] {
        let body = json!({"message": "mine", "code": status});
        engine.next(Script::json(status, &body));
        let answer = chat(worker.address(), "m").await;
        assert_eq!((answer.status, answer.json()), (status, body));
        assert_eq!(answer.header("x-tidegate-refused"), None);
    }
    for broken in [vec![Act::Rst], vec![Act::Fin], vec![Act::Send(b"HTTP/9.9 ???\r\n\r\n".to_vec()), Act::Fin]] {
        engine.next(Script(broken));
        let mut connection = Connection::open(worker.address()).await.unwrap();
        let bytes = request("POST", "/v1/messages", "X-Request-Id: r7\r\n", b"{}");
        // A fresh connection to the engine: the reused one was closed by the last failure.
        connection.send(bytes).await.unwrap();
        let answer = connection.answer().await.unwrap();
        if answer.status == 200 {
            continue;
        }
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert_eq!((&answer.json()["type"], &answer.json()["request_id"]), (&json!("error"), &json!("r7")));
    }
    assert_eq!(chat(worker.address(), "m").await.status, 200, "the slot was given back each time");
}

#[tokio::test(flavor = "multi_thread")]
async fn f097_a_reused_connection_that_the_engine_closed_is_replaced_once() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    for _ in 0..30 {
        // The next request over this connection meets its end.
        engine.next(Script::ok());
        assert_eq!(chat(worker.address(), "m").await.status, 200);
        engine.next(Script(vec![Act::Fin]));
        let answer = chat(worker.address(), "m").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let replayed = figure(worker.address(), "tidegate_worker_replayed_total").await;
    assert_eq!(engine.count() as f64, 60.0 + replayed, "nothing is sent twice but what was replayed");
    assert_eq!(replayed, 30.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f001_f003_a_client_that_leaves_frees_the_slot_and_stops_the_engine() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    let body = chat_body("m").to_string();
    for script in [Script(vec![Act::Silence]), Script::stream(vec![Act::Silence])] {
        let streams = script.0.len() > 1;
        for stray in [&b""[..], b"\r\n", b"GET /live HTTP/1.1\r\n\r\n"] {
            engine.next(script.clone());
            let mut client = Connection::open(worker.address()).await.unwrap();
            client.send(request("POST", "/v1/chat/completions", "", body.as_bytes())).await.unwrap();
            if streams {
                assert_eq!(client.head().await.unwrap().status, 200);
                assert_eq!(client.chunk().await.unwrap(), b"data: {\"n\":0}\n\n");
            }
            eventually("the engine works", async || engine.running() == 1).await;
            client.send(stray).await.unwrap();
            client.finish().await.unwrap();
            eventually("the engine is told", async || engine.running() == 0).await;
            let after = chat(worker.address(), "m").await;
            assert_eq!(after.status, 200, "{}", after.text());
        }
    }
    assert_eq!(figure(worker.address(), "dynamo_engine_request").await, 0.0);
    assert_eq!(figure(worker.address(), "tidegate_worker_tracked_prefill_tokens").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_answer_does_not_pass_for_a_whole_one() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    for end in [Act::Fin, Act::Rst] {
        engine.next(Script::stream(vec![end.clone()]));
        let answer = chat(worker.address(), "m").await;
        assert_eq!((answer.status, answer.complete), (200, false));
        let short = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"cut\":".to_vec();
        engine.next(Script(vec![Act::Send(short), end]));
        let mut client = Connection::open(worker.address()).await.unwrap();
        client.send(request("POST", "/v1/completions", "", b"{}")).await.unwrap();
        if let Some(answer) = client.answer().await {
            assert!(!answer.complete || answer.status == 502, "{answer:?}");
        }
    }
    assert_eq!(chat(worker.address(), "m").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_come_as_they_are_sent() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    engine.script(Script::held_stream());
    let mut client = Connection::open(worker.address()).await.unwrap();
    client.send(request("POST", "/v1/chat/completions", "", chat_body("m").to_string().as_bytes())).await.unwrap();
    let head = client.head().await.unwrap();
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(client.chunk().await.unwrap(), b"data: {\"n\":0}\n\n", "before the stream has ended");
    engine.open();
    assert_eq!(client.chunk().await.unwrap(), b"data: [DONE]\n\n");
    assert_eq!(client.chunk().await.unwrap(), b"");
    eventually("the slot is free", async || figure(worker.address(), "dynamo_engine_request").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_down_is_said_to_be_so_and_the_queue_is_sent_away() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let flags = ["--engine-request-limit", "1", "--request-queue-limit", "2", "--report-interval-ms", "100"];
    let worker = fleet.worker("w1", &engine, &flags).await;
    let running = send(worker.address());
    eventually("it runs", async || engine.holding() == 1).await;
    let queued = send(worker.address());
    eventually("one waits", async || figure(worker.address(), "dynamo_request_queue").await == 1.0).await;
    engine.close_port().await;
    for request in [queued, send(worker.address())] {
        let refused = request.await.unwrap();
        assert_eq!((refused.status, refused.header("x-tidegate-refused")), (503, Some("engine_down")));
    }
    assert_eq!(running.await.unwrap().status, 502);
    eventually("Redis knows", async || fleet.hash("gate").await["w1"].contains("|e|")).await;
    assert_eq!(get(worker.address(), "/ready").await.json()["reason"], "engine_down");
    engine.open_port().await;
    engine.open();
    eventually("it is back", async || chat(worker.address(), "m").await.status == 200).await;
    eventually("Redis knows", async || fleet.hash("gate").await["w1"].contains("||")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f106_an_answer_with_too_much_of_a_head_is_502_and_costs_nothing_more() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, SLOT).await;
    let many: String = (0..101).map(|n| format!("X-H{n}: v\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "v".repeat(600 * 1024));
    for headers in [many, long] {
        engine.next(Script::raw(200, &headers, b"{}"));
        let answer = chat(worker.address(), "m").await;
        assert_eq!((answer.status, answer.reason().as_str()), (502, "upstream_failed"), "{}", answer.text());
    }
    let fits = format!("X-Long: {}\r\n", "v".repeat(30 * 1024));
    engine.next(Script::raw(200, &fits, b"{}"));
    assert_eq!(chat(worker.address(), "m").await.status, 200);
    assert_eq!(get(worker.address(), "/ready").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn f115_no_spelling_of_a_path_leads_elsewhere() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    for path in
        ["/v1/chat/completions/", "//v1/chat/completions", "/v1/../v1/chat/completions", "/v1/chat%2Fcompletions"]
    {
        let answer = raw(&worker, path, "", b"{}").await;
        assert_eq!((answer.status, answer.reason().as_str()), (404, "no_such_route"), "{path}");
    }
    let wrong = delete(worker.address(), "/v1/chat/completions").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    assert_eq!(delete(worker.address(), "/ready").await.header("allow"), Some("GET, HEAD"));
    assert_eq!(engine.count(), 0);
    assert_eq!(get(worker.address(), "/v1/models").await.status, 200);
    assert_eq!(engine.seen().pop().unwrap().path(), "/v1/models");
}
