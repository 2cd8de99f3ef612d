//! Answers of our own: refusals and errors, in the dialect of their route, with the headers that belong to them (design
//! section 5).

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::{ALLOW, HeaderMap, HeaderValue, RETRY_AFTER};
use warp::reply::Response;

use crate::core::refusal::{Fault, OverloadStatus, Reason, Refusal, Words};
use crate::core::retry_after::{Drain, RetryAfter};
use crate::http::dialect::{Dialect, json_answer};
use crate::http::headers::{DEGRADED, REQUEST_ID, RETRY_AFTER_MS, REVISION};

/// For whom an answer is.
#[derive(Debug, Clone)]
pub(super) struct Addressee {
    /// Of the route.
    pub(super) dialect: Dialect,
    /// `x-request-id`, echoed or made.
    pub(super) id: HeaderValue,
    /// In force.
    pub(super) overload: OverloadStatus,
}

/// `x-request-id` as the client sent it, or a new one.
pub(super) fn request_id(headers: &HeaderMap) -> HeaderValue {
    match headers.get(REQUEST_ID) {
        Some(id) if !id.is_empty() => id.clone(),
        _ => {
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            // The thread's own generator: `Uuid::now_v7` asks the kernel every time.
            let uuid = uuid::Builder::from_unix_timestamp_millis(now_ms(), &rand::random()).into_uuid();
            let text = uuid.as_hyphenated().encode_lower(&mut text);
            HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("none"))
        }
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(0)
}

impl Addressee {
    /// The id as text.
    pub(super) fn id(&self) -> String {
        String::from_utf8_lossy(self.id.as_bytes()).into_owned()
    }

    /// An error, with more to say than its general message.
    pub(super) fn fault(&self, fault: Fault, detail: Option<&str>) -> Response {
        self.answer(&fault.words(), detail, None, None, None)
    }

    /// An error in the reference's form for its own routes: `{"error": "…"}`.
    pub(super) fn plain_fault(&self, fault: Fault, message: &str) -> Response {
        let words = fault.words();
        let mut answer = json_answer(words.status, serde_json::json!({ "error": message }).to_string());
        if words.wants_retry_after() {
            wait(answer.headers_mut(), RetryAfter::new(None, None, jitter()));
        }
        self.signed(answer)
    }

    /// Adds what every answer carries.
    pub(super) fn signed(&self, mut answer: Response) -> Response {
        if answer.status() == hyper::StatusCode::SERVICE_UNAVAILABLE && !answer.headers().contains_key(RETRY_AFTER) {
            wait(answer.headers_mut(), RetryAfter::new(None, None, jitter()));
        }
        answer.headers_mut().insert(REQUEST_ID, self.id.clone());
        answer
    }

    /// A method that the route does not have.
    pub(super) fn wrong_method(&self, allow: &'static str) -> Response {
        let mut answer = self.fault(Fault::Method, None);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        answer
    }

    /// A refusal of the gate.
    pub(super) fn refusal(&self, refusal: &Refusal) -> Response {
        let words = refusal.reason.words(self.overload);
        let mut answer = self.answer(&words, None, refusal.revision, Some(refusal.reason), refusal.drain);
        if refusal.degraded {
            answer.headers_mut().insert(DEGRADED, HeaderValue::from_static("1"));
        }
        answer
    }

    fn answer(
        &self,
        words: &Words,
        detail: Option<&str>,
        revision: Option<u64>,
        reason: Option<Reason>,
        drain: Option<Drain>,
    ) -> Response {
        let id = if self.dialect == Dialect::Anthropic { self.id() } else { String::new() };
        let body = self.dialect.body(words, detail, revision, &id);
        let mut answer: Response = json_answer(words.status, body);
        let headers = answer.headers_mut();
        headers.insert(REQUEST_ID, self.id.clone());
        if let Some(revision) = revision {
            headers.insert(REVISION, HeaderValue::from(revision));
        }
        if words.wants_retry_after() {
            wait(headers, RetryAfter::new(reason, drain, jitter()));
        }
        answer
    }
}

fn wait(headers: &mut HeaderMap, wait: RetryAfter) {
    headers.insert(RETRY_AFTER, HeaderValue::from(wait.seconds()));
    headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait.ms()));
}

fn jitter() -> f64 {
    rand::random_range(-1.0..=1.0)
}
