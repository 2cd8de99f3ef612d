//! Answers of the sidecar's own.

use hyper::Response;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;

use crate::core::refusal::{Fault, SidecarRefusal, Words};
use crate::http::dialect::{Dialect, json_answer};
use crate::http::headers::{REFUSED, REQUEST_ID, RETRY_AFTER_MS};

use super::relay::AnswerBody;

/// The request is not taken; a frontend reads the header and may try another worker.
pub(super) fn refusal(why: SidecarRefusal, parts: &Parts) -> Response<AnswerBody> {
    let mut answer = words(&why.words(), None, parts);
    answer.headers_mut().insert(REFUSED, HeaderValue::from_static(why.as_str()));
    answer
}

/// Something is wrong with the request, or with what came back for it.
pub(super) fn fault(why: Fault, detail: Option<&str>, parts: &Parts) -> Response<AnswerBody> {
    words(&why.words(), detail, parts)
}

fn words(words: &Words, detail: Option<&str>, parts: &Parts) -> Response<AnswerBody> {
    let id = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
    let body = Dialect::of(parts.uri.path()).body(words, detail, None, id);
    let mut answer = json_answer(words.status, body);
    if words.wants_retry_after() {
        // The frontends know how fast the fleet drains; a single worker does not.
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        answer.headers_mut().insert(RETRY_AFTER_MS, HeaderValue::from_static("1000"));
    }
    answer
}
