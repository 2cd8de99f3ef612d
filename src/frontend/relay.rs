//! The body of an engine's answer on its way to the client: bytes pass as they come, unparsed; the lease goes with them
//! (design section 3.7).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use tokio::time::{Instant, Sleep};

use super::admission::Lease;
use super::record::Record;
use crate::core::refusal::Fault;
use crate::http::dialect::Dialect;
use crate::metrics::frontend::End;

/// Aborts the transfer: the client must not take a cut answer for a whole one.
#[derive(Debug, thiserror::Error)]
#[error("the worker broke off its answer")]
pub(super) struct BrokenOff;

/// See the module.
#[derive(Debug)]
pub(super) struct Relay {
    /// What was read of the body before it was decided to pass it on.
    prefix: Option<Bytes>,
    /// What has been looked at by [`Relay::begin`] and is handed on next.
    first: Option<Bytes>,
    /// None: over.
    body: Option<Incoming>,
    lease: Option<Lease>,
    record: Record,
    events: Option<Events>,
    clock: Option<Box<Clock>>,
}

/// Where an event stream stands, so that an event of our own can be told apart from the engine's.
#[derive(Debug)]
pub(super) struct Events {
    dialect: Dialect,
    request_id: String,
    tail: [u8; 4],
}

/// Time limits within a stream; there are none by default.
#[derive(Debug)]
struct Clock {
    /// `--stream-idle-ms`
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    /// `--sse-keep-alive-ms`
    keep_alive: Option<(Duration, Pin<Box<Sleep>>)>,
}

/// What a [`Relay`] is made from.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) prefix: Option<Bytes>,
    pub(super) body: Incoming,
    pub(super) lease: Lease,
    pub(super) record: Record,
    pub(super) events: Option<Events>,
    pub(super) idle: Option<Duration>,
    pub(super) keep_alive: Option<Duration>,
}

impl Events {
    /// For an answer that is an event stream we can add to: not compressed, and of no fixed length.
    pub(super) fn of(headers: &HeaderMap, dialect: Dialect, request_id: impl FnOnce() -> String) -> Option<Self> {
        const KIND: &[u8] = b"text/event-stream";
        let kind = headers.get(CONTENT_TYPE)?.as_bytes().split_at_checked(KIND.len())?;
        let events = kind.0.eq_ignore_ascii_case(KIND) && matches!(kind.1.first(), None | Some(b';' | b' '));
        let plain = !headers.contains_key(CONTENT_ENCODING) && !headers.contains_key(CONTENT_LENGTH);
        (events && plain).then(|| Self { dialect, request_id: request_id(), tail: *b"\n\n\n\n" })
    }

    fn saw(&mut self, bytes: &[u8]) {
        let new = bytes.len().min(4);
        self.tail.rotate_left(new);
        if let (Some(to), Some(from)) = (self.tail.get_mut(4 - new..), bytes.get(bytes.len() - new..)) {
            to.copy_from_slice(from);
        }
    }

    /// The last event is complete: a blank line, in any of the three ways to end a line.
    fn at_boundary(&self) -> bool {
        matches!(&self.tail, [_, _, b'\n', b'\n'] | [_, _, b'\r', b'\r'] | [b'\r', b'\n', b'\r', b'\n'])
    }

    fn last(&self, fault: Fault) -> Bytes {
        self.dialect.event(&fault.words(), &self.request_id).into()
    }
}

