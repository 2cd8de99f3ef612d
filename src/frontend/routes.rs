//! The routes of a frontend: one table, matched by the whole path. A path that is not in it is a 404, another method a
//! 405 with `Allow`; nothing is redirected (design section 5).

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Buf;
use futures_util::Stream;
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use subtle::ConstantTimeEq;
use warp::filters::path::FullPath;
use warp::reply::Response;
use warp::{Filter, Rejection};

use super::answer::Addressee;
use super::busy_threshold::{self, Change, Problem};
use super::edge::Edge;
use super::pages;
use super::proxy::{self, Proxied};
use crate::core::refusal::Fault;
use crate::http::body;
use crate::http::dialect::Dialect;
use crate::http::headers::expect_json;
use crate::http::serve::Peer;
use crate::metrics::frontend::Endpoint;

/// Largest body of `POST /busy_threshold`.
const SMALL_BODY: usize = 64 * 1024;

/// Which port a request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// `--http-listen`, without `--admin-listen`: everything.
    Only,
    /// `--http-listen`, beside an admin port.
    Public,
    /// `--admin-listen`.
    Admin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route<'a> {
    Proxied(&'static Proxied),
    Models,
    Model(&'a str),
    Thresholds,
    Live,
    Ready,
    Health,
    Metrics,
    Fleet,
}

const fn proxied(path: &'static str, dialect: Dialect, endpoint: Endpoint) -> Proxied {
    Proxied { path, dialect, endpoint }
}

static PROXIED: [Proxied; 6] = [
    proxied("/v1/chat/completions", Dialect::OpenAi, Endpoint::ChatCompletions),
    proxied("/v1/completions", Dialect::OpenAi, Endpoint::Completions),
    proxied("/v1/embeddings", Dialect::OpenAi, Endpoint::Embeddings),
    proxied("/v1/responses", Dialect::OpenAi, Endpoint::Responses),
    proxied("/v1/messages", Dialect::Anthropic, Endpoint::Messages),
    proxied("/v1/messages/count_tokens", Dialect::Anthropic, Endpoint::CountTokens),
];

impl<'a> Route<'a> {
    fn of(path: &'a str, port: Port, admin_api: bool) -> Option<Self> {
        if port != Port::Admin {
            if let Some(route) = PROXIED.iter().find(|route| route.path == path) {
                return Some(Self::Proxied(route));
            }
            match path.strip_prefix("/v1/models") {
                Some("") => return Some(Self::Models),
                Some(rest) if rest.len() > 1 && rest.starts_with('/') => return rest.get(1..).map(Self::Model),
                _ => {}
            }
        }
        match path {
            "/live" => Some(Self::Live),
            "/ready" => Some(Self::Ready),
            "/health" => Some(Self::Health),
            _ if port == Port::Public => None,
            "/metrics" => Some(Self::Metrics),
            "/fleet" => Some(Self::Fleet),
            "/busy_threshold" if admin_api => Some(Self::Thresholds),
            _ => None,
        }
    }

    fn allow(self) -> &'static str {
        match self {
            Self::Proxied(_) => "POST",
            Self::Thresholds => "GET, HEAD, POST",
            _ => "GET, HEAD",
        }
    }

    fn has(self, method: &Method) -> bool {
        match *method {
            Method::POST => matches!(self, Self::Proxied(_) | Self::Thresholds),
            Method::GET | Method::HEAD => !matches!(self, Self::Proxied(_)),
            _ => false,
        }
    }

    /// Answered on connections beyond the cap too.
    fn is_probe(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Health)
    }
}

/// All routes of a port, as a filter that never rejects.
pub(super) fn routes(
    edge: Arc<Edge>,
    port: Port,
) -> impl Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static {
    let query = warp::query::raw().or(warp::any().map(String::new)).unify();
    warp::method()
        .and(warp::path::full())
        .and(query)
        .and(warp::ext::optional::<Peer>())
        .and(warp::header::headers_cloned())
        .and(warp::body::stream())
        .then(move |method, path: FullPath, query, peer, headers, body| {
            let edge = Arc::clone(&edge);
            async move { answer(edge, port, &method, path.as_str(), query, peer, headers, body).await }
        })
        .or_else(|_: Rejection| async { Ok::<_, Infallible>((Response::default(),)) })
}

