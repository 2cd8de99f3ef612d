//! The accept loop: warp's filters (or any tower service) behind hyper's HTTP/1.1, with what a public port needs and
//! `warp::serve` does not have: a header time limit, a connection cap, a drain with a deadline (design section 3.7).

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::connection::{self, Setup};

/// Connections served beyond the cap, so that probes are still answered and the others learn why they are not.
const BEYOND_CAP: usize = 64;
/// How long accepting rests when the process has run out of descriptors.
const REST: Duration = Duration::from_millis(100);
/// Between two looks at whether the last request has ended.
const LOOK: Duration = Duration::from_millis(25);

/// What a listener grants its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// For the head of a request, from its first byte (and for the first byte of a new connection).
    pub header: Duration,
    /// For a connection between two requests.
    pub idle: Duration,
    /// Connections at a time; 64 more are served with [`Peer::beyond_cap`] set, further ones wait.
    pub connections: usize,
    /// A client that has ended its side still gets an answer that is ready within this time. Meanwhile its request
    /// keeps its place.
    pub last_words: Duration,
    /// Every request carries its [`Peer`] as an extension; else only those beyond the cap do.
    pub tell_peer: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            connections: 10_000,
            last_words: Duration::from_millis(200),
            tell_peer: false,
        }
    }
}

/// Where a request comes from: an extension of the request (`warp::ext`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// The connection is one too many: answer probes, refuse the rest. It ends with the answer.
    pub beyond_cap: bool,
}

/// The order of leaving, and who is still there. Cheap to clone; one for all listeners of a process.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<ControlInner>);

#[derive(Debug, Default)]
struct ControlInner {
    closing: CancellationToken,
    finish: CancellationToken,
    cut: CancellationToken,
    active: AtomicUsize,
}

impl Control {
    /// From now on every answer says `Connection: close`. What is answered is the service's affair.
    pub fn close_after_answers(&self) {
        self.0.closing.cancel();
    }

    /// Takes no new connections; the present ones end when they have no request in progress.
    pub fn finish(&self) {
        self.0.closing.cancel();
        self.0.finish.cancel();
    }

    /// Drops all connections, whatever they are doing.
    pub fn cut(&self) {
        self.finish();
        self.0.cut.cancel();
    }

    /// Requests in progress, from their head to the last byte of the answer.
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active.load(Ordering::Acquire)
    }

    /// Resolves when no request is in progress.
    pub async fn quiet(&self) {
        while self.active() > 0 {
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) fn closing(&self) -> bool {
        self.0.closing.is_cancelled()
    }

    pub(super) fn finishing(&self) -> &CancellationToken {
        &self.0.finish
    }

    pub(super) fn cutting(&self) -> &CancellationToken {
        &self.0.cut
    }

    pub(super) fn enter(&self) {
        self.0.active.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn leave(&self) {
        self.0.active.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Opens a port. IPv6 addresses take IPv4 clients too.
///
/// # Errors
/// Names the address that could not be bound.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    super::socket::listen(address)
}

/// Serves `service` on `listener` until [`Control::finish`] and the last connection's end, or until [`Control::cut`].
///
/// The service is cloned once per connection and called once per request, one after the other. Its future and the body
/// of its answer are dropped within a second when the client has gone.
pub async fn serve<S, B>(listener: TcpListener, limits: Limits, control: Control, service: S)
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let spare = Arc::new(Semaphore::new(BEYOND_CAP));
    let mut resting = false;
    loop {
        let next = async {
            let (place, beyond_cap) = place(&places, &spare).await?;
            Some((listener.accept().await, place, beyond_cap))
        };
        let accepted = tokio::select! {
            biased;
            () = control.finishing().cancelled() => break,
            next = next => next,
        };
        let Some((accepted, place, beyond_cap)) = accepted else { break };
        match accepted {
            Ok((stream, address)) => {
                resting = false;
                let setup = Setup { limits, control: control.clone(), peer: Peer { address, beyond_cap } };
                spawn(stream, setup, service.clone(), place);
            }
            Err(error) if only_this_client(&error) => {}
            Err(error) => {
                if !resting {
                    tracing::warn!(%error, "accepting rests: out of descriptors?");
                }
                resting = true;
                tokio::time::sleep(REST).await;
            }
        }
    }
    drop(listener);
    let all = async {
        let connections = u32::try_from(limits.connections).unwrap_or(u32::MAX);
        let _ = places.acquire_many(connections).await;
        let _ = spare.acquire_many(BEYOND_CAP as u32).await;
    };
    // Cut connections end by themselves as soon as they run; waiting for them returns their descriptors.
    all.await;
}

async fn place(places: &Arc<Semaphore>, spare: &Arc<Semaphore>) -> Option<(OwnedSemaphorePermit, bool)> {
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Some((place, false));
    }
    tokio::select! {
        biased;
        place = Arc::clone(places).acquire_owned() => Some((place.ok()?, false)),
        place = Arc::clone(spare).acquire_owned() => Some((place.ok()?, true)),
    }
}

fn spawn<S, B>(stream: TcpStream, setup: Setup, service: S, place: OwnedSemaphorePermit)
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    tokio::spawn(async move {
        connection::run(stream, setup, service).await;
        drop(place);
    });
}

/// Errors of `accept` that say something about one connection, not about this process.
fn only_this_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | TimedOut | WouldBlock
    )
}
