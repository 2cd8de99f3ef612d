//! Request bodies: what passes, what is refused with which status, and that nothing refused reaches a worker.

use std::time::Duration;

use super::rig::{BODY, CHAT, JSON, Rig};
use crate::harness::{Script, Stub, chat, delete, eventually, get, request};

async fn ask(rig: &Rig, path: &str, headers: &str, body: &[u8]) -> crate::harness::Answer {
    let mut client = rig.connect().await;
    let _ = client.send(request("POST", path, headers, body)).await;
    client.answer().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn f107_the_right_error_wins() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let is_json = |answer: &crate::harness::Answer| {
        assert_eq!(answer.header("content-type"), Some("application/json"));
        assert!(answer.header("x-request-id").is_some());
        answer.json()
    };
    for path in ["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"] {
        for query in ["", "?x=1", "?%zz&&=", "?"] {
            let path = format!("{path}{query}");
            let bad = ask(&rig, &path, JSON, b"{\"model\":").await;
            assert_eq!((bad.status, is_json(&bad)["error"]["reason"].as_str()), (400, Some("invalid_body")), "{path}");
            let wrong = get(rig.address(), &path).await;
            assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
            assert_eq!(is_json(&wrong)["error"]["code"], 405);
        }
    }
    let bad = ask(&rig, "/v1/messages", JSON, b"{}").await;
    assert_eq!(bad.status, 400);
    assert_eq!(is_json(&bad)["error"]["type"], "invalid_request_error");
    assert_eq!(bad.json()["request_id"].as_str(), bad.header("x-request-id"));
    for path in ["/v1/models", "/v1/models/m", "/live", "/ready", "/health", "/metrics", "/fleet"] {
        let wrong = ask(&rig, path, JSON, b"{}").await;
        assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")), "{path}");
        is_json(&wrong);
    }
    let wrong = delete(rig.address(), "/busy_threshold").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD, POST")));
    for path in
        ["/", "/v1", "/v1/", "/v1/chat/completions/", "//v1/chat/completions", "/v1/chat%2Fcompletions", "/nope"]
    {
        let unknown = ask(&rig, path, JSON, BODY).await;
        assert_eq!((unknown.status, unknown.header("location")), (404, None), "{path}");
        is_json(&unknown);
    }
    assert_eq!(stub.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f103_there_is_no_cors() {
    let rig = Rig::bare(|_| {}).await;
    let mut client = rig.connect().await;
    let headers = "Origin: http://app.example\r\nAccess-Control-Request-Method: POST\r\n";
    client.send(request("OPTIONS", CHAT, headers, b"")).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn f110_bodies_must_be_json_by_name_and_in_plain() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for good in ["application/json", "APPLICATION/JSON", "application/json; charset=utf-8"] {
        assert_eq!(ask(&rig, CHAT, &format!("Content-Type: {good}\r\n"), BODY).await.status, 200, "{good}");
    }
    let seen = stub.count();
    for bad in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json;charset=latin1\r\n",
        "Content-Type: application/json\r\nContent-Type: application/json\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
    ] {
        assert_eq!(ask(&rig, CHAT, bad, BODY).await.status, 415, "{bad:?}");
    }
    assert_eq!(stub.count(), seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn f113_shapes() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let deep = format!(r#"{{"model":"m","x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for (body, status) in [
        (r#"{}"#, 400),
        (r#"{"model":null}"#, 400),
        (r#"{"model":123}"#, 400),
        (r#"{"model":[]}"#, 400),
        (r#"{"model":""}"#, 400),
        (r#"[]"#, 400),
        (r#""x""#, 400),
        (r#"null"#, 400),
        (r#""#, 400),
        (r#"{"model":"m","model":"m"}"#, 400),
        (r#"{"model":"m","stream":true,"stream":false}"#, 400),
        (r#"{"model":"m","messages":"x"}"#, 200),
        (r#"{"model":"m","stream":"true"}"#, 200),
        (&deep, 200),
    ] {
        let answer = ask(&rig, CHAT, JSON, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{:.60}: {}", body, answer.text());
    }
    assert_eq!(ask(&rig, CHAT, JSON, b"{\"model\":\"\xff\"}").await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn f122_an_unknown_model_is_unknown() {
    let stub = Stub::start().await;
    let mut rig = Rig::bare(|_| {}).await;
    for model in ["A", "org/b"] {
        rig.add(super::rig::Worker { model, ..super::rig::Worker::new("w1", &stub) }).await;
    }
    // While the index is young, nobody can tell.
    eventually("the index is of age", async || chat(rig.address(), "nope").await.status == 404).await;
    let long = "x".repeat(10_000);
    for name in ["nope", "a", " A", "A ", "A/", "org%2Fb", "org", &long] {
        let answer = chat(rig.address(), name).await;
        assert_eq!((answer.status, answer.reason().as_str()), (404, "model_not_found"), "{name:.20}");
        assert_eq!(answer.json()["message"], "Model not found");
    }
    assert_eq!(stub.count(), 0);
    for name in ["A", "org/b"] {
        assert_eq!(chat(rig.address(), name).await.status, 200);
        assert_eq!(get(rig.address(), &format!("/v1/models/{name}")).await.json()["id"], name);
    }
    assert_eq!(get(rig.address(), "/v1/models/org%2Fb").await.json()["id"], "org/b");
    assert_eq!(get(rig.address(), "/v1/models/nope").await.status, 404);
    let list = get(rig.address(), "/v1/models").await.json();
    let names: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["A", "org/b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn f123_made_up_names_make_no_series_and_no_keys() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    eventually("the index is of age", async || chat(rig.address(), "nope").await.status == 404).await;
    let series = async || get(rig.address(), "/metrics").await.text().lines().filter(|l| !l.starts_with('#')).count();
    let keys = async || {
        let pattern = format!("{}:*", rig.redis.namespace());
        rig.redis.command::<Vec<String>>(&["KEYS", &pattern]).await.len()
    };
    assert_eq!(chat(rig.address(), "m").await.status, 200);
    rig.quiet().await;
    let before = (series().await, keys().await);
    let mut client = rig.connect().await;
    for n in 0..300 {
        let body = format!(r#"{{"model":"made-up-{n}"}}"#);
        client.send(request("POST", CHAT, &format!("{JSON}X-Request-Id: {n}\r\n"), body.as_bytes())).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 404);
        client.send(request("GET", &format!("/made/up/{n}"), "", b"")).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 404);
    }
    assert_eq!((series().await, keys().await), before);
    let page = get(rig.address(), "/metrics").await.text();
    assert!(page.contains(r#"tidegate_refusals_total{model="unknown",reason="model_not_found"}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn f111_large_bodies_pass_unchanged_up_to_the_limit() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 100, |settings| settings.max_body_bytes = 4 << 20).await;
    let body = |size: usize| {
        let head = r#"{"model":"m","x":""#;
        format!("{head}{}\"}}", "y".repeat(size - head.len() - 2)).into_bytes()
    };
    for size in [1_900_000, 2_200_000, 4 << 20] {
        let body = body(size);
        assert_eq!(ask(&rig, CHAT, JSON, &body).await.status, 200, "{size}");
        assert!(stub.seen().last().unwrap().body == body, "{size}: other bytes");
    }
    let over = body((4 << 20) + 1);
    let answer = ask(&rig, CHAT, JSON, &over).await;
    assert_eq!((answer.status, answer.reason().as_str()), (413, "body_too_large"));
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", over.len(), String::from_utf8_lossy(&over));
    let mut client = rig.connect().await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: t\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
    let _ = client.send(head + &chunked).await;
    assert_eq!(client.answer().await.expect("an answer, not a reset").status, 413);
    let anthropic = ask(&rig, "/v1/messages", JSON, &over).await;
    assert_eq!(anthropic.json()["error"]["type"], "request_too_large");
    assert_eq!(stub.count(), 3);
    eventually("no body is kept", async || rig.metric("tidegate_buffered_bytes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_bodies_together_have_a_bound_until_the_first_byte() {
    let stub = Stub::start().await;
    stub.script(Script::hold());
    let rig = Rig::with(&stub, 100, |settings| settings.max_buffered_bytes = 3 * BODY.len()).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(rig.send(BODY).await);
    }
    eventually("three are held", async || stub.holding() == 3).await;
    let fourth = chat(rig.address(), "m").await;
    assert_eq!((fourth.status, fourth.reason().as_str()), (503, "out_of_buffers"));
    assert!(fourth.header("retry-after").is_some());
    stub.open();
    for mut client in held {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    let body = String::from_utf8_lossy(BODY).into_owned();
    eventually("there is room again", async || ask(&rig, CHAT, JSON, body.as_bytes()).await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_body_takes_no_place() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 1, |_| {}).await;
    let mut slow = rig.connect().await;
    let bytes = request("POST", CHAT, JSON, BODY);
    let (begin, end) = bytes.split_at(bytes.len() - 1);
    slow.send(begin).await.unwrap();
    crate::harness::holds_for(Duration::from_millis(200), "nothing is admitted", async || {
        rig.inflight("w1").await == 0 && stub.count() == 0
    })
    .await;
    assert_eq!(chat(rig.address(), "m").await.status, 200);
    slow.send(end).await.unwrap();
    assert_eq!(slow.answer().await.unwrap().status, 200);
}
