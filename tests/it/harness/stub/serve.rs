//! One connection of a scripted engine.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{Act, Script, Seen, State, lock};

/// A request under way; counts itself out on drop.
struct Running {
    state: Arc<Mutex<State>>,
    index: usize,
    served: bool,
}

impl Running {
    fn begin(state: &Arc<Mutex<State>>, head: Vec<u8>, body: Vec<u8>) -> (Self, Script) {
        let mut locked = lock(state);
        locked.running += 1;
        locked.peak = locked.peak.max(locked.running);
        locked.seen.push(Seen { head, body, at: Instant::now(), served: None });
        let script = locked.next.pop_front().unwrap_or_else(|| locked.always.clone());
        (Self { state: state.clone(), index: locked.seen.len() - 1, served: false }, script)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Ok(mut state) = self.state.lock() else { return };
        state.running -= 1;
        if let Some(seen) = state.seen.get_mut(self.index) {
            seen.served = Some(self.served);
        }
    }
}

/// Counts a held request in and, on drop, out.
struct Holding(Arc<Mutex<State>>);

impl Holding {
    fn new(state: &Arc<Mutex<State>>) -> Self {
        lock(state).holding += 1;
        Self(state.clone())
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.lock() {
            state.holding -= 1;
        }
    }
}

pub(super) async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>, gate: Arc<Semaphore>) {
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer).await {
        let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        let apart = match line.split(' ').nth(1) {
            Some("/health") => Some((lock(&state).health, String::new())),
            Some("/metrics") => Some((200, lock(&state).metrics.clone())),
            _ => None,
        };
        if let Some((status, page)) = apart {
            let text = format!(
                "HTTP/1.1 {status} Stub\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            );
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
            continue;
        }
        let (mut running, script) = Running::begin(&state, head, body);
        for act in script.0 {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Act::Pause(time) => {
                    if gone_during(&mut stream, &mut buffer, tokio::time::sleep(time)).await {
                        return;
                    }
                }
                Act::Hold => {
                    let _holding = Holding::new(&state);
                    let pass = async {
                        if let Ok(permit) = gate.acquire().await {
                            permit.forget();
                        }
                    };
                    if gone_during(&mut stream, &mut buffer, pass).await {
                        return;
                    }
                }
                Act::Silence => {
                    gone_during(&mut stream, &mut buffer, std::future::pending()).await;
                    return;
                }
                Act::Fin => {
                    running.served = true;
                    drop(running);
                    let _ = stream.shutdown().await;
                    return;
                }
                Act::Rst => {
                    running.served = true;
                    let _ = stream.set_zero_linger();
                    return;
                }
            }
        }
        running.served = true;
    }
}

/// Waits for `event`; true if the client went before it.
async fn gone_during(stream: &mut TcpStream, buffer: &mut Vec<u8>, event: impl Future<Output = ()>) -> bool {
    tokio::pin!(event);
    loop {
        buffer.reserve(4096);
        tokio::select! {
            () = &mut event => return false,
            read = stream.read_buf(buffer) => if !matches!(read, Ok(1..)) {
                return true;
            },
        }
    }
}

/// Reads one request: its head as it came, its body without chunk marks.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = find(stream, buffer, b"\r\n\r\n").await?;
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let field = |name: &str| text.split("\r\n").find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("expect:").is_some() {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.ok()?;
    }
    let mut body = Vec::new();
    if field("transfer-encoding:").is_some_and(|coding| coding == "chunked") {
        loop {
            let end = find(stream, buffer, b"\r\n").await?;
            let line: Vec<u8> = buffer.drain(..end + 2).collect();
            let line = String::from_utf8_lossy(&line);
            let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
            let have = size + 2;
            while buffer.len() < have {
                fill(stream, buffer).await?;
            }
            body.extend(buffer.drain(..have).take(size));
            if size == 0 {
                return Some((head, body));
            }
        }
    }
    let length = field("content-length:").map_or(Some(0), |value| value.parse().ok())?;
    while buffer.len() < length {
        fill(stream, buffer).await?;
    }
    body.extend(buffer.drain(..length));
    Some((head, body))
}

async fn find(stream: &mut TcpStream, buffer: &mut Vec<u8>, what: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = buffer.windows(what.len()).position(|window| window == what) {
            return Some(at);
        }
        fill(stream, buffer).await?;
    }
}

async fn fill(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    buffer.reserve(16 * 1024);
    matches!(stream.read_buf(buffer).await, Ok(1..)).then_some(())
}
