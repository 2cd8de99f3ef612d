//! One client connection: its requests one after the other, its time limits, and its end.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::dialect::{Dialect, json_answer, raw};
use super::serve::{Control, Limits, Peer};
use super::socket::{self, Io, Phase, Shared};
use crate::core::refusal::Fault;

/// Most that is read, and for how long, from a client whose request was answered before it had all come: closing at
/// once would make the kernel throw the answer away.
const LINGER: (usize, Duration) = (16 * 1024 * 1024, Duration::from_secs(1));
/// hyper's buffers, and so the most that the head of a request may take.
const BUFFER: usize = 64 * 1024;
/// Most header fields of a request.
const FIELDS: usize = 100;

pub(super) struct Setup {
    pub(super) limits: Limits,
    pub(super) control: Control,
    pub(super) peer: Peer,
}

/// Serves a connection to its end.
pub(super) async fn run<S, B>(stream: TcpStream, setup: Setup, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    socket::prepare(&stream);
    let stream = Arc::new(stream);
    let shared = Shared::new();
    let Setup { limits, control, peer } = setup;
    let io = TokioIo::new(Io { stream: Arc::clone(&stream), shared: Arc::clone(&shared) });
    let requests = Requests {
        service: Mutex::new(service),
        shared: Arc::clone(&shared),
        control: control.clone(),
        tell: (limits.tell_peer || peer.beyond_cap).then_some(peer),
        close: peer.beyond_cap,
    };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.half_close(true).header_read_timeout(None).max_buf_size(BUFFER).max_header_size(BUFFER).max_headers(FIELDS);
    let mut connection = pin!(builder.serve_connection(io, requests));
    let watch = async {
        tokio::select! {
            biased;
            () = control.cutting().cancelled() => {}
            () = left(&stream, &shared, limits.last_words) => {}
            () = overdue(&shared, limits) => {
                if shared.phase().0 == Phase::Head {
                    let _ = stream.try_write(&raw(Fault::HeaderTimeout));
                }
            }
        }
    };
    let mut watch = pin!(watch);
    tokio::select! {
        biased;
        _ = connection.as_mut() => {}
        () = watch.as_mut() => return,
        () = control.finishing().cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                _ = connection => {}
                () = watch => return,
            }
        }
    }
    linger(&stream).await;
}

/// The client has gone: at once if the connection is dead, after its last words if it has only ended its side.
async fn left(stream: &TcpStream, shared: &Shared, last_words: Duration) {
    if !socket::gone(stream).await && shared.phase().0 != Phase::Idle {
        tokio::time::sleep(last_words).await;
    }
}

/// The client has taken too long over a head, or over sending nothing.
async fn overdue(shared: &Shared, limits: Limits) {
    loop {
        let (phase, since) = shared.phase();
        let now = Instant::now();
        let due = match phase {
            Phase::Idle => since + limits.idle,
            Phase::Head => since + limits.header,
            Phase::Busy => now + limits.header,
        };
        if due <= now {
            return;
        }
        // A phase that begins while this sleeps lasts at least as long as the sleep.
        tokio::time::sleep_until(due.min(now + limits.header.min(limits.idle))).await;
    }
}

async fn linger(stream: &TcpStream) {
    let (mut room, time) = LINGER;
    let rest = async {
        let mut buf = [0_u8; 4096];
        while room > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut buf) {
                Ok(0) => break,
                Ok(n) => room = room.saturating_sub(n),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    let _ = tokio::time::timeout(time, rest).await;
}

/// The requests of one connection: the service, called once at a time.
struct Requests<S> {
    service: Mutex<S>,
    shared: Arc<Shared>,
    control: Control,
    tell: Option<Peer>,
    close: bool,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Requests<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<Answer<B>>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let progress = Progress { shared: Arc::clone(&self.shared), control: self.control.clone() };
        progress.control.enter();
        let chunked = request.headers().contains_key(TRANSFER_ENCODING);
        let length_too = self.shared.begin(chunked);
        if chunked && (length_too || !plainly_framed(request.headers())) {
            return Answering { handler: None, progress: Some(progress), close: true };
        }
        if let Some(peer) = self.tell {
            request.extensions_mut().insert(peer);
        }
        let handler = self.service.lock().unwrap_or_else(PoisonError::into_inner).call(request);
        Answering { handler: Some(handler), progress: Some(progress), close: self.close }
    }
}

/// A request with a transfer coding: just `chunked`, and no length beside it. Anything else could be read as two
/// different messages by two servers.
fn plainly_framed(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    chunked && codings.next().is_none() && !headers.contains_key(CONTENT_LENGTH)
}

/// A request in progress; its drop is the end of the answer, or of the client's patience.
struct Progress {
    shared: Arc<Shared>,
    control: Control,
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.enter(Phase::Idle);
        self.control.leave();
    }
}

pin_project_lite::pin_project! {
    /// The handler of a request; none if the request was refused unread.
    struct Answering<F> {
        #[pin]
        handler: Option<F>,
        progress: Option<Progress>,
        close: bool,
    }
}

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<Answer<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = match this.handler.as_pin_mut() {
            Some(handler) => match ready!(handler.poll(cx)) {
                Ok(answer) => {
                    answer.map(|body| Answer { body: Either::Handler { body }, progress: this.progress.take() })
                }
                Err(never) => match never {},
            },
            None => refused_unread().map(|text| Answer { body: Either::Text { text }, progress: this.progress.take() }),
        };
        let closing = answer.body().progress.as_ref().is_some_and(|progress| progress.control.closing());
        if *this.close || closing {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(answer))
    }
}

fn refused_unread() -> Response<Option<Bytes>> {
    let words = Fault::Framing.words();
    json_answer::<String>(words.status, Dialect::OpenAi.body(&words, None, None, "")).map(|body| Some(body.into()))
}

pin_project_lite::pin_project! {
    /// The body of an answer. The request is in progress until it has been sent or dropped.
    struct Answer<B> {
        #[pin]
        body: Either<B>,
        progress: Option<Progress>,
    }
}

pin_project_lite::pin_project! {
    #[project = EitherPinned]
    enum Either<B> {
        Handler { #[pin] body: B },
        Text { text: Option<Bytes> },
    }
}

impl<B: Body<Data = Bytes>> Body for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().body.project() {
            EitherPinned::Handler { body } => body.poll_frame(cx),
            EitherPinned::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Handler { body } => body.is_end_stream(),
            Either::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Handler { body } => body.size_hint(),
            Either::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
        }
    }
}