impl Relay {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { prefix, body, lease, record, events, idle, keep_alive } = parts;
        let timer = |time: Duration| (time, Box::pin(tokio::time::sleep(time)));
        let keep_alive = keep_alive.filter(|_| events.is_some());
        let clock = (idle.is_some() || keep_alive.is_some())
            .then(|| Box::new(Clock { idle: idle.map(timer), keep_alive: keep_alive.map(timer) }));
        let mut relay = Self { prefix, first: None, body: Some(body), lease: Some(lease), record, events, clock };
        if relay.prefix.is_none() && relay.body.as_ref().is_some_and(Body::is_end_stream) {
            relay.finish();
        }
        relay
    }

    /// Nothing comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.body.is_none() && self.prefix.is_none() && self.first.is_none()
    }

    /// Looks at what has come with the head of the answer, without waiting.
    ///
    /// # Errors
    /// The answer broke off before any byte of its body: the head need not be passed on either.
    pub(super) fn begin(&mut self) -> Result<(), BrokenOff> {
        if self.is_over() {
            return Ok(());
        }
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(&mut *self).poll_next(&mut cx) {
            Poll::Ready(Some(Ok(first))) => {
                if self.record.is_broken() {
                    return Err(BrokenOff);
                }
                self.first = Some(first);
                Ok(())
            }
            Poll::Ready(Some(Err(broken))) => Err(broken),
            Poll::Ready(None) | Poll::Pending => Ok(()),
        }
    }

    fn finish(&mut self) {
        self.record.answered();
        self.body = None;
        self.lease = None;
    }

    fn passes(&mut self, bytes: Bytes) -> Bytes {
        if let Some(events) = &mut self.events {
            events.saw(&bytes);
        }
        if let Some(clock) = &mut self.clock {
            let now = Instant::now();
            for (time, timer) in [&mut clock.idle, &mut clock.keep_alive].into_iter().flatten() {
                timer.as_mut().reset(now + *time);
            }
        }
        bytes
    }

    /// The engine has gone in the middle of its answer.
    fn break_off(&mut self, fault: Fault, end: End) -> Result<Bytes, BrokenOff> {
        self.record.broke_off(end);
        self.body = None;
        self.lease = None;
        match &self.events {
            Some(events) if events.at_boundary() => Ok(events.last(fault)),
            _ => Err(BrokenOff),
        }
    }

    /// The engine is silent: our limit may be over, or the client's patience.
    fn silence(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>> {
        let Some(clock) = &mut self.clock else { return Poll::Pending };
        if let Some((_, timer)) = &mut clock.idle
            && timer.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Some(self.break_off(Fault::UpstreamTimeout, End::Timeout)));
        }
        if let Some((time, timer)) = &mut clock.keep_alive {
            while timer.as_mut().poll(cx).is_ready() {
                timer.as_mut().reset(Instant::now() + *time);
                if self.events.as_ref().is_some_and(Events::at_boundary) {
                    return Poll::Ready(Some(Ok(Bytes::from_static(KEEP_ALIVE))));
                }
            }
        }
        Poll::Pending
    }
}

/// A comment: clients of event streams pass over it.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

impl Stream for Relay {
    type Item = Result<Bytes, BrokenOff>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(prefix) = this.prefix.take() {
            if this.body.as_ref().is_some_and(Body::is_end_stream) {
                this.finish();
            }
            return Poll::Ready(Some(Ok(this.passes(prefix))));
        }
        loop {
            let Some(body) = &mut this.body else { return Poll::Ready(None) };
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let over = body.is_end_stream();
                    let data = frame.into_data();
                    if over {
                        this.finish();
                    }
                    // Trailers end at this hop.
                    if let Ok(data) = data {
                        return Poll::Ready(Some(Ok(this.passes(data))));
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Some(this.break_off(Fault::Upstream, End::Internal)));
                }
                Poll::Ready(None) => {
                    this.finish();
                    return Poll::Ready(None);
                }
                Poll::Pending => return this.silence(cx),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn events(fields: &[(hyper::header::HeaderName, &'static str)]) -> Option<Events> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(name, HeaderValue::from_static(value));
        }
        Events::of(&headers, Dialect::OpenAi, String::new)
    }

    #[test]
    fn only_plain_event_streams_can_be_added_to() {
        assert!(events(&[(CONTENT_TYPE, "text/event-stream")]).is_some());
        assert!(events(&[(CONTENT_TYPE, "Text/Event-Stream; charset=utf-8")]).is_some());
        assert!(events(&[(CONTENT_TYPE, "text/event-streams")]).is_none());
        assert!(events(&[(CONTENT_TYPE, "application/json")]).is_none());
        assert!(events(&[]).is_none());
        assert!(events(&[(CONTENT_TYPE, "text/event-stream"), (CONTENT_ENCODING, "gzip")]).is_none());
        assert!(events(&[(CONTENT_TYPE, "text/event-stream"), (CONTENT_LENGTH, "7")]).is_none());
    }

    #[test]
    fn f088_the_end_of_an_event_is_seen_however_the_bytes_are_cut() {
        for (text, want) in [
            ("", true),
            ("data: x\n\n", true),
            ("data: x\r\n\r\n", true),
            ("data: x\r\r", true),
            (": comment\n\n", true),
            ("data: x\n", false),
            ("data: x\r\n", false),
            ("data: x", false),
            ("data: x\n\ndata: y\n", false),
            ("\n", true),
        ] {
            for cut in 1..=text.len().max(1) {
                let mut events = events(&[(CONTENT_TYPE, "text/event-stream")]).expect("a stream");
                text.as_bytes().chunks(cut).for_each(|part| events.saw(part));
                assert_eq!(events.at_boundary(), want, "{text:?} in parts of {cut}");
            }
        }
    }
}
