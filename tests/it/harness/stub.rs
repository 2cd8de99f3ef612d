//! A scripted engine: sends the bytes it is told to, holds at a gate, and records what it saw.

mod script;
mod serve;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub(crate) use script::{Act, Script, Seen};
use serve::serve;

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
