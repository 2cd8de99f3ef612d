//! A scripted engine: sends the bytes it is told to, holds at a gate, and records what it saw.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

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

#[derive(Debug)]
struct State {
    always: Script,
    next: VecDeque<Script>,
    health: u16,
    metrics: String,
    seen: Vec<Seen>,
    running: usize,
    holding: usize,
    peak: usize,
    connections: usize,
}

/// A scripted engine on a loopback port. `/health` and `/metrics` are answered apart and not recorded.
#[derive(Debug)]
pub(crate) struct Stub {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    gate: Arc<Semaphore>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Stub {
    /// Starts one on a free port; it answers `Script::ok()`.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let stub = Self {
            address: listener.local_addr().expect("an address"),
            state: Arc::new(Mutex::new(State {
                always: Script::ok(),
                next: VecDeque::new(),
                health: 200,
                metrics: String::new(),
                seen: Vec::new(),
                running: 0,
                holding: 0,
                peak: 0,
                connections: 0,
            })),
            gate: Arc::new(Semaphore::new(0)),
            listener: Mutex::new(None),
        };
        stub.accept(listener);
        stub
    }

    fn accept(&self, listener: TcpListener) {
        let (state, gate) = (self.state.clone(), self.gate.clone());
        // Connections live in this set: they end with the listener's task.
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                lock(&state).connections += 1;
                connections.spawn(serve(stream, state.clone(), gate.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        *self.listener.lock().expect("no panic while locked") = Some(task);
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// For `--engine-url`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What to do with every request from now on.
    pub(crate) fn script(&self, script: Script) {
        lock(&self.state).always = script;
    }

    /// What to do with the next request (after those queued before).
    pub(crate) fn next(&self, script: Script) {
        lock(&self.state).next.push_back(script);
    }

    /// Forgets what was queued with [`Self::next`].
    pub(crate) fn clear(&self) {
        lock(&self.state).next.clear();
    }

    /// The status of `/health`.
    pub(crate) fn health(&self, status: u16) {
        lock(&self.state).health = status;
    }

    /// The page at `/metrics`.
    pub(crate) fn metrics(&self, page: &str) {
        page.clone_into(&mut lock(&self.state).metrics);
    }

    /// Lets `n` held requests go on.
    pub(crate) fn release(&self, n: usize) {
        self.gate.add_permits(n);
    }

    /// Lets all held requests go on, and those to come.
    pub(crate) fn open(&self) {
        self.gate.add_permits(1 << 24);
    }

    /// Requests hold again.
    pub(crate) fn shut(&self) {
        self.gate.forget_permits(usize::MAX >> 4);
    }

    /// Closes the port and all connections: connecting is refused from now on.
    pub(crate) async fn close_port(&self) {
        let task = self.listener.lock().expect("no panic while locked").take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    /// Opens the port again.
    pub(crate) async fn open_port(&self) {
        let listener = TcpListener::bind(self.address).await.expect("its port is still free");
        self.accept(listener);
    }

    /// All requests so far, in order of arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.state).seen.clone()
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> usize {
        lock(&self.state).seen.len()
    }

    /// Requests under way.
    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }

    /// Requests that wait at the gate.
    pub(crate) fn holding(&self) -> usize {
        lock(&self.state).holding
    }

    /// The most requests that were under way at one time.
    pub(crate) fn peak(&self) -> usize {
        lock(&self.state).peak
    }

    /// Requests whose client left before the script was done.
    pub(crate) fn abandoned(&self) -> usize {
        lock(&self.state).seen.iter().filter(|seen| seen.served == Some(false)).count()
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// Forgets what was seen.
    pub(crate) fn forget(&self) {
        let mut state = lock(&self.state);
        state.peak = state.running;
        let running: Vec<Seen> = state.seen.drain(..).filter(|seen| seen.served.is_none()).collect();
        assert!(running.is_empty(), "requests are under way");
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        if let Ok(mut listener) = self.listener.lock()
            && let Some(task) = listener.take()
        {
            task.abort();
        }
    }
}

fn lock(state: &Arc<Mutex<State>>) -> MutexGuard<'_, State> {
    state.lock().expect("no panic while locked")
}

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

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>, gate: Arc<Semaphore>) {
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
