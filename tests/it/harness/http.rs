//! An HTTP/1.1 client at the level of bytes, and an easy one for JSON on top.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No test waits longer for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The body ended as HTTP says it must (last chunk, full length), or its end is the end of the connection.
    pub(crate) complete: bool,
}

impl Answer {
    /// The only header of that name; fails if there are several.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = found.next();
        assert!(found.next().is_none(), "more than one {name}: {:?}", self.headers);
        first
    }

    pub(crate) fn revision(&self) -> Option<u64> {
        self.header("x-tidegate-revision").map(|value| value.parse().expect("a revision is a number"))
    }

    pub(crate) fn worker(&self) -> Option<&str> {
        self.header("x-tidegate-worker")
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {:?}", self.status, self.text()))
    }

    /// `error.reason` of a refusal.
    pub(crate) fn reason(&self) -> String {
        self.json()["error"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// One connection: send what you like, read what comes.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await
    }

    /// Closes the sending side only (FIN).
    pub(crate) async fn finish(&mut self) -> std::io::Result<()> {
        self.stream.shutdown().await
    }

    /// Closes with RST.
    pub(crate) fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    pub(crate) fn local_port(&self) -> u16 {
        self.stream.local_addr().map(|address| address.port()).unwrap_or_default()
    }

    /// More bytes, or false at the end (FIN or RST).
    async fn fill(&mut self) -> bool {
        self.buffer.reserve(16 * 1024);
        let read = self.stream.read_buf(&mut self.buffer);
        matches!(tokio::time::timeout(PATIENCE, read).await.expect("an answer in time"), Ok(1..))
    }

    async fn take_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = self.buffer[..end].to_vec();
                self.buffer.drain(..end + 2);
                return Some(line);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < length {
            if !self.fill().await {
                return None;
            }
        }
        Some(self.buffer.drain(..length).collect())
    }

    /// Status and headers of the next answer, or none if the connection ended first. 1xx answers are skipped.
    pub(crate) async fn head(&mut self) -> Option<Answer> {
        loop {
            let line = String::from_utf8_lossy(&self.take_line().await?).into_owned();
            let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
            let mut headers = Vec::new();
            loop {
                let line = String::from_utf8_lossy(&self.take_line().await?).into_owned();
                if line.is_empty() {
                    break;
                }
                let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no header: {line:?}"));
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            if status != 100 {
                return Some(Answer { status, headers, body: Vec::new(), complete: false });
            }
        }
    }

    /// The next chunk of a chunked body; empty at its end, none if the connection ended first.
    pub(crate) async fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = String::from_utf8_lossy(&self.take_line().await?).into_owned();
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk size: {line:?}"));
        if size == 0 {
            while !self.take_line().await?.is_empty() {}
            return Some(Vec::new());
        }
        let data = self.take(size).await?;
        self.take(2).await?;
        Some(data)
    }

    /// Reads the body that belongs to `head`.
    pub(crate) async fn body(&mut self, mut head: Answer) -> Answer {
        let chunked = head.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"));
        if chunked {
            while let Some(chunk) = self.chunk().await {
                if chunk.is_empty() {
                    head.complete = true;
                    break;
                }
                head.body.extend(chunk);
            }
        } else if let Some(length) = head.header("content-length").map(|v| v.parse().expect("a length")) {
            while self.buffer.len() < length && self.fill().await {}
            let have = self.buffer.len().min(length);
            head.body = self.buffer.drain(..have).collect();
            head.complete = have == length;
        } else if head.status == 204 || head.status == 304 {
            head.complete = true;
        } else {
            while self.fill().await {}
            head.body = std::mem::take(&mut self.buffer);
            head.complete = true;
        }
        head
    }

    /// The next whole answer, or none if the connection ended before its head was there.
    pub(crate) async fn answer(&mut self) -> Option<Answer> {
        let head = self.head().await?;
        Some(self.body(head).await)
    }

    /// What has come, whatever it is; none at the end of the connection.
    pub(crate) async fn some(&mut self) -> Option<Vec<u8>> {
        let more = !self.buffer.is_empty() || self.fill().await;
        more.then(|| std::mem::take(&mut self.buffer))
    }

    /// Everything until the end of the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.buffer)
    }
}

/// The bytes of a request with a body; `headers` end in `\r\n` each.
pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}").into_bytes();
    if !body.is_empty() || method == "POST" {
        bytes.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
    }
    bytes.extend(b"\r\n");
    bytes.extend(body);
    bytes
}

/// Sends one request on a connection of its own; fails if there is no answer.
async fn once(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let mut connection = Connection::open(address).await.unwrap_or_else(|e| panic!("connect {address}: {e}"));
    let headers = format!("{headers}Connection: close\r\n");
    connection.send(request(method, path, &headers, body)).await.unwrap_or_else(|e| panic!("send: {e}"));
    connection.answer().await.unwrap_or_else(|| panic!("no answer to {method} {path}"))
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    once(address, "GET", path, "", b"").await
}

pub(crate) async fn delete(address: SocketAddr, path: &str) -> Answer {
    once(address, "DELETE", path, "", b"").await
}

/// Posts JSON.
pub(crate) async fn post(address: SocketAddr, path: &str, body: &Value) -> Answer {
    once(address, "POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes()).await
}

/// A small chat request.
pub(crate) fn chat_body(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hello"}]})
}

/// Sends a small chat request.
pub(crate) async fn chat(address: SocketAddr, model: &str) -> Answer {
    post(address, "/v1/chat/completions", &chat_body(model)).await
}
