//! What passes between client and engine, and how it ends.

use std::time::Duration;

use super::rig::{BODY, CHAT, JSON, Rig, STREAM, Worker};
use crate::harness::{Act, Script, Stub, eventually, request};

fn chunk(bytes: &[u8]) -> Act {
    Act::Send([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
}

fn stream_of(acts: Vec<Act>) -> Script {
    Script([vec![Act::Send(Script::STREAM_HEAD.to_vec())], acts].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn f088_a_stream_passes_byte_by_byte() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for end in ["\n", "\r\n"] {
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"日本 🙂\"}}}}]}}{end}{end}");
        let whole = format!("{event}{event}data: [DONE]{end}{end}");
        let bytes = whole.as_bytes();
        let mut acts: Vec<Act> = bytes[..10].iter().map(|byte| chunk(&[*byte])).collect();
        acts.push(Act::Hold);
        acts.extend(bytes[10..].iter().map(|byte| chunk(&[*byte])));
        acts.push(Script::last_chunk());
        stub.script(stream_of(acts));
        let mut client = rig.send(STREAM).await;
        let head = client.head().await.unwrap();
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        let mut first = Vec::new();
        while first.len() < 10 {
            first.extend(client.chunk().await.unwrap());
        }
        eventually("the engine has not finished", async || stub.holding() == 1).await;
        stub.release(1);
        let answer = client.body(head).await;
        assert!(answer.complete);
        assert_eq!([first, answer.body].concat(), bytes);

        stub.script(stream_of(vec![chunk(bytes), Script::last_chunk()]));
        let mut client = rig.send(STREAM).await;
        assert_eq!(client.answer().await.unwrap().body, bytes);
    }
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_one_hop_end_here_and_all_others_pass() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let headers = "Content-Type: application/json\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=3\r\n\
                   X-Engine: a\r\nX-Engine: b\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nx-tidegate-refused-not: 1\r\n";
    stub.script(Script::raw(418, headers, b"{\"odd\": \xff}"));
    let mut client = rig.connect().await;
    let sent = format!(
        "{JSON}Authorization: Bearer sk-x\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\n\
         X-Request-Id: abc \"quoted\" é\r\nX-Tidegate-Incarnation: forged\r\nX-Other: 7\r\nProxy-Authorization: x\r\n"
    );
    client.send(request("POST", &format!("{CHAT}?x=1&y=%20"), &sent, BODY)).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (418, &b"{\"odd\": \xff}"[..]));
    let both: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "x-engine").map(|(_, v)| v.as_str()).collect();
    assert_eq!(both, ["a", "b"]);
    assert_eq!(answer.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
    assert_eq!(answer.header("x-hop"), None);
    assert_eq!(answer.header("keep-alive"), None);
    assert_eq!(answer.header("x-request-id"), Some("abc \"quoted\" é"));
    assert_eq!(answer.worker(), Some("w1"));
    assert!(answer.revision().is_some());
    let seen = &stub.seen()[0];
    assert_eq!(seen.path(), format!("{CHAT}?x=1&y=%20"));
    assert_eq!(seen.body, BODY);
    assert_eq!(seen.header("authorization").as_deref(), Some("Bearer sk-x"));
    assert_eq!(seen.header("x-other").as_deref(), Some("7"));
    assert_eq!(seen.header("host").as_deref(), Some(&*stub.address().to_string()));
    assert!(seen.header("x-tidegate-incarnation").is_some_and(|incarnation| incarnation.ends_with("-abcd1234")));
    for gone in ["x-mine", "te", "proxy-authorization", "connection", "transfer-encoding", "expect"] {
        assert_eq!(seen.header(gone), None, "{gone}");
    }
    let mut client = rig.send(BODY).await;
    let made = client.answer().await.unwrap();
    assert!(made.header("x-request-id").is_some_and(|id| id.len() == 36));
}

#[tokio::test(flavor = "multi_thread")]
async fn f115_a_base_path_is_joined_with_one_slash() {
    let stub = Stub::start().await;
    let mut rig = Rig::bare(|_| {}).await;
    rig.add(Worker { url: format!("{}/base", stub.url()), ..Worker::new("w1", &stub) }).await;
    let mut client = rig.connect().await;
    client.send(request("POST", &format!("{CHAT}?x=1"), JSON, BODY)).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(stub.seen()[0].path(), format!("/base{CHAT}?x=1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f099_encodings_pass_as_they_are() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let gzip = b"\x1f\x8b\x08\0not really gzip";
    stub.script(Script::raw(200, "Content-Encoding: gzip\r\nContent-Type: application/json\r\n", gzip));
    let mut client = rig.connect().await;
    client.send(request("POST", CHAT, &format!("{JSON}Accept-Encoding: gzip\r\n"), BODY)).await.unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.header("content-encoding"), answer.body.as_slice()), (Some("gzip"), &gzip[..]));
    assert_eq!(stub.seen()[0].header("accept-encoding").as_deref(), Some("gzip"));
}

#[tokio::test(flavor = "multi_thread")]
async fn f090_a_stream_that_breaks_at_an_event_ends_with_an_error_event() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |settings| settings.stream_idle = Some(Duration::from_millis(300))).await;
    for (end, reason) in
        [(Act::Rst, "upstream_failed"), (Act::Fin, "upstream_failed"), (Act::Silence, "upstream_timeout")]
    {
        for path in [CHAT, "/v1/messages"] {
            stub.script(Script::stream(vec![
                Script::event("{\"n\":1}"),
                Act::Pause(Duration::from_millis(50)),
                end.clone(),
            ]));
            let mut client = rig.connect().await;
            client.send(request("POST", path, JSON, STREAM)).await.unwrap();
            let answer = client.answer().await.unwrap();
            assert_eq!((answer.status, answer.complete), (200, true), "{end:?}");
            let text = answer.text();
            let last = text.strip_prefix("data: {\"n\":0}\n\ndata: {\"n\":1}\n\n").unwrap_or_else(|| panic!("{text}"));
            assert!(!text.contains("[DONE]"));
            let data = if path == CHAT { last } else { last.strip_prefix("event: error\n").expect("the event's name") };
            let data = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("one event");
            let error: serde_json::Value = serde_json::from_str(data).unwrap();
            if path == CHAT {
                assert_eq!(error["error"]["reason"], reason, "{end:?}");
            } else {
                assert_eq!(error["type"], "error");
                assert_eq!(error["request_id"].as_str(), answer.header("x-request-id"));
            }
            rig.quiet().await;
            eventually("the engine request is over", async || stub.running() == 0).await;
        }
    }
    let ended = |error: &str| {
        format!(
            "dynamo_frontend_requests_total{{endpoint=\"chat_completions\",error_type=\"{error}\",model=\"m\",\
             request_type=\"stream\",status=\"error\"}}"
        )
    };
    assert_eq!(rig.metric(&ended("internal")).await, 2.0);
    assert_eq!(rig.metric(&ended("response_timeout")).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn f090_what_cannot_be_told_in_the_stream_is_told_by_its_abort() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let pause = || Act::Pause(Duration::from_millis(50));
    let gzip = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
    let fixed = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\ndata: 1\n\n";
    let plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (what, acts) in [
        (
            "in mid-event",
            vec![Act::Send(Script::STREAM_HEAD.to_vec()), chunk(b"data: 1\n\ndata: 2"), pause(), Act::Rst],
        ),
        ("compressed", vec![Act::Send(gzip.to_vec()), chunk(b"\x1f\x8b\n\n"), pause(), Act::Rst]),
        ("of fixed length", vec![Act::Send(fixed.to_vec()), pause(), Act::Rst]),
        ("no stream", vec![Act::Send(plain.to_vec()), chunk(b"{\"a\":\n\n"), pause(), Act::Fin]),
    ] {
        stub.script(Script(acts));
        let mut client = rig.send(STREAM).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.complete), (200, false), "{what}");
        assert!(!answer.text().contains("error"), "{what}");
        rig.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_broken_from_its_first_byte_is_a_502() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let head = |rest: &str| [Script::STREAM_HEAD, rest.as_bytes()].concat();
    for bytes in [head("xyz\r\n"), head("\r\n"), b"HTTP/1.1 200 OK\r\nContent-Length: 7, 8\r\n\r\n".to_vec()] {
        stub.script(Script(vec![Act::Send(bytes), Act::Silence]));
        let mut client = rig.send(STREAM).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (502, Some("application/json")));
        assert_eq!(answer.reason(), "upstream_failed");
        rig.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f092_a_refusal_never_starts_a_stream() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for status in [400, 404, 429, 503, 500] {
        stub.script(Script::json(status, &serde_json::json!({"error": {"message": "no"}})));
        let mut client = rig.send(STREAM).await;
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/json")));
        assert_eq!(answer.text(), r#"{"error":{"message":"no"}}"#);
    }
    stub.close_port().await;
    let mut client = rig.send(STREAM).await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (503, Some("application/json")));
}

