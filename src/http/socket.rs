//! A client's socket: what hyper reads and writes, and what tells us that the other side has gone.
//!
//! hyper alone does not see the end of a connection behind bytes it has not asked for (a pipelined request, a stray
//! newline), so the socket is watched beside it (design section 3.7).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::core::refusal::Fault;

/// A peer that vanished without a word is given up after this long.
const VANISHED: Duration = Duration::from_secs(30);
/// Bytes of a request's head that are kept for the framing check.
const HEAD_KEPT: usize = 64 * 1024;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing of the next request has come.
    Idle,
    /// The head of a request is coming in.
    Head,
    /// A request is being answered.
    Busy,
}

/// What the reader, the handler and the watcher of one connection share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The phase in the two lowest bits, above them the milliseconds since `born` when it began.
    phase: AtomicU64,
    born: Instant,
    /// What was read since the last request began: the head as the client sent it.
    head: Mutex<Vec<u8>>,
}

impl Shared {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { phase: AtomicU64::new(0), born: Instant::now(), head: Mutex::default() })
    }

    /// The phase, and when it began.
    pub(super) fn phase(&self) -> (Phase, Instant) {
        let word = self.phase.load(Ordering::Acquire);
        let phase = match word & 3 {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Busy,
        };
        (phase, self.born + Duration::from_millis(word >> 2))
    }

    pub(super) fn enter(&self, phase: Phase) {
        let ms = u64::try_from(self.born.elapsed_ms()).unwrap_or(u64::MAX >> 2);
        self.phase.store(ms << 2 | phase as u64, Ordering::Release);
    }

    /// The head of the request that begins now has been read.
    ///
    /// Says whether it names a length beside the transfer coding; hyper drops the former silently when it comes last.
    pub(super) fn begin(&self, chunked: bool) -> bool {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let length_too = chunked && names_a_length(&head);
        head.clear();
        drop(head);
        self.enter(Phase::Busy);
        length_too
    }

    fn has_read(&self, bytes: &[u8]) {
        let (phase, _) = self.phase();
        if bytes.is_empty() || phase == Phase::Busy {
            return;
        }
        if phase == Phase::Idle {
            self.enter(Phase::Head);
        }
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEAD_KEPT.saturating_sub(head.len()).min(bytes.len());
        head.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

trait ElapsedMs {
    fn elapsed_ms(&self) -> u128;
}

impl ElapsedMs for Instant {
    fn elapsed_ms(&self) -> u128 {
        Instant::now().saturating_duration_since(*self).as_millis()
    }
}

/// Whether a header `Content-Length` stands in a raw head.
fn names_a_length(head: &[u8]) -> bool {
    const NAME: &[u8] = b"content-length";
    head.split(|b| *b == b'\n')
        .take_while(|line| !matches!(line, [] | [b'\r']))
        .filter_map(|line| line.split_at_checked(NAME.len()))
        .any(|(name, rest)| {
            name.eq_ignore_ascii_case(NAME) && rest.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b':')
        })
}

/// Sets what every accepted socket needs. Errors are those of a socket that has gone already: the next read tells.
pub(super) fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let probes = socket2::TcpKeepalive::new().with_time(VANISHED / 3).with_interval(VANISHED / 6);
    #[cfg(target_os = "linux")]
    let probes = probes.with_retries(4);
    let _ = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(VANISHED));
}

/// Resolves when the client has ended its side (`false`) or the whole connection (`true`); bytes that nobody has read
/// do not hide it.
pub(super) async fn gone(stream: &TcpStream) -> bool {
    // The readiness "priority" never comes, as it is not asked of the kernel; "read closed" comes with it.
    #[cfg(target_os = "linux")]
    match stream.ready(tokio::io::Interest::PRIORITY).await {
        Ok(_) => stream.peer_addr().is_err() || matches!(stream.take_error(), Ok(Some(_)) | Err(_)),
        Err(_) => true,
    }
    #[cfg(not(target_os = "linux"))]
    std::future::pending().await
}

