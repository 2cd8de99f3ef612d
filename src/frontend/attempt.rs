//! Getting an answer for a request: a place, a worker, and another one if that one did not take it (design sections 3.5
//! and 3.7).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response};
use tokio::time::Instant;

use super::admission::{Ask, Declined, Lease};
use super::edge::Edge;
use super::record::Record;
use super::request::Parsed;
use crate::core::id::WorkerId;
use crate::core::refusal::{Fault, Reason, Refusal};
use crate::http::headers::{INCARNATION, REFUSED, REQUEST_ID, WORKER, strip_hop_by_hop};
use crate::http::upstream::Failure;
use crate::metrics::frontend::End;

/// Workers that could not be reached, or were another incarnation, do not count against `--migration-limit`: they have
/// not seen the request. This many are tried.
const UNSEEN: u32 = 3;
/// Largest answer that is looked into for an engine's own "I am full", and how long that may take.
const LOOK: (usize, Duration) = (64 * 1024, Duration::from_secs(1));

/// A request, ready to be sent.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) parsed: Parsed,
    pub(super) body: Bytes,
    pub(super) path: &'static str,
    pub(super) query: String,
    /// End-to-end headers of the client, `x-request-id` included.
    pub(super) headers: HeaderMap,
    /// `x-tidegate-worker`, for router mode `direct`.
    pub(super) pin: Option<WorkerId>,
    /// Where the decision is noted, for an answer that may have to begin before the worker's.
    pub(super) noted: Option<Arc<Mutex<Option<Facts>>>>,
}

impl Job {
    /// Takes what the gate asks for out of the client's headers, and leaves what the engine may see.
    pub(super) fn new(
        parsed: Parsed,
        body: Bytes,
        path: &'static str,
        query: String,
        mut headers: HeaderMap,
        id: &HeaderValue,
    ) -> Self {
        let pin = headers
            .remove(WORKER)
            .and_then(|worker| WorkerId::parse(std::str::from_utf8(worker.as_bytes()).ok()?).ok());
        strip_hop_by_hop(&mut headers);
        for name in [EXPECT, CONTENT_LENGTH, HOST, INCARNATION, REFUSED] {
            headers.remove(name);
        }
        if !headers.contains_key(REQUEST_ID) {
            headers.insert(REQUEST_ID, id.clone());
        }
        Self { parsed, body, path, query, headers, pin, noted: None }
    }
}

/// What every decided answer says of its decision.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) revision: Option<u64>,
    pub(super) worker: WorkerId,
    pub(super) degraded: bool,
}

impl Facts {
    pub(super) fn of(lease: &Lease) -> Self {
        Self { revision: lease.revision, worker: lease.worker.clone(), degraded: lease.degraded }
    }
}

/// A worker's answer, and the place it takes.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) head: hyper::http::response::Parts,
    /// What was read of the body already.
    pub(super) prefix: Option<Bytes>,
    pub(super) body: Incoming,
    pub(super) lease: Lease,
}

/// No answer.
#[derive(Debug)]
pub(super) enum Denied {
    /// By the gate, or by the workers themselves.
    Refused(Refusal),
    /// An admitted request failed on its worker.
    Failed(Fault, Facts),
}

/// What a worker made of the request.
#[expect(clippy::large_enum_variant, reason = "made once per request, and mostly the large one")]
enum Tried {
    Answered(Answered),
    Declined(Declined),
    /// It waited in the worker's queue for too long: no skip, no other worker.
    QueueTimeout,
    Unreachable(Failure),
    Failed(Fault),
}

