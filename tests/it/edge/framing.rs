//! What is and what is not a request.

use super::rig::{BODY, CHAT, JSON, Rig, STREAM};
use crate::harness::{Script, Stub, request};

#[tokio::test(flavor = "multi_thread")]
async fn f101_two_lengths_never_make_two_requests_of_one() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", BODY.len(), String::from_utf8_lossy(BODY));
    for framing in [
        "Content-Length: blah\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: blah\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\ncontent-LENGTH : 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999999\r\n",
    ] {
        let mut client = rig.connect().await;
        let mut bytes = format!("POST {CHAT} HTTP/1.1\r\nHost: test\r\n{JSON}{framing}\r\n{chunked}").into_bytes();
        bytes.extend(request("GET", "/admin", "", b""));
        client.send(bytes).await.unwrap();
        let answer = client.answer().await.unwrap_or_else(|| panic!("no answer: {framing}"));
        assert_eq!(answer.status, 400, "{framing}");
        assert!(answer.json()["error"]["message"].is_string(), "{framing}");
        assert_eq!(client.rest().await, b"", "{framing}: the connection ends, nothing more is answered");
    }
    assert_eq!(stub.count(), 0);
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f109_bodies_in_chunks_and_old_clients() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let (one, two) = BODY.split_at(7);
    let mut bytes =
        format!("POST {CHAT} HTTP/1.1\r\nHost: test\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for part in [one, two] {
        bytes.extend(format!("{:x};ext=1\r\n", part.len()).bytes());
        bytes.extend(part);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\nX-Trailer: 1\r\n\r\n");
    let mut client = rig.connect().await;
    client.send(&bytes).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    client.send(&bytes).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200, "the connection goes on behind the trailer");
    assert!(stub.seen().iter().all(|seen| seen.body == BODY && seen.header("x-trailer").is_none()));

    let mut client = rig.connect().await;
    client.send(format!("POST {CHAT} HTTP/1.1\r\nHost: test\r\n{JSON}\r\n")).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 400, "neither length nor coding: an empty body");
    client.send("GET /v1/models HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);

    for (keep, body) in
        [("", BODY), ("Connection: keep-alive\r\n", BODY), ("", STREAM), ("Connection: keep-alive\r\n", STREAM)]
    {
        stub.script(if body == STREAM { Script::stream(vec![Script::last_chunk()]) } else { Script::ok() });
        let mut client = rig.connect().await;
        let head = format!("POST {CHAT} HTTP/1.0\r\n{JSON}{keep}Content-Length: {}\r\n\r\n", body.len());
        client.send([head.as_bytes(), body].concat()).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None));
        if body == STREAM {
            assert_eq!(answer.text(), "data: {\"n\":0}\n\n", "a stream ends by close");
        }
    }
    rig.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_told_to_continue_or_why_not() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let mut client = rig.connect().await;
    let head = |kind| {
        let length = BODY.len();
        format!(
            "POST {CHAT} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    client.send(head("application/json")).await.unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"\r\n\r\n") {
        first.extend(client.some().await.expect("100"));
    }
    assert_eq!(first, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(BODY).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(stub.seen()[0].header("expect"), None);
    let mut client = rig.connect().await;
    client.send(head("text/plain")).await.unwrap();
    let refused = client.some().await.unwrap();
    assert!(refused.starts_with(b"HTTP/1.1 415"), "{:?}", String::from_utf8_lossy(&refused));
}

#[tokio::test(flavor = "multi_thread")]
async fn f106_heads_that_are_too_large() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    let fields: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    let long = "x".repeat(100 * 1024);
    for (what, bytes) in [
        ("101 fields", request("POST", CHAT, &format!("{JSON}{fields}"), BODY)),
        ("a long field", request("POST", CHAT, &format!("{JSON}x: {long}\r\n"), BODY)),
        ("a long line", request("POST", &format!("{CHAT}?{long}"), JSON, BODY)),
    ] {
        let mut client = rig.connect().await;
        // The answer may come, and the connection end, before all is sent.
        let _ = client.send(bytes).await;
        let answer = client.answer().await.unwrap_or_else(|| panic!("no answer to {what}"));
        assert!(matches!(answer.status, 414 | 431), "{what}: {}", answer.status);
        assert!(answer.json()["error"]["reason"].is_string(), "{what}");
    }
    assert_eq!(stub.count(), 0);
    for (what, headers) in [("101 fields", fields), ("a long field", format!("x: {long}\r\n"))] {
        stub.script(Script::raw(200, &headers, b"{}"));
        let mut client = rig.send(BODY).await;
        let answer = client.head().await.unwrap();
        assert!(matches!(answer.status, 200 | 502), "{what}");
        rig.quiet().await;
    }
    stub.script(Script::ok());
    let mut client = rig.send(BODY).await;
    assert_eq!(client.answer().await.unwrap().status, 200, "the worker is not taken for dead");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_1_is_refused() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |_| {}).await;
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not tls here\r\n\r\n",
        b"GET /live\r\n\r\n",
        b"GET /live HTTP/3.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n : x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut client = rig.connect().await;
        client.send(bytes).await.unwrap();
        let rest = client.rest().await;
        let text = String::from_utf8_lossy(&rest);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400 "), "{bytes:?}: {text}");
    }
    let mut client = rig.connect().await;
    let upgrade = "GET /live HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n";
    client.send(upgrade).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 200, "no switch of protocols");
}
