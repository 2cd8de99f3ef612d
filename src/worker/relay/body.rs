//! The body of an answer. It carries the slot: whatever becomes of the answer, the slot is given back once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::worker::gate::Slot;
use crate::worker::state::State;
use crate::worker::track::Tracked;

/// A request that the engine works on.
#[derive(Debug)]
pub(in crate::worker) struct InEngine {
    state: Arc<State>,
    place: Option<(Slot, Tracked)>,
    finished: bool,
}

impl InEngine {
    pub(super) fn new(state: Arc<State>, place: Option<(Slot, Tracked)>) -> Self {
        Self { state, place, finished: false }
    }

    /// Its answer is a stream of events.
    pub(super) fn streams(&mut self) {
        if let Some((_, tracked)) = &mut self.place {
            tracked.streams();
        }
    }

    /// It ended by itself, for better or worse: what follows is not a client that left.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    fn received(&mut self, bytes: &[u8]) {
        if let Some((_, tracked)) = &mut self.place {
            tracked.received(bytes);
        }
    }
}

impl Drop for InEngine {
    fn drop(&mut self) {
        if !self.finished {
            self.state.metrics.cancelled.inc();
        }
    }
}

/// An answer of our own, or the engine's.
#[derive(Debug)]
pub(in crate::worker) struct AnswerBody(Kind);

#[derive(Debug)]
enum Kind {
    Text(Option<Bytes>),
    Engine { incoming: Incoming, engine: InEngine },
}

impl AnswerBody {
    pub(super) fn engine(incoming: Incoming, mut engine: InEngine) -> Self {
        if incoming.is_end_stream() {
            engine.finish();
        }
        Self(Kind::Engine { incoming, engine })
    }
}

impl From<String> for AnswerBody {
    fn from(text: String) -> Self {
        Self(Kind::Text(Some(text.into()).filter(|bytes: &Bytes| !bytes.is_empty())))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let (incoming, engine) = match &mut self.0 {
            Kind::Text(text) => return Poll::Ready(text.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Engine { incoming, engine } => (incoming, engine),
        };
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref() {
                    engine.received(bytes);
                }
                if incoming.is_end_stream() {
                    engine.finish();
                }
            }
            // The transfer to the caller is broken off too: a cut answer must not pass for a whole one.
            Some(Err(_)) => {
                engine.state.metrics.engine_failures.inc();
                engine.finish();
            }
            None => engine.finish(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Text(text) => text.is_none(),
            Kind::Engine { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Engine { incoming, .. } => incoming.size_hint(),
        }
    }
}