#[tokio::test(flavor = "multi_thread")]
async fn f094_comments_while_the_engine_is_silent() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |settings| settings.sse_keep_alive = Some(Duration::from_millis(100))).await;
    let event = "data: {\"n\":0}\n\n";
    let without = |text: String| text.replace(": keep-alive\n\n", "");

    let mut late = Script::stream(vec![Script::event("[DONE]"), Script::last_chunk()]);
    late.0.insert(0, Act::Hold);
    stub.script(late);
    let mut client = rig.send(STREAM).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(head.worker(), Some("w1"));
    assert!(head.revision().is_some() && head.header("x-request-id").is_some());
    for _ in 0..3 {
        assert_eq!(client.chunk().await.unwrap(), b": keep-alive\n\n");
    }
    stub.release(1);
    let answer = client.body(head).await;
    assert!(answer.complete);
    assert_eq!(without(answer.text()), format!("{event}data: [DONE]\n\n"));

    stub.script(Script::held_stream());
    let mut client = rig.send(STREAM).await;
    let head = client.head().await.unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).ends_with("\n\n: keep-alive\n\n: keep-alive\n\n") {
        text.extend(client.chunk().await.unwrap());
    }
    stub.release(1);
    text.extend(client.body(head).await.body);
    assert_eq!(without(String::from_utf8(text).unwrap()), format!("{event}data: [DONE]\n\n"));

    let mut refused = Script::json(400, &serde_json::json!({}));
    refused.0.insert(0, Act::Hold);
    stub.script(refused);
    let mut client = rig.send(STREAM).await;
    let head = client.head().await.unwrap();
    assert_eq!(client.chunk().await.unwrap(), b": keep-alive\n\n");
    stub.release(1);
    let answer = client.body(head).await;
    assert!(without(answer.text()).starts_with("data: {\"error\":{"), "{}", answer.text());

    stub.script(Script::hold());
    let mut client = rig.send(STREAM).await;
    client.head().await.unwrap();
    drop(client);
    eventually("it is cancelled", async || stub.running() == 0).await;
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f096_an_error_in_a_stream_passes_unchanged() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let error = r#"{"error":{"message":"Worker local total request limit reached (33/32)","code":503}}"#;
    stub.script(stream_of(vec![Script::event(error), Script::last_chunk()]));
    for _ in 0..10 {
        let mut client = rig.send(STREAM).await;
        assert_eq!(client.answer().await.unwrap().text(), format!("data: {error}\n\n"));
        rig.quiet().await;
    }
}
