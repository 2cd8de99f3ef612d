//! Why a request is not served, and the one place where a status is chosen for it (design sections 3.3 and 5).

mod sidecar;

use std::fmt;

pub use sidecar::SidecarRefusal;

/// The reason of a refusal, as in the field `reason` of an error body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The model's total is at `max_inflight`.
    MaxInflight,
    /// Some live worker is busy by its load.
    AllWorkersBusy,
    /// The workers that could take it refused it themselves.
    WorkerRefused,
    /// Every live worker is at its cap.
    AtCapacity,
    /// No worker is alive, or only draining ones, or none that can be reached from here.
    NoWorkers,
    /// Redis is unusable and static mode is over or off.
    StoreUnavailable,
    /// This process is shutting down.
    Draining,
    /// The model is not in the index.
    ModelNotFound,
}

impl Reason {
    /// All of them, for metrics that exist before the first refusal.
    pub const ALL: [Self; 8] = [
        Self::MaxInflight,
        Self::AllWorkersBusy,
        Self::WorkerRefused,
        Self::AtCapacity,
        Self::NoWorkers,
        Self::StoreUnavailable,
        Self::Draining,
        Self::ModelNotFound,
    ];

    /// As it stands in error bodies and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxInflight => "max_inflight",
            Self::AllWorkersBusy => "all_workers_busy",
            Self::WorkerRefused => "worker_refused",
            Self::AtCapacity => "at_capacity",
            Self::NoWorkers => "no_workers",
            Self::StoreUnavailable => "store_unavailable",
            Self::Draining => "draining",
            Self::ModelNotFound => "model_not_found",
        }
    }

    /// Whether it is an overload (529 or the configured status), and so counts as a rejection.
    #[must_use]
    pub const fn is_overload(self) -> bool {
        matches!(self, Self::MaxInflight | Self::AllWorkersBusy | Self::WorkerRefused | Self::AtCapacity)
    }

    /// What the client is told.
    #[must_use]
    pub const fn words(self, overload: OverloadStatus) -> Words {
        match self {
            Self::MaxInflight | Self::AllWorkersBusy | Self::WorkerRefused | Self::AtCapacity => Words {
                status: overload.0,
                kind: "Overloaded",
                anthropic: "overloaded_error",
                message: "Service temporarily overloaded",
                reason: self.as_str(),
            },
            Self::NoWorkers | Self::StoreUnavailable | Self::Draining => Words {
                status: 503,
                kind: "Service Unavailable",
                anthropic: "overloaded_error",
                message: "Service temporarily unavailable",
                reason: self.as_str(),
            },
            Self::ModelNotFound => Words {
                status: 404,
                kind: "Not Found",
                anthropic: "not_found_error",
                message: "Model not found",
                reason: self.as_str(),
            },
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that is not served.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The revision it was decided on; none if no decision was made (static mode, no store, no such model).
    pub revision: Option<u64>,
    /// What the store said of the drain: releases per second and refusals of the last 5 s, for `Retry-After`.
    pub drain: Option<super::retry_after::Drain>,
    /// Decided in static mode.
    pub degraded: bool,
}

/// The status of an overload: 529, or `DYN_HTTP_OVERLOAD_STATUS_CODE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverloadStatus(u16);

impl Default for OverloadStatus {
    fn default() -> Self {
        Self(529)
    }
}

impl OverloadStatus {
    /// Reads the variable: 200 to 999, anything else is 529 (reference behaviour, section 1.2).
    #[must_use]
    pub fn parse(text: Option<&str>) -> Self {
        match text.and_then(|text| text.trim().parse().ok()) {
            Some(status @ 200..=999) => Self(status),
            _ => Self::default(),
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What is wrong with a request, with the way it came, or with what came back for it: all answers of our own that are
/// not refusals of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// Not HTTP, or a length that two servers could read differently.
    Framing,
    /// The body is not what this route takes.
    Body,
    /// The admin token is missing or wrong.
    Token,
    /// The caller is not on this machine.
    NotLocal,
    /// No such route.
    Route,
    /// No such model in a list of models.
    Model,
    /// Another method is meant.
    Method,
    /// Another process has this worker's id.
    Conflict,
    /// The head of the request took too long.
    HeaderTimeout,
    /// The body of the request took too long.
    BodyTimeout,
    /// The body is larger than this process takes.
    TooLarge,
    /// The request line is too long.
    UriTooLong,
    /// The body is not JSON by its Content-Type.
    MediaType,
    /// The body has a Content-Encoding.
    Encoded,
    /// A field has the wrong type, or is not known.
    Field,
    /// More or longer header fields than this process takes.
    HeadersTooLarge,
    /// The bodies being read take all the memory set aside for them.
    Buffers,
    /// More connections than this process takes.
    Connections,
    /// What should be in Redis cannot be reached for an operator's request.
    Store,
    /// The worker or engine broke the connection or did not speak HTTP.
    Upstream,
    /// The worker or engine took longer than allowed.
    UpstreamTimeout,
}

impl Fault {
    /// What the client is told.
    #[must_use]
    pub const fn words(self) -> Words {
        const INVALID: &str = "invalid_request_error";
        let (status, kind, anthropic, reason, message) = match self {
            Self::Framing => (400, "Bad Request", INVALID, "bad_framing", "The request is not valid HTTP/1.1"),
            Self::Body => (400, "Bad Request", INVALID, "invalid_body", "The body is not valid"),
            Self::Token => {
                (401, "Unauthorized", "authentication_error", "unauthorized", "A valid admin token is needed")
            }
            Self::NotLocal => {
                (403, "Forbidden", "permission_error", "forbidden", "Only local callers, or those with the admin token")
            }
            Self::Route => (404, "Not Found", "not_found_error", "no_such_route", "No such route"),
            Self::Model => (404, "Not Found", "not_found_error", "model_not_found", "Model not found"),
            Self::Method => (405, "Method Not Allowed", INVALID, "method_not_allowed", "Method not allowed"),
            Self::Conflict => (409, "Conflict", INVALID, "superseded", "Another process has this worker's id"),
            Self::HeaderTimeout => {
                (408, "Request Timeout", INVALID, "header_timeout", "The head of the request took too long")
            }
            Self::BodyTimeout => {
                (408, "Request Timeout", INVALID, "body_timeout", "The body of the request took too long")
            }
            Self::TooLarge => {
                (413, "Payload Too Large", "request_too_large", "body_too_large", "The body is too large")
            }
            Self::UriTooLong => (414, "URI Too Long", INVALID, "uri_too_long", "The request line is too long"),
            Self::MediaType => (
                415,
                "Unsupported Media Type",
                INVALID,
                "unsupported_media_type",
                "Expected request with Content-Type application/json",
            ),
            Self::Encoded => (
                415,
                "Unsupported Media Type",
                INVALID,
                "unsupported_content_encoding",
                "Request bodies with a Content-Encoding are not taken",
            ),
            Self::Field => (422, "Unprocessable Entity", INVALID, "invalid_field", "A field is not valid"),
            Self::HeadersTooLarge => (
                431,
                "Request Header Fields Too Large",
                INVALID,
                "headers_too_large",
                "Too many header fields, or too long ones",
            ),
            Self::Buffers => (
                503,
                "Service Unavailable",
                "overloaded_error",
                "out_of_buffers",
                "Too many request bodies are being read",
            ),
            Self::Connections => {
                (503, "Service Unavailable", "overloaded_error", "too_many_connections", "Too many connections")
            }
            Self::Store => {
                (503, "Service Unavailable", "overloaded_error", "store_unavailable", "The store cannot be reached")
            }
            Self::Upstream => (502, "Bad Gateway", "api_error", "upstream_failed", "The worker did not give an answer"),
            Self::UpstreamTimeout => {
                (504, "Gateway Timeout", "timeout_error", "upstream_timeout", "The worker took too long to answer")
            }
        };
        Words { status, kind, anthropic, message, reason }
    }
}

/// An answer of our own, before it takes the form of a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The status, which is `code` in OpenAI bodies too.
    pub status: u16,
    /// `type` in OpenAI bodies.
    pub kind: &'static str,
    /// `error.type` in Anthropic bodies.
    pub anthropic: &'static str,
    /// For people.
    pub message: &'static str,
    /// For programs.
    pub reason: &'static str,
}

impl Words {
    /// Whether `Retry-After` belongs to it: every overload and every 503 (design section 5).
    #[must_use]
    pub fn wants_retry_after(&self) -> bool {
        self.status == 503 || self.kind == "Overloaded"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_status_as_the_reference_reads_it() {
        for (text, status) in [
            (None, 529),
            (Some(""), 529),
            (Some("not-a-code"), 529),
            (Some("99"), 529),
            (Some("100"), 529),
            (Some("199"), 529),
            (Some("1000"), 529),
            (Some("-200"), 529),
            (Some("200"), 200),
            (Some(" 503 "), 503),
            (Some("529"), 529),
            (Some("600"), 600),
            (Some("999"), 999),
        ] {
            assert_eq!(OverloadStatus::parse(text).get(), status, "{text:?}");
        }
    }

    #[test]
    fn an_overload_keeps_its_type_whatever_its_status() {
        let odd = OverloadStatus::parse(Some("503"));
        for reason in Reason::ALL {
            let words = reason.words(odd);
            assert_eq!(reason.is_overload(), words.kind == "Overloaded", "{reason}");
            assert_eq!(words.wants_retry_after(), reason != Reason::ModelNotFound, "{reason}");
        }
        assert_eq!(Reason::AtCapacity.words(odd).status, 503);
        assert_eq!(Reason::NoWorkers.words(odd).kind, "Service Unavailable");
    }
}
