//! Which headers travel on.

use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

/// Names the incarnation that a request is meant for (design section 3.3).
pub const INCARNATION: HeaderName = HeaderName::from_static("x-tidegate-incarnation");
/// Says why a sidecar did not take a request: `capacity`, `queue_timeout`, `engine_down` or `incarnation`.
pub const REFUSED: HeaderName = HeaderName::from_static("x-tidegate-refused");
/// Names a worker: on answers, the one that served; on requests, the one that is wanted (router mode `direct`).
pub const WORKER: HeaderName = HeaderName::from_static("x-tidegate-worker");

/// Takes out what is meant for one connection only: the fields named by `Connection`, and the usual ones.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
    if headers.contains_key(CONNECTION) {
        let listed: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .collect();
        for name in listed {
            headers.remove(name);
        }
    }
    for name in [
        CONNECTION,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_end_to_end_headers_travel() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-One"),
            ("connection", "x-two"),
            ("keep-alive", "timeout=5"),
            ("x-one", "1"),
            ("x-two", "2"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("content-type", "application/json"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        strip_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(left, [("content-type", "application/json"), ("set-cookie", "a"), ("set-cookie", "b")]);
    }
}