/// Asks for a place and sends the request, until a worker takes it or none is left.
pub(super) async fn get_answer(edge: &Edge, job: &Job, record: &mut Record) -> Result<Answered, Denied> {
    let model = &job.parsed.model;
    // Those that this request has tried come first: what is too much is cut off at the end.
    let mut exclude = edge.away.of(model, Instant::now());
    let (mut migrations, mut unseen) = (edge.settings.migration_limit, UNSEEN);
    let mut last: Option<(Reason, Refusal)> = None;
    loop {
        let ask = Ask { tokens: job.parsed.tokens, pin: job.pin.clone(), exclude: exclude.clone() };
        let lease = match edge.admissions.admit(model, ask).await {
            Ok(lease) => lease,
            Err(refusal) => {
                if refusal.reason.is_overload() || edge.admissions.model(model).is_some() {
                    record.belongs_to(edge.metrics.registered(model));
                }
                return Err(Denied::Refused(nobody_left(refusal, last)));
            }
        };
        record.belongs_to(edge.metrics.registered(model));
        let (worker, facts) = (lease.worker.clone(), Facts::of(&lease));
        if let Some(noted) = &job.noted {
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.clone());
        }
        let refused = |reason| {
            let Facts { revision, degraded, .. } = facts;
            let drain = edge.admissions.model(model).and_then(|view| view.live.drain);
            Refusal { reason, revision, drain, degraded }
        };
        match try_one(edge, job, lease).await {
            Tried::Answered(answered) => {
                edge.away.reached(model, &worker);
                return Ok(answered);
            }
            Tried::Failed(fault) => return Err(Denied::Failed(fault, facts)),
            Tried::QueueTimeout => return Err(Denied::Refused(refused(Reason::WorkerRefused))),
            Tried::Unreachable(failure) => {
                tracing::warn!(%model, %worker, %failure, "worker cannot be reached");
                edge.away.failed(model, &worker, Instant::now());
                exclude.insert(0, worker);
                if unseen == 0 {
                    return Err(Denied::Refused(refused(Reason::NoWorkers)));
                }
                unseen -= 1;
                last.get_or_insert_with(|| (Reason::NoWorkers, refused(Reason::NoWorkers)));
            }
            Tried::Declined(Declined::Elsewhere) => {
                // It may come back under its new incarnation at once; twice is enough.
                if unseen < UNSEEN {
                    exclude.insert(0, worker);
                }
                if unseen == 0 {
                    return Err(Denied::Refused(refused(Reason::NoWorkers)));
                }
                unseen -= 1;
            }
            Tried::Declined(why) => {
                let reason = if why == Declined::EngineDown { Reason::NoWorkers } else { Reason::WorkerRefused };
                if migrations == 0 {
                    return Err(Denied::Refused(refused(reason)));
                }
                migrations -= 1;
                record.migrated();
                exclude.insert(0, worker);
                last = Some((reason, refused(reason)));
            }
        }
    }
}

/// The gate has nobody else. That it has not is due to what this request excludes, so what those workers said counts;
/// but an overload of all the others counts more.
fn nobody_left(refusal: Refusal, last: Option<(Reason, Refusal)>) -> Refusal {
    match last {
        Some((reason, _)) if refusal.reason == Reason::NoWorkers => Refusal { reason, ..refusal },
        Some((_, last)) if refusal.reason == Reason::ModelNotFound => last,
        _ => refusal,
    }
}

