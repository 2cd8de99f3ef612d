//! Against a server that does exactly what it is told.

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// What the server does with one request of one connection.
#[derive(Clone, Copy)]
enum Reply {
    Answer,
    /// Sends this much of an answer, then closes.
    Cut(&'static [u8]),
}

/// Serves the connections in turn; each runs through its replies.
async fn server(connections: &'static [&'static [Reply]]) -> Uri {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/x", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        for replies in connections {
            let (mut stream, _) = listener.accept().await.unwrap();
            for reply in *replies {
                let mut seen = Vec::new();
                while !seen.ends_with(b"\r\n\r\n") {
                    assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "the client went");
                }
                match reply {
                    Reply::Answer => {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
                    }
                    Reply::Cut(bytes) => {
                        stream.write_all(bytes).await.unwrap();
                        break;
                    }
                }
            }
        }
    });
    uri
}

async fn get(upstream: &Upstream, uri: &Uri) -> Result<Bytes, Failure> {
    let answer = upstream.send(Request::get(uri.clone()).body(Full::default()).unwrap()).await?;
    Ok(answer.into_body().collect().await.unwrap().to_bytes())
}

fn upstream() -> Upstream {
    Upstream::new(Duration::from_secs(60))
}

#[tokio::test]
async fn f097_a_reused_connection_that_closes_unheard_is_stale() {
    let uri = server(&[&[Reply::Answer, Reply::Cut(b"")], &[Reply::Answer]]).await;
    let upstream = upstream();
    assert_eq!(get(&upstream, &uri).await.unwrap(), "hi");
    assert_eq!(get(&upstream, &uri).await, Err(Failure::Stale));
    assert_eq!(get(&upstream, &uri).await.unwrap(), "hi");
}

#[tokio::test]
async fn after_one_byte_of_an_answer_a_reused_connection_is_not_stale() {
    let uri = server(&[&[Reply::Answer, Reply::Cut(b"H")]]).await;
    let upstream = upstream();
    assert_eq!(get(&upstream, &uri).await.unwrap(), "hi");
    assert!(matches!(get(&upstream, &uri).await, Err(Failure::Broken(_))));
}

#[tokio::test]
async fn a_fresh_connection_that_closes_is_broken() {
    for cut in [&b""[..], b"HTTP/9.9 ???\r\n\r\n"] {
        let script: &'static [Reply] = vec![Reply::Cut(cut)].leak();
        let uri = server(vec![script].leak()).await;
        assert!(matches!(get(&upstream(), &uri).await, Err(Failure::Broken(_))));
    }
}

#[tokio::test]
async fn a_closed_port_is_a_refused_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    assert!(matches!(get(&upstream(), &uri).await, Err(Failure::Connect { refused: true, .. })));
}

#[tokio::test]
async fn an_ipv6_address_is_reached() {
    let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
    let uri: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let client = upstream();
    let (accepted, _) = tokio::join!(listener.accept(), async {
        tokio::time::timeout(Duration::from_secs(1), get(&client, &uri)).await
    });
    assert!(accepted.is_ok());
}