/// Stands in every bare answer of hyper's.
const EMPTY: &[u8] = b"content-length: 0\r\n";

/// hyper's side of the socket.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) stream: Arc<TcpStream>,
    pub(super) shared: Arc<Shared>,
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let before = buf.filled().len();
            match self.stream.try_read_buf(buf) {
                Ok(_) => {
                    self.shared.has_read(buf.filled().get(before..).unwrap_or_default());
                    return Poll::Ready(Ok(()));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl Io {
    /// hyper answers a head it cannot read with a bare status; ours has a body that says what is wrong. A service's
    /// own 400 has a body, and may be written after its end was reached (the phase is then no longer busy).
    fn own_words(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.shared.phase().0 == Phase::Busy {
            return None;
        }
        let status: [u8; 3] = bytes.strip_prefix(b"HTTP/1.1 ")?.first_chunk().copied()?;
        if !bytes.windows(EMPTY.len()).any(|window| window == EMPTY) {
            return None;
        }
        let fault = match &status {
            b"400" => Fault::Framing,
            b"414" => Fault::UriTooLong,
            b"431" => Fault::HeadersTooLarge,
            _ => return None,
        };
        Some(super::dialect::raw(fault))
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            if let Some(own) = self.own_words(buf) {
                // The connection ends behind it, so what a full socket buffer would not take is of no use later.
                let _ = self.stream.try_write(&own);
                return Poll::Ready(Ok(buf.len()));
            }
            match self.stream.try_write(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            if let Some(own) = bufs.first().and_then(|first| self.own_words(first)) {
                let _ = self.stream.try_write(&own);
                return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
            }
            match self.stream.try_write_vectored(bufs) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.stream).shutdown(std::net::Shutdown::Write))
    }
}

/// A listening socket: IPv6 ones take IPv4 clients too, a port just left can be taken at once.
///
/// # Errors
/// Says which address could not be bound.
pub(super) fn listen(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // Some kernels have no IPv4 half to offer.
        let _ = socket.set_only_v6(false);
    }
    socket.set_nonblocking(true)?;
    let named = |e: io::Error| io::Error::new(e.kind(), format!("cannot listen on {address}: {e}"));
    socket.bind(&address.into()).map_err(named)?;
    socket.listen(4096).map_err(named)?;
    tokio::net::TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn f105_a_peer_that_vanishes_is_given_up_after_30_s() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (_client, (stream, _)) = (client.unwrap(), accepted.unwrap());
        prepare(&stream);
        let socket = socket2::SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        let probes = socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert_eq!(socket.tcp_keepalive_time().unwrap() + probes, VANISHED);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(VANISHED));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_end_is_seen_behind_bytes_that_nobody_reads() {
        for reset in [false, true] {
            let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let address = listener.local_addr().unwrap();
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let (client, (stream, _)) = (client.unwrap(), accepted.unwrap());
            client.writable().await.unwrap();
            client.try_write(b"unread").unwrap();
            stream.readable().await.unwrap();
            let silent = tokio::time::timeout(Duration::from_millis(50), gone(&stream)).await;
            assert!(silent.is_err(), "it is there");
            if reset {
                client.set_zero_linger().unwrap();
            }
            drop(client);
            assert_eq!(gone(&stream).await, reset, "a reset ends both sides");
        }
    }

    #[test]
    fn finds_a_length_in_a_raw_head_only() {
        let chunked = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n";
        assert!(names_a_length(format!("{chunked}Content-Length: 5\r\n\r\n").as_bytes()));
        assert!(names_a_length(format!("{chunked}CONTENT-LENGTH:blah\n\n").as_bytes()));
        assert!(!names_a_length(format!("{chunked}X-Content-Length: 5\r\n\r\n").as_bytes()));
        assert!(!names_a_length(format!("{chunked}\r\ncontent-length: 5\r\n\r\n").as_bytes()));
        assert!(!names_a_length(format!("{chunked}content-length-x: 5\r\n\r\n").as_bytes()));
    }
}