async fn try_one(edge: &Edge, job: &Job, lease: Lease) -> Tried {
    let Some(base) = edge.bases.of(&lease.url) else { return Tried::Failed(Fault::Upstream) };
    let Some(uri) = base.join(job.path, &job.query) else { return Tried::Failed(Fault::Upstream) };
    let mut again = true;
    let sent = loop {
        let mut request = Request::new(Full::new(job.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        *request.headers_mut() = job.headers.clone();
        request.headers_mut().insert(HOST, base.host.clone());
        if let Ok(incarnation) = HeaderValue::from_str(lease.incarnation.as_str()) {
            request.headers_mut().insert(INCARNATION, incarnation);
        }
        let sending = edge.upstream.send(request);
        let sent = match edge.settings.engine_timeout {
            None => sending.await,
            Some(limit) => match tokio::time::timeout(limit, sending).await {
                Ok(sent) => sent,
                Err(_) => return Tried::Failed(Fault::UpstreamTimeout),
            },
        };
        match sent {
            Err(Failure::Stale) if again => again = false,
            sent => break sent,
        }
    };
    match sent {
        Ok(answer) => judge(answer, lease).await,
        Err(failure @ Failure::Connect { .. }) => {
            lease.decline(Declined::Elsewhere);
            Tried::Unreachable(failure)
        }
        Err(failure @ (Failure::Stale | Failure::Broken(_))) => {
            tracing::warn!(worker = %lease.worker, %failure, "worker failed");
            Tried::Failed(Fault::Upstream)
        }
    }
}

/// Tells a refusal from an answer.
async fn judge(answer: Response<Incoming>, lease: Lease) -> Tried {
    let (head, mut body) = answer.into_parts();
    if let Some(why) = head.headers.get(REFUSED) {
        let why = match why.as_bytes() {
            b"queue_timeout" => None,
            b"engine_down" => Some(Declined::EngineDown),
            b"incarnation" => Some(Declined::Elsewhere),
            _ => Some(Declined::Capacity),
        };
        // Read to its end, the connection can be used again.
        let _ = look_into(&mut body).await;
        return match why {
            None => Tried::QueueTimeout,
            Some(why) => {
                lease.decline(why);
                Tried::Declined(why)
            }
        };
    }
    let mut prefix = None;
    if matches!(head.status.as_u16(), 503 | 529) {
        let looked = look_into(&mut body).await;
        if head.status.as_u16() == 529 || looked.as_ref().is_ok_and(|text| says_full(text)) {
            lease.decline(Declined::Capacity);
            return Tried::Declined(Declined::Capacity);
        }
        match looked {
            Ok(text) => prefix = (!text.is_empty()).then_some(text),
            Err(error) => {
                tracing::warn!(worker = %lease.worker, %error, "worker broke off its answer");
                return Tried::Failed(Fault::Upstream);
            }
        }
    }
    Tried::Answered(Answered { head, prefix, body, lease })
}

/// The beginning of a body, mostly all of it; an error if it breaks off.
async fn look_into(body: &mut Incoming) -> Result<Bytes, hyper::Error> {
    let (most, time) = LOOK;
    let mut text = BytesMut::new();
    let read = async {
        while text.len() < most {
            let Some(frame) = body.frame().await else { break };
            text.extend_from_slice(frame?.data_ref().map_or(&[], |data| data));
        }
        Ok::<_, hyper::Error>(())
    };
    // What is slow is passed on as it comes.
    tokio::time::timeout(time, read).await.unwrap_or(Ok(()))?;
    Ok(text.freeze())
}

/// How engines and routers say that they are full, as opposed to starting up or broken.
fn says_full(body: &[u8]) -> bool {
    const WORDS: [&str; 8] = [
        "capacity",
        "overload",
        "limit reached",
        "too many requests",
        "too many concurrent",
        "queue full",
        "queue is full",
        "workers are busy",
    ];
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

/// The end to be counted for a failure.
pub(super) fn end_of(fault: Fault) -> End {
    if fault == Fault::UpstreamTimeout { End::Timeout } else { End::Internal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f116_an_engine_that_says_it_is_full() {
        for full in [
            r#"{"message":"Worker local total request limit reached (33/32)","code":503}"#,
            "Server overloaded: worker at capacity",
            r#"{"error":{"message":"Queue is full"}}"#,
            "All workers are busy, please retry later",
        ] {
            assert!(says_full(full.as_bytes()), "{full}");
        }
        for other in ["", "model is loading", "upstream connect error", r#"{"detail":"Service Unavailable"}"#] {
            assert!(!says_full(other.as_bytes()), "{other}");
        }
    }

    fn refusal(reason: Reason) -> Refusal {
        Refusal { reason, revision: Some(9), drain: None, degraded: false }
    }

    #[test]
    fn what_the_last_worker_said_counts_if_nobody_is_left() {
        let last = |reason| Some((reason, Refusal { revision: Some(3), ..refusal(reason) }));
        let reason = |gate, said| nobody_left(refusal(gate), last(said)).reason;
        assert_eq!(reason(Reason::NoWorkers, Reason::WorkerRefused), Reason::WorkerRefused);
        assert_eq!(reason(Reason::NoWorkers, Reason::NoWorkers), Reason::NoWorkers);
        assert_eq!(reason(Reason::AtCapacity, Reason::WorkerRefused), Reason::AtCapacity);
        assert_eq!(reason(Reason::StoreUnavailable, Reason::WorkerRefused), Reason::StoreUnavailable);
        assert_eq!(nobody_left(refusal(Reason::NoWorkers), None), refusal(Reason::NoWorkers));
        assert_eq!(nobody_left(refusal(Reason::NoWorkers), last(Reason::WorkerRefused)).revision, Some(9));
    }
}
