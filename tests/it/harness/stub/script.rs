//! What an engine is told to do, and what it saw.

use std::time::{Duration, Instant};

use serde_json::json;

/// One step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Wait.
    Pause(Duration),
    /// Wait for a place from [`Stub::release`] or [`Stub::open`].
    Hold,
    /// Wait until the client has gone.
    Silence,
    /// Close the connection (FIN).
    Fin,
    /// Reset the connection.
    Rst,
}

/// What to do with a request. Without `Fin` or `Rst` at its end the connection is kept for the next one.
#[derive(Debug, Clone)]
pub(crate) struct Script(pub(crate) Vec<Act>);

impl Script {
    /// Answers at once.
    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::raw(status, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// Answers at once; `headers` end in `\r\n` each.
    pub(crate) fn raw(status: u16, headers: &str, body: &[u8]) -> Self {
        let mut bytes =
            format!("HTTP/1.1 {status} Stub\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        Self(vec![Act::Send(bytes)])
    }

    /// A small completion.
    pub(crate) fn ok() -> Self {
        Self::json(
            200,
            &json!({"id": "stub", "object": "chat.completion", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}),
        )
    }

    /// Holds, then answers.
    pub(crate) fn hold() -> Self {
        let mut script = Self::ok();
        script.0.insert(0, Act::Hold);
        script
    }

    /// The head of an event stream, one event, then the steps given.
    pub(crate) fn stream(rest: Vec<Act>) -> Self {
        let mut acts = vec![Act::Send(Self::STREAM_HEAD.to_vec()), Self::event("{\"n\":0}")];
        acts.extend(rest);
        Self(acts)
    }

    /// A stream that holds after its first event and then ends as it should.
    pub(crate) fn held_stream() -> Self {
        Self::stream(vec![Act::Hold, Self::event("[DONE]"), Self::last_chunk()])
    }

    pub(crate) const STREAM_HEAD: &'static [u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

    /// One event as one chunk.
    pub(crate) fn event(data: &str) -> Act {
        let text = format!("data: {data}\n\n");
        Act::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
    }

    pub(crate) fn last_chunk() -> Act {
        Act::Send(b"0\r\n\r\n".to_vec())
    }
}

/// A request that the engine has seen.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its bytes up to the blank line, that line included.
    pub(crate) head: Vec<u8>,
    /// Its body, without the chunk marks.
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
    /// None while it runs; then whether the client stayed to the end of the script.
    pub(crate) served: Option<bool>,
}

impl Seen {
    pub(crate) fn path(&self) -> String {
        String::from_utf8_lossy(&self.head).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<String> {
        String::from_utf8_lossy(&self.head).split("\r\n").skip(1).find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}
