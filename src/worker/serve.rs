//! The sidecar's routes (design section 6).

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use serde_json::json;

use crate::core::refusal::Fault;
use crate::core::registrar::Standing;
use crate::http::serve::Peer;

use super::admin::{Admin, json};
use super::answer::fault;
use super::relay::{AnswerBody, Relay};
use super::report::WATCHED;
use super::state::{Engine, State};

/// Where work for the engine arrives.
const GENERATING: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
];

/// What is served on the port. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Routes {
    pub(super) state: Arc<State>,
    pub(super) relay: Relay,
    pub(super) admin: Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Generate,
    Models,
    Live,
    Ready,
    Metrics,
    Load,
    Limits,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        match path {
            "/live" => Some(Self::Live),
            "/ready" => Some(Self::Ready),
            "/metrics" => Some(Self::Metrics),
            "/load" => Some(Self::Load),
            "/limits" => Some(Self::Limits),
            "/v1/models" => Some(Self::Models),
            path if GENERATING.contains(&path) => Some(Self::Generate),
            path if path.strip_prefix("/v1/models/").is_some_and(|id| !id.is_empty()) => Some(Self::Models),
            _ => None,
        }
    }

    fn takes(self, method: &Method) -> bool {
        match self {
            Self::Generate | Self::Load | Self::Limits => method == Method::POST,
            Self::Models | Self::Live | Self::Ready | Self::Metrics => method == Method::GET || method == Method::HEAD,
        }
    }

    fn allow(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Generate | Self::Load | Self::Limits => "POST",
            Self::Models | Self::Live | Self::Ready | Self::Metrics => "GET, HEAD",
        })
    }
}

impl Routes {
    async fn answer(self, request: Request<Incoming>) -> Response<AnswerBody> {
        let Some(route) = Route::of(request.uri().path()) else {
            return refused(Fault::Route, request);
        };
        if !route.takes(request.method()) {
            let mut answer = refused(Fault::Method, request);
            answer.headers_mut().insert(ALLOW, route.allow());
            return answer;
        }
        let probe = matches!(route, Route::Live | Route::Ready);
        if !probe && request.extensions().get::<Peer>().is_some_and(|peer| peer.beyond_cap) {
            return refused(Fault::Connections, request);
        }
        match route {
            Route::Generate => self.relay.generate(request).await,
            Route::Models => self.relay.look(request).await,
            Route::Live => json(200, &json!({ "status": "live" })),
            Route::Ready => self.ready(),
            Route::Metrics => self.metrics(&request.into_parts().0),
            Route::Load => self.admin.load(request).await,
            Route::Limits => self.admin.limits(request).await,
        }
    }

    fn ready(&self) -> Response<AnswerBody> {
        let reason = if self.state.draining() {
            "draining"
        } else {
            match (self.state.engine(), self.state.place.load().standing) {
                (_, Standing::Lost) => "superseded",
                (Engine::Unknown, _) => "engine_not_seen",
                (Engine::Down, _) => "engine_down",
                (Engine::Up, Standing::Unknown) => "not_registered",
                (Engine::Up, Standing::Held) => return json(200, &json!({ "status": "ready" })),
            }
        };
        json(503, &json!({ "status": "not ready", "reason": reason }))
    }

    fn metrics(&self, parts: &Parts) -> Response<AnswerBody> {
        let state = &self.state;
        let metrics = &state.metrics;
        let (counts, limits) = (state.gate.counts(), state.gate.limits());
        let set = |gauge: &prometheus::IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        let flag = |gauge: &prometheus::IntGauge, on: bool| gauge.set(on.into());
        set(&metrics.engine_requests, counts.running);
        set(&metrics.queue, counts.queued);
        metrics.request_limit.set(limits.slots.map_or(-1, |slots| i64::try_from(slots).unwrap_or(i64::MAX)));
        set(&metrics.queue_limit, limits.queue);
        set(&metrics.tracked_prefill_tokens, state.tracker.prefill_tokens());
        set(&metrics.tracked_decode_blocks, state.tracker.decode_blocks().unwrap_or(0));
        let standing = state.place.load().standing;
        flag(&metrics.engine_up, state.engine() == Engine::Up);
        flag(&metrics.registered, standing == Standing::Held);
        flag(&metrics.superseded, standing == Standing::Lost);
        flag(&metrics.draining, state.draining());
        for kind in WATCHED {
            metrics.set_missing(kind, !state.load.knows(kind));
        }
        match metrics.page() {
            Ok(page) => {
                let mut answer = Response::new(AnswerBody::from(page));
                let kind = HeaderValue::from_static(crate::metrics::CONTENT_TYPE);
                answer.headers_mut().insert(CONTENT_TYPE, kind);
                answer
            }
            Err(error) => {
                tracing::error!(%error, "the metrics page cannot be written");
                fault(Fault::Upstream, Some("The metrics page cannot be written"), parts)
            }
        }
    }
}

fn refused(why: Fault, request: Request<Incoming>) -> Response<AnswerBody> {
    fault(why, None, &request.into_parts().0)
}

impl tower_service::Service<Request<Incoming>> for Routes {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let routes = self.clone();
        Box::pin(async move { Ok(routes.answer(request).await) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f115_a_path_is_a_route_letter_by_letter() {
        for path in ["/v1/chat/completions/", "//v1/chat/completions", "/v1/chat%2Fcompletions", "/v1/models/", "/Live"]
        {
            assert_eq!(Route::of(path), None, "{path}");
        }
        assert_eq!(Route::of("/v1/models/org/m"), Some(Route::Models));
        assert!(GENERATING.iter().all(|path| Route::of(path) == Some(Route::Generate)));
        assert!(!Route::Generate.takes(&Method::GET) && Route::Live.takes(&Method::HEAD));
    }
}
