//! The client side: requests to a sidecar (from a frontend) or to an engine (from a sidecar), over pooled connections.
//!
//! It tells apart what decides whether a request may be sent again (design section 3.7): a connection that could not
//! be made, a reused one that closed before any byte of an answer, and everything else.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Longest time until a connection stands (design section 3.7).
pub const CONNECT: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// There was no connection; nothing was sent.
    #[error("cannot connect: {what}")]
    Connect {
        /// The other side said no, rather than nothing.
        refused: bool,
        /// Details.
        what: String,
    },
    /// A reused connection closed before any byte of an answer: most likely before it saw the request.
    #[error("a reused connection was closed")]
    Stale,
    /// The connection broke, or what came was not HTTP. The request may have been carried out.
    #[error("no valid answer: {0}")]
    Broken(String),
}

/// The client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Upstream {
    client: Client<Connector, Full<Bytes>>,
}

impl Upstream {
    /// A client that keeps unused connections for `idle`: less than the other side does.
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .build(Connector);
        Self { client }
    }

    /// Sends a request with an absolute URI and waits for the head of the answer. Dropping the future, or the answer's
    /// body before its end, closes the connection.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        match self.client.request(request).await {
            Ok(answer) => {
                if let Some(wire) = answer.extensions().get::<Arc<Wire>>() {
                    wire.used.store(true, Ordering::Release);
                }
                Ok(answer)
            }
            Err(error) => Err(failure(&error)),
        }
    }
}

fn failure(error: &Error) -> Failure {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let (mut refused, mut words) = (false, Vec::new());
    while let Some(e) = source {
        refused |= e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        words.push(e.to_string());
        source = e.source();
    }
    words.dedup();
    let what = words.join(": ");
    if error.is_connect() {
        return Failure::Connect { refused, what };
    }
    let mut extras = hyper::http::Extensions::new();
    if let Some(info) = error.connect_info() {
        info.get_extras(&mut extras);
    }
    match extras.get::<Arc<Wire>>() {
        Some(wire) if wire.used.load(Ordering::Acquire) && !wire.heard.load(Ordering::Acquire) => Failure::Stale,
        _ => Failure::Broken(what),
    }
}

/// What is known of one connection.
#[derive(Debug, Default)]
struct Wire {
    /// It has carried an answer before.
    used: AtomicBool,
    /// Something came since something was last sent.
    heard: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Connector;

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Line>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Line>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
            let port = uri.port_u16().unwrap_or(80);
            let connecting = TcpStream::connect((host, port));
            let stream = tokio::time::timeout(CONNECT, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {CONNECT:?}")))??;
            super::socket::prepare(&stream);
            Ok(TokioIo::new(Line { stream, wire: Arc::default() }))
        })
    }
}

/// A connection that notes whether anything came back.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    wire: Arc<Wire>,
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new().extra(Arc::clone(&self.wire))
    }
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.wire.heard.store(true, Ordering::Release);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.wire.heard.store(false, Ordering::Release);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.wire.heard.store(false, Ordering::Release);
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "upstream/tests.rs"]
mod tests;
