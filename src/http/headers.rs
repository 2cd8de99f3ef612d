//! Headers: our own names, and those that end at each hop.

use hyper::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use crate::core::refusal::Fault;

/// Of an answer: the revision it was decided on.
pub const REVISION: HeaderName = HeaderName::from_static("x-tidegate-revision");
/// Of an answer: the worker that gave it. Of a request: the worker that is meant (router mode `direct`).
pub const WORKER: HeaderName = HeaderName::from_static("x-tidegate-worker");
/// Of an answer: decided in static mode.
pub const DEGRADED: HeaderName = HeaderName::from_static("x-tidegate-degraded");
/// Frontend to sidecar: the incarnation that was admitted to.
pub const INCARNATION: HeaderName = HeaderName::from_static("x-tidegate-incarnation");
/// Sidecar to frontend: why it did not take the request.
pub const REFUSED: HeaderName = HeaderName::from_static("x-tidegate-refused");
/// Of requests and answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Milliseconds, beside `Retry-After` in seconds.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Removes the headers that belong to one hop: the fixed ones, and those that `Connection` names (RFC 9110, 7.6.1).
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    for name in
        [KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE]
    {
        headers.remove(name);
    }
}

/// Whether a request says that its body is plain JSON: `Content-Type` in any case, with no charset but UTF-8, and no
/// `Content-Encoding` (design section 5).
///
/// # Errors
/// `MediaType`, or `Encoded`.
pub fn expect_json(headers: &HeaderMap) -> Result<(), Fault> {
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Fault::Encoded);
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    match (types.next().map(HeaderValue::as_bytes), types.next()) {
        (Some(b"application/json"), None) => Ok(()),
        (Some(other), None) if is_json(other) => Ok(()),
        _ => Err(Fault::MediaType),
    }
}

fn is_json(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else { return false };
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    json && parts.all(|parameter| match parameter.split_once('=') {
        Some((name, charset)) if name.trim_end().eq_ignore_ascii_case("charset") => {
            let charset = charset.trim_start().trim_matches('"');
            charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        headers
    }

    #[test]
    fn headers_of_one_hop_end_here() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("connection", "x-other"),
            ("x-secret", "1"),
            ("x-other", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("authorization", "Bearer x"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("authorization", "Bearer x"), ("set-cookie", "a"), ("set-cookie", "b")]));
    }

    #[test]
    fn f110_only_json_is_json() {
        for good in [
            "application/json",
            "APPLICATION/JSON",
            "application/json; charset=utf-8",
            "application/json;charset=\"UTF-8\"",
            "application/json ; charset = utf8",
            "application/json; v=1",
        ] {
            assert_eq!(expect_json(&map(&[("content-type", good)])), Ok(()), "{good}");
        }
        for bad in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json;charset=latin1",
            "application/jsonp",
            "application/json, application/json",
            "",
        ] {
            assert_eq!(expect_json(&map(&[("content-type", bad)])), Err(Fault::MediaType), "{bad}");
        }
        assert_eq!(expect_json(&map(&[])), Err(Fault::MediaType));
        let twice = map(&[("content-type", "application/json"), ("content-type", "application/json")]);
        assert_eq!(expect_json(&twice), Err(Fault::MediaType));
        let encoded = map(&[("content-type", "application/json"), ("content-encoding", "gzip")]);
        assert_eq!(expect_json(&encoded), Err(Fault::Encoded));
    }
}