#[expect(clippy::too_many_arguments, reason = "the parts of a request, as warp hands them over")]
async fn answer<S, D, E>(
    edge: Arc<Edge>,
    port: Port,
    method: &Method,
    path: &str,
    query: String,
    peer: Option<Peer>,
    headers: HeaderMap,
    body: S,
) -> Response
where
    S: Stream<Item = Result<D, E>>,
    D: Buf,
{
    let route = Route::of(path, port, edge.settings.admin_api);
    let to = |headers: &HeaderMap| edge.addressee(Dialect::of(path), headers);
    let beyond_cap = peer.is_some_and(|peer| peer.beyond_cap);
    let Some(route) = route else { return to(&headers).fault(Fault::Route, None) };
    if beyond_cap && !route.is_probe() {
        return to(&headers).fault(Fault::Connections, None);
    }
    if !route.has(method) {
        return to(&headers).wrong_method(route.allow());
    }
    match route {
        Route::Proxied(route) => proxy::serve(edge, route, query, headers, body).await,
        Route::Live => pages::live(&to(&headers)),
        Route::Ready => pages::ready(&edge, &to(&headers)),
        Route::Health => pages::health(&edge, &to(&headers)),
        Route::Models => pages::models(&edge, &to(&headers)),
        Route::Model(name) => pages::model(&edge, &to(&headers), name),
        Route::Fleet => pages::fleet(&edge, &to(&headers)),
        Route::Metrics => pages::metrics_page(&edge, &to(&headers)).await,
        Route::Thresholds => {
            let to = to(&headers);
            if *method == Method::POST {
                set_thresholds(&edge, &to, &headers, body).await
            } else {
                get_thresholds(&edge, &to).await
            }
        }
    }
}

async fn get_thresholds(edge: &Edge, to: &Addressee) -> Response {
    let retention = u64::try_from(edge.settings.model_retention.as_millis()).unwrap_or(u64::MAX);
    busy_threshold::answer(to, busy_threshold::list(edge.admissions.store(), retention).await)
}

async fn set_thresholds<S, D, E>(edge: &Edge, to: &Addressee, headers: &HeaderMap, body: S) -> Response
where
    S: Stream<Item = Result<D, E>>,
    D: Buf,
{
    if !may_administer(edge, headers) {
        let mut answer = to.plain_fault(Fault::Token, Fault::Token.words().message);
        answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    }
    let whole = async {
        expect_json(headers)?;
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        body::read(body, length, SMALL_BODY, &edge.buffers).await
    };
    let change = whole
        .await
        .map_err(|fault| Problem { fault, message: fault.words().message.to_owned() })
        .and_then(|whole| Change::parse(&whole.bytes));
    let result = match change {
        Ok(change) => busy_threshold::apply(edge.admissions.store(), change).await,
        Err(problem) => Err(problem),
    };
    busy_threshold::answer(to, result)
}

/// Without a token in the settings everybody may; a warning at the start says so.
fn may_administer(edge: &Edge, headers: &HeaderMap) -> bool {
    let Some(token) = &edge.settings.admin_token else { return true };
    let mut given = headers.get_all(AUTHORIZATION).iter();
    match (given.next(), given.next()) {
        (Some(given), None) => {
            let given = given.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default();
            given.ct_eq(token.reveal().as_bytes()).into()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f115_a_path_is_matched_as_a_whole() {
        let of = |path| Route::of(path, Port::Only, true);
        for route in &PROXIED {
            assert_eq!(of(route.path), Some(Route::Proxied(route)));
            assert_eq!(Dialect::of(route.path), route.dialect, "errors before and after routing look alike");
        }
        assert_eq!(of("/v1/models"), Some(Route::Models));
        assert_eq!(of("/v1/models/org/b"), Some(Route::Model("org/b")));
        for path in [
            "",
            "/",
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/v1/../v1/chat/completions",
            "/v1/chat%2Fcompletions",
            "/v1/Chat/completions",
            "/v1/models/",
            "/v1/modelsx",
            "/live/",
            "/busy_threshold/",
            "//busy_threshold",
            "/%62usy_threshold",
            "/metrics/x",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn f134_an_admin_port_takes_the_admin_routes_away() {
        for path in ["/busy_threshold", "/metrics", "/fleet"] {
            assert!(Route::of(path, Port::Only, true).is_some());
            assert_eq!(Route::of(path, Port::Public, true), None);
            assert!(Route::of(path, Port::Admin, true).is_some());
        }
        assert_eq!(Route::of("/busy_threshold", Port::Only, false), None);
        assert_eq!(Route::of("/v1/models", Port::Admin, true), None);
        assert_eq!(Route::of("/v1/completions", Port::Admin, true), None);
        assert!(Route::of("/live", Port::Public, true).is_some_and(Route::is_probe));
        assert!(Route::of("/live", Port::Admin, true).is_some_and(Route::is_probe));
    }
}
