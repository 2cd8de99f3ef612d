//! Streams whose engine takes long to begin, with `--sse-keep-alive-ms`: the answer begins with comments, so that no
//! load balancer takes the silence for an end (design section 3.7). What goes wrong afterwards is told in the stream.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use tokio::time::{Instant, Sleep};
use warp::Reply;
use warp::reply::Response;

use super::answer::Addressee;
use super::attempt::{Answered, Denied, Job, end_of, get_answer};
use super::edge::Edge;
use super::proxy;
use super::record::Record;
use super::relay::{BrokenOff, KEEP_ALIVE, Relay};
use crate::core::refusal::Fault;
use crate::http::body::Held;
use crate::http::headers::REQUEST_ID;

type Pending = Pin<Box<dyn Future<Output = (Result<Answered, Denied>, Record, u64)> + Send>>;

/// As [`proxy::serve`] from the admission on; if there is no answer within `interval`, a stream of our own begins.
pub(super) async fn serve(
    edge: Arc<Edge>,
    to: Addressee,
    mut job: Job,
    held: Held,
    mut record: Record,
    interval: Duration,
) -> Response {
    let noted = Arc::default();
    job.noted = Some(Arc::clone(&noted));
    let mut pending: Pending = Box::pin({
        let edge = Arc::clone(&edge);
        async move {
            let answer = get_answer(&edge, &job, &mut record).await;
            drop(held);
            (answer, record, job.parsed.tokens)
        }
    });
    match tokio::time::timeout(interval, pending.as_mut()).await {
        Ok((Ok(answered), record, _)) => proxy::pass_on(&edge, &to, answered, record),
        Ok((Err(denied), record, tokens)) => proxy::deny(&to, &denied, record, tokens),
        Err(_) => {
            let (to_headers, noted) = (to.clone(), noted.lock().unwrap_or_else(PoisonError::into_inner).take());
            let late = Late {
                edge,
                to,
                interval,
                timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
                state: State::Waiting(Mutex::new(pending)),
            };
            let mut answer = warp::reply::stream(late).into_response();
            let headers = answer.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            match noted {
                Some(facts) => proxy::decorate(headers, &to_headers, &facts),
                None => drop(headers.insert(REQUEST_ID, to_headers.id)),
            }
            answer
        }
    }
}

/// The stream: comments until the engine begins, then what it sends.
struct Late {
    edge: Arc<Edge>,
    to: Addressee,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    state: State,
}

enum State {
    /// The lock is never contended: warp wants bodies that can be shared between threads.
    Waiting(Mutex<Pending>),
    Relaying(Box<Relay>),
    Over,
}

impl Late {
    /// The engine's stream goes on in ours; anything else is told as an error event.
    fn begin(&mut self, answer: Result<Answered, Denied>, mut record: Record, tokens: u64) -> Option<Bytes> {
        self.state = State::Over;
        let words = match answer {
            Ok(answered) if answered.head.status.is_success() => {
                let (_, _, relay) = proxy::relay(&self.edge, &self.to, answered, record);
                self.state = State::Relaying(Box::new(relay));
                return None;
            }
            Ok(answered) => {
                record.head(answered.head.status.as_u16());
                record.answered();
                Fault::Upstream.words()
            }
            Err(Denied::Refused(refusal)) => {
                record.refused(refusal.reason, tokens);
                refusal.reason.words(self.to.overload)
            }
            Err(Denied::Failed(fault, _)) => {
                record.ended(end_of(fault));
                fault.words()
            }
        };
        Some(self.to.dialect.event(&words, &self.to.id()).into())
    }
}

impl Stream for Late {
    type Item = Result<Bytes, BrokenOff>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Waiting(pending) => {
                    let pending = pending.get_mut().unwrap_or_else(PoisonError::into_inner);
                    if let Poll::Ready((answer, record, tokens)) = pending.as_mut().poll(cx) {
                        if let Some(event) = this.begin(answer, record, tokens) {
                            return Poll::Ready(Some(Ok(event)));
                        }
                        continue;
                    }
                    if this.timer.as_mut().poll(cx).is_ready() {
                        this.timer.as_mut().reset(Instant::now() + this.interval);
                        return Poll::Ready(Some(Ok(Bytes::from_static(KEEP_ALIVE))));
                    }
                    return Poll::Pending;
                }
                State::Relaying(relay) => return Pin::new(&mut **relay).poll_next(cx),
                State::Over => return Poll::Ready(None),
            }
        }
    }
}
