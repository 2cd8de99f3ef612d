//! Forwards a request to the engine and its answer back, as it comes (design sections 3.5 and 3.7).

mod body;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyDataStream, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Request, Response, Uri, Version};

use crate::core::refusal::{Fault, SidecarRefusal};
use crate::http::body::{Buffers, read};
use crate::http::headers::{INCARNATION, WORKER, strip_hop_by_hop};
use crate::http::prompt;
use crate::http::upstream::{Failure, Upstream};

use super::answer::{fault, refusal};
use super::gate::{Slot, Turned};
use super::state::{Engine, State};
pub(super) use body::AnswerBody;
use body::InEngine;

/// Memory for request bodies that are kept until the engine answers.
const BUFFERS: usize = 1 << 30;
/// Bodies up to this size are read for their prompt within a millisecond or so.
const LARGE: usize = 512 * 1024;

/// Forwards requests. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Relay {
    state: Arc<State>,
    upstream: Upstream,
    buffers: Buffers,
}

impl Relay {
    pub(super) fn new(state: Arc<State>, upstream: Upstream) -> Self {
        Self { state, upstream, buffers: Buffers::new(BUFFERS) }
    }

    /// Serves a request of a generating route. Dropping the future, or the body of the answer before its end, gives the
    /// slot back and cancels the engine's work.
    pub(super) async fn generate(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (parts, incoming) = request.into_parts();
        // Also for a refusal the body is read first: an answer in the middle of it could be lost on the way.
        let length = incoming.size_hint().exact();
        let whole = match read(BodyDataStream::new(incoming), length, BUFFERS, &self.buffers).await {
            Ok(whole) => whole,
            Err(why) => return fault(why, None, &parts),
        };
        let slot = match self.admit(&parts.headers).await {
            Ok(slot) => slot,
            Err(why) => {
                self.state.metrics.refuse(why);
                return refusal(why, &parts);
            }
        };
        let tracked = self.state.tracker.forward(prompt_tokens(&whole.bytes).await);
        let engine = InEngine::new(Arc::clone(&self.state), Some((slot, tracked)));
        self.exchange(parts, whole.bytes, engine).await
    }

    /// Passes on a request that costs the engine nothing: no slot, no count.
    pub(super) async fn look(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (parts, _) = request.into_parts();
        if self.state.engine() != Engine::Up {
            return refusal(SidecarRefusal::EngineDown, &parts);
        }
        let engine = InEngine::new(Arc::clone(&self.state), None);
        self.exchange(parts, Bytes::new(), engine).await
    }

    async fn admit(&self, headers: &HeaderMap) -> Result<Slot, SidecarRefusal> {
        if let Some(meant) = headers.get(INCARNATION) {
            let place = self.state.place.load();
            let own = place.incarnation.as_ref().map(|own| own.as_str().as_bytes());
            if own != Some(meant.as_bytes()) {
                return Err(SidecarRefusal::Incarnation);
            }
        }
        tokio::select! {
            biased;
            () = self.state.engine_is_down() => Err(SidecarRefusal::EngineDown),
            entered = self.state.gate.enter() => entered.map_err(|turned| match turned {
                Turned::Full => SidecarRefusal::Capacity,
                Turned::Late => SidecarRefusal::QueueTimeout,
            }),
        }
    }

    async fn exchange(&self, parts: Parts, body: Bytes, mut engine: InEngine) -> Response<AnswerBody> {
        self.state.metrics.forwarded.inc();
        let Some(uri) = self.target(&parts) else {
            engine.finish();
            return fault(Fault::Framing, Some("the path is not valid"), &parts);
        };
        let mut outcome = self.upstream.send(onward(&parts, uri.clone(), body.clone())).await;
        if matches!(outcome, Err(Failure::Stale)) {
            self.state.metrics.replayed.inc();
            outcome = self.upstream.send(onward(&parts, uri, body)).await;
        }
        match outcome {
            Ok(answer) => back(answer, engine),
            Err(why) => {
                engine.finish();
                self.failed(&why, &parts)
            }
        }
    }

    fn failed(&self, why: &Failure, parts: &Parts) -> Response<AnswerBody> {
        self.state.metrics.engine_failures.inc();
        if let Failure::Connect { refused, .. } = why {
            // Nothing was sent: another worker may take it.
            if *refused && self.state.engine() == Engine::Up {
                self.state.set_engine(Engine::Down);
            }
            self.state.metrics.refuse(SidecarRefusal::EngineDown);
            return refusal(SidecarRefusal::EngineDown, parts);
        }
        tracing::debug!(%why, "the engine gave no answer");
        fault(Fault::Upstream, Some(&format!("The engine did not give an answer: {why}")), parts)
    }

    fn target(&self, parts: &Parts) -> Option<Uri> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        self.state.settings.engine_url.join(path).parse().ok()
    }
}

/// A large body is read beside the streams that this thread serves.
async fn prompt_tokens(body: &Bytes) -> u64 {
    if body.len() <= LARGE {
        return prompt::tokens(body);
    }
    let body = body.clone();
    tokio::task::spawn_blocking(move || prompt::tokens(&body)).await.unwrap_or(0)
}

/// The request as the engine gets it: the same but for what belongs to this hop or to the fleet.
fn onward(parts: &Parts, uri: Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = uri;
    let mut headers = parts.headers.clone();
    strip_hop_by_hop(&mut headers);
    for name in [HOST, EXPECT, CONTENT_LENGTH, INCARNATION, WORKER] {
        headers.remove(name);
    }
    *request.headers_mut() = headers;
    request
}

/// The answer as the caller gets it.
fn back(answer: Response<Incoming>, mut engine: InEngine) -> Response<AnswerBody> {
    let (mut parts, incoming) = answer.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    let streams = parts.headers.get(CONTENT_TYPE).is_some_and(|kind| {
        kind.as_bytes().get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"))
    });
    if streams {
        engine.streams();
    }
    Response::from_parts(parts, AnswerBody::engine(incoming, engine))
}
