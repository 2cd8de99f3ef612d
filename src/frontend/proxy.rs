//! A proxied request, from its first header to the answer that is handed on.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures_util::Stream;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue};
use warp::Reply;
use warp::reply::Response;

use super::answer::Addressee;
use super::attempt::{Answered, Denied, Facts, Job, end_of, get_answer};
use super::edge::{Edge, Stage};
use super::late;
use super::record::Record;
use super::relay::{Events, Parts, Relay};
use super::request::{self, BodyError, Parsed};
use crate::core::refusal::{Fault, Reason, Refusal};
use crate::http::body::{self, Whole};
use crate::http::dialect::Dialect;
use crate::http::headers::{DEGRADED, REFUSED, REQUEST_ID, REVISION, WORKER, expect_json, strip_hop_by_hop};
use crate::metrics::frontend::{End, Endpoint};

/// Bodies up to this size are parsed within a millisecond or so.
const LARGE: usize = 512 * 1024;

/// A proxied route.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proxied {
    pub(super) path: &'static str,
    pub(super) dialect: Dialect,
    pub(super) endpoint: Endpoint,
}

/// Serves a request to a proxied route.
pub(super) async fn serve<S, D, E>(
    edge: Arc<Edge>,
    route: &'static Proxied,
    query: String,
    headers: HeaderMap,
    body: S,
) -> Response
where
    S: Stream<Item = Result<D, E>>,
    D: Buf,
{
    let to = edge.addressee(route.dialect, &headers);
    let unknown = || Record::begin(edge.metrics.unknown(), route.endpoint, false);
    let refused = |reason| Refusal { reason, revision: None, drain: None, degraded: false };
    if edge.stage() == Stage::Draining {
        unknown().refused(Reason::Draining, 0);
        return to.refusal(&refused(Reason::Draining));
    }
    let invalid = |fault, detail: Option<&str>| {
        unknown().ended(End::Invalid);
        to.fault(fault, detail)
    };
    if let Err(fault) = expect_json(&headers) {
        return invalid(fault, None);
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let Whole { bytes, held } = match body::read(body, length, edge.settings.max_body_bytes, &edge.buffers).await {
        Ok(whole) => whole,
        Err(fault) => return invalid(fault, None),
    };
    let parsed = match parse(&bytes).await {
        Ok(parsed) => parsed,
        Err(BodyError::Invalid(message)) => return invalid(Fault::Body, Some(&message)),
        Err(BodyError::NoSuchModel) => {
            unknown().refused(Reason::ModelNotFound, 0);
            return to.refusal(&refused(Reason::ModelNotFound));
        }
    };
    let mut record = Record::begin(edge.metrics.perhaps(&parsed.model), route.endpoint, parsed.stream);
    let job = Job::new(parsed, bytes, route.path, query, headers, &to.id);
    if let Some(interval) = edge.settings.sse_keep_alive
        && job.parsed.stream
    {
        return late::serve(edge, to, job, held, record, interval).await;
    }
    let tokens = job.parsed.tokens;
    let answer = get_answer(&edge, &job, &mut record).await;
    // From here on the copy of the body is of no use: the answer has begun, or there is none.
    drop((job, held));
    match answer {
        Ok(answered) => pass_on(&edge, &to, answered, record),
        Err(denied) => deny(&to, &denied, record, tokens),
    }
}

/// A large body is read beside the streams that this thread serves.
async fn parse(body: &Bytes) -> Result<Parsed, BodyError> {
    if body.len() <= LARGE {
        return request::parse(body);
    }
    let body = body.clone();
    let parsed = tokio::task::spawn_blocking(move || request::parse(&body)).await;
    parsed.unwrap_or_else(|e| Err(BodyError::Invalid(format!("the body could not be read: {e}"))))
}

/// The answer of a worker, with its body to come.
pub(super) fn pass_on(edge: &Edge, to: &Addressee, answered: Answered, record: Record) -> Response {
    let facts = Facts::of(&answered.lease);
    let (status, mut headers, mut relay) = relay(edge, to, answered, record);
    if relay.begin().is_err() {
        let mut answer = to.fault(Fault::Upstream, None);
        decorate(answer.headers_mut(), to, &facts);
        return answer;
    }
    strip_hop_by_hop(&mut headers);
    headers.remove(REFUSED);
    decorate(&mut headers, to, &facts);
    let mut answer = if relay.is_over() { Response::default() } else { warp::reply::stream(relay).into_response() };
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

/// Takes an answer apart.
pub(super) fn relay(
    edge: &Edge,
    to: &Addressee,
    answered: Answered,
    mut record: Record,
) -> (hyper::StatusCode, HeaderMap, Relay) {
    let Answered { head, prefix, body, lease } = answered;
    record.head(head.status.as_u16());
    let relay = Relay::new(Parts {
        prefix,
        body,
        lease,
        record,
        events: Events::of(&head.headers, to.dialect, || to.id()),
        idle: edge.settings.stream_idle,
        keep_alive: edge.settings.sse_keep_alive,
    });
    (head.status, head.headers, relay)
}

/// The headers of every decided answer.
pub(super) fn decorate(headers: &mut HeaderMap, to: &Addressee, facts: &Facts) {
    headers.insert(REQUEST_ID, to.id.clone());
    if let Some(revision) = facts.revision {
        headers.insert(REVISION, HeaderValue::from(revision));
    }
    if let Ok(worker) = HeaderValue::from_bytes(facts.worker.as_str().as_bytes()) {
        headers.insert(WORKER, worker);
    }
    if facts.degraded {
        headers.insert(DEGRADED, HeaderValue::from_static("1"));
    }
}

/// No answer: says why.
pub(super) fn deny(to: &Addressee, denied: &Denied, mut record: Record, tokens: u64) -> Response {
    match denied {
        Denied::Refused(refusal) => {
            record.refused(refusal.reason, tokens);
            to.refusal(refusal)
        }
        Denied::Failed(fault, facts) => {
            record.ended(end_of(*fault));
            let mut answer = to.fault(*fault, None);
            decorate(answer.headers_mut(), to, facts);
            answer
        }
    }
}
