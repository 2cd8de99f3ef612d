//! Error bodies, in the form that the clients of each API expect (design section 5).

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::core::refusal::{Fault, Words};

/// Which API a route belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// `{"error":{…},"message","type","code"}`: nested as OpenAI has it, flat as the reference has it.
    #[default]
    OpenAi,
    /// `{"type":"error","error":{"type","message"},"request_id"}`.
    Anthropic,
}

impl Dialect {
    /// Of a path, known or not.
    #[must_use]
    pub fn of(path: &str) -> Self {
        match path.strip_prefix("/v1/messages") {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }

    /// The body of an error. `detail` is told instead of the general message if there is one.
    #[must_use]
    pub fn body(self, words: &Words, detail: Option<&str>, revision: Option<u64>, request_id: &str) -> String {
        let message = detail.unwrap_or(words.message);
        let Words { status: code, kind, anthropic, reason, .. } = *words;
        let body = match self {
            Self::OpenAi => serde_json::to_string(&OpenAiBody {
                error: OpenAiError { message, kind, code, param: (), reason, revision },
                message,
                kind,
                code,
            }),
            Self::Anthropic => serde_json::to_string(&AnthropicBody {
                kind: "error",
                error: AnthropicError { kind: anthropic, message },
                request_id,
            }),
        };
        // Strings and numbers can always be written.
        body.unwrap_or_default()
    }

    /// One event that ends a stream which cannot go on: what clients of the API take for an error.
    #[must_use]
    pub fn event(self, words: &Words, request_id: &str) -> String {
        let body = self.body(words, None, None, request_id);
        match self {
            Self::OpenAi => format!("data: {body}\n\n"),
            Self::Anthropic => format!("event: error\ndata: {body}\n\n"),
        }
    }
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    error: OpenAiError<'a>,
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    code: u16,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    code: u16,
    param: (),
    reason: &'a str,
    revision: Option<u64>,
}

#[derive(Serialize)]
struct AnthropicBody<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    error: AnthropicError<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct AnthropicError<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// An answer with a JSON body.
#[must_use]
pub fn json_answer<B: From<String>>(status: u16, body: String) -> Response<B> {
    let mut answer = Response::new(B::from(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// A whole answer as bytes, for clients whose request hyper cannot read. The connection ends behind it.
pub(super) fn raw(fault: Fault) -> Vec<u8> {
    let words = fault.words();
    let body = Dialect::OpenAi.body(&words, None, None, "");
    format!(
        "HTTP/1.1 {} {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        words.status,
        words.kind,
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::refusal::{OverloadStatus, Reason};

    #[test]
    fn both_dialects_of_an_overload() {
        let words = Reason::AtCapacity.words(OverloadStatus::default());
        let openai: serde_json::Value =
            serde_json::from_str(&Dialect::OpenAi.body(&words, None, Some(7), "r")).expect("JSON");
        assert_eq!(
            openai,
            json!({
                "error": {
                    "message": "Service temporarily overloaded", "type": "Overloaded", "code": 529, "param": null,
                    "reason": "at_capacity", "revision": 7
                },
                "message": "Service temporarily overloaded", "type": "Overloaded", "code": 529
            })
        );
        let anthropic: serde_json::Value =
            serde_json::from_str(&Dialect::Anthropic.body(&words, None, Some(7), "r")).expect("JSON");
        assert_eq!(
            anthropic,
            json!({
                "type": "error",
                "error": { "type": "overloaded_error", "message": "Service temporarily overloaded" },
                "request_id": "r"
            })
        );
    }

    #[test]
    fn a_path_has_a_dialect_even_if_it_is_no_route() {
        assert_eq!(Dialect::of("/v1/messages"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messages/count_tokens"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messages/"), Dialect::Anthropic);
        assert_eq!(Dialect::of("/v1/messagesx"), Dialect::OpenAi);
        assert_eq!(Dialect::of("/"), Dialect::OpenAi);
    }
}
