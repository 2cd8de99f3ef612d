//! A TCP proxy that does harm, to stand between a process and Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to the bytes, from now on, on all connections old and new.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// They pass.
    None,
    /// Each part waits for a random time between the two, in both directions.
    Delay(Duration, Duration),
    /// Nothing moves, new connections are accepted: a server that hangs.
    Freeze,
    /// All connections are reset, new ones too.
    Reset,
    /// Requests arrive, replies are thrown away.
    SwallowReplies,
    /// As before, but a reply is thrown away, and its connection reset, with this probability.
    LoseReplies(f64),
    /// A connection is reset after this many more bytes of replies.
    CutAfter(u64),
}

/// A proxy on a loopback port. Its connections end with it.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    lost: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// A proxy for `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (fault, watch) = watch::channel(Fault::None);
        let lost = Arc::new(AtomicU64::new(0));
        let counter = lost.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, target, watch.clone(), counter.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, fault, lost, task }
    }

    /// A proxy for the Redis at `url`.
    pub(crate) async fn before(redis: &super::Redis) -> Self {
        let url = url::Url::parse(redis.url()).expect("a URL");
        let host = (url.host_str().unwrap_or("127.0.0.1").to_owned(), url.port().unwrap_or(6379));
        let target = tokio::net::lookup_host(host).await.expect("a host").next().expect("an address");
        Self::start(target).await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of `redis`, through this proxy.
    pub(crate) fn url(&self, redis: &super::Redis) -> String {
        let mut url = url::Url::parse(redis.url()).expect("a URL");
        url.set_host(Some("127.0.0.1")).expect("a host");
        url.set_port(Some(self.address.port())).expect("a port");
        url.to_string()
    }

    /// What happens from now on.
    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Replies thrown away so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(client: TcpStream, target: SocketAddr, fault: watch::Receiver<Fault>, lost: Arc<AtomicU64>) {
    let _ = client.set_nodelay(true);
    let _ = client.set_zero_linger();
    let mut reset = fault.clone();
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = server.set_nodelay(true);
    let _ = server.set_zero_linger();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first of these to end drops all halves: with the linger time of zero that resets both connections.
    tokio::select! {
        () = forward(from_client, to_server, fault.clone(), None) => {}
        () = forward(from_server, to_client, fault, Some(lost)) => {}
        _ = reset.wait_for(|fault| *fault == Fault::Reset) => {}
    }
}

/// Copies until an end or a fault. `lost` counts; it is given for the direction of the replies.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fault: watch::Receiver<Fault>,
    lost: Option<Arc<AtomicU64>>,
) {
    let mut part = vec![0; 16 * 1024];
    let mut passed = 0;
    loop {
        let Ok(n @ 1..) = from.read(&mut part).await else { return };
        if fault.wait_for(|fault| *fault != Fault::Freeze).await.is_err() {
            return;
        }
        let now = fault.borrow_and_update().clone();
        if now == Fault::None {
            passed = 0;
        }
        let mut send = n;
        match (now, &lost) {
            (Fault::Delay(least, most), _) => tokio::time::sleep(rand::random_range(least..=most)).await,
            (Fault::SwallowReplies, Some(lost)) => {
                lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            (Fault::LoseReplies(chance), Some(lost)) if rand::random_bool(chance) => {
                lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            (Fault::CutAfter(bytes), Some(_)) => {
                let left = usize::try_from(bytes - passed.min(bytes)).unwrap_or(usize::MAX);
                send = n.min(left);
                passed += n as u64;
            }
            _ => {}
        }
        if to.write_all(&part[..send]).await.is_err() || send < n {
            return;
        }
    }
}
