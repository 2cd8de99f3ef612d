//! `http://host:port[/base]`: where an engine or a sidecar is reached (design sections 4 and 6).

use std::fmt;
use std::net::SocketAddr;

/// Why an address was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Not `http://…`.
    #[error("must begin with http://")]
    Scheme,
    /// No port, or one outside 1 to 65,535.
    #[error("must name a port, as in http://host:8000")]
    Port,
    /// An IPv6 address without brackets.
    #[error("an IPv6 address needs brackets, as in http://[::1]:8000")]
    Brackets,
    /// An IPv6 address with a zone id, which means nothing on another machine.
    #[error("an address with a zone id cannot be reached from elsewhere")]
    Zone,
    /// Something that the host part must not contain, or an address that is none.
    #[error("{0:?} is not a host")]
    Host(String),
    /// User and password, a query or a fragment.
    #[error("must not contain {0:?}")]
    Part(char),
    /// An address that a peer cannot connect to (`0.0.0.0`, `[::]`).
    #[error("{0} is not an address that others can connect to")]
    Unspecified(String),
}

/// A checked `http://host:port[/base]`; kept without a trailing slash.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BaseUrl {
    text: String,
    authority: std::ops::Range<usize>,
}

impl BaseUrl {
    /// Checks an address.
    ///
    /// # Errors
    /// Says what is wrong with it; the caller adds which setting it came from.
    pub fn parse(text: &str) -> Result<Self, BaseUrlError> {
        const SCHEME: &str = "http://";
        let rest = match text.get(..SCHEME.len()) {
            Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => text.get(SCHEME.len()..).unwrap_or(""),
            _ => return Err(BaseUrlError::Scheme),
        };
        if let Some(c) = rest.chars().find(|c| matches!(c, '?' | '#' | '@')) {
            return Err(BaseUrlError::Part(c));
        }
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = split_port(authority)?;
        check_host(host)?;
        match port.parse::<u16>() {
            Ok(n) if n > 0 && port.bytes().all(|b| b.is_ascii_digit()) => {}
            _ => return Err(BaseUrlError::Port),
        }
        let base = base.trim_end_matches('/');
        let text = format!("{SCHEME}{authority}{base}");
        if url::Url::parse(&text).is_err() || !base.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BaseUrlError::Host(authority.to_owned()));
        }
        Ok(Self { text, authority: SCHEME.len()..SCHEME.len() + authority.len() })
    }

    /// As [`BaseUrl::parse`], for an address that others are told to connect to.
    ///
    /// # Errors
    /// Also refuses `0.0.0.0` and `[::]`.
    pub fn parse_reachable(text: &str) -> Result<Self, BaseUrlError> {
        let url = Self::parse(text)?;
        match url.authority().parse::<SocketAddr>() {
            Ok(address) if address.ip().is_unspecified() => Err(BaseUrlError::Unspecified(text.to_owned())),
            _ => Ok(url),
        }
    }

    /// The address of a listener; `[::1]:9001` keeps its brackets.
    ///
    /// # Errors
    /// As [`BaseUrl::parse_reachable`].
    pub fn of_listener(address: SocketAddr) -> Result<Self, BaseUrlError> {
        Self::parse_reachable(&format!("http://{address}"))
    }

    /// `host:port`, for the header `Host`.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.text.get(self.authority.clone()).unwrap_or("")
    }

    /// The whole address, without a trailing slash.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Base and path with exactly one slash between them; `path` may carry a query.
    #[must_use]
    pub fn join(&self, path: &str) -> String {
        format!("{}/{}", self.text, path.trim_start_matches('/'))
    }
}

fn split_port(authority: &str) -> Result<(&str, &str), BaseUrlError> {
    if let Some(inner) = authority.strip_prefix('[') {
        let Some((address, after)) = inner.split_once(']') else { return Err(BaseUrlError::Brackets) };
        let port = after.strip_prefix(':').ok_or(BaseUrlError::Port)?;
        let host = authority.get(..address.len() + 2).unwrap_or(authority);
        return Ok((host, port));
    }
    match authority.matches(':').count() {
        0 => Err(BaseUrlError::Port),
        1 => authority.split_once(':').ok_or(BaseUrlError::Port),
        _ if authority.contains('%') => Err(BaseUrlError::Zone),
        _ => Err(BaseUrlError::Brackets),
    }
}

fn check_host(host: &str) -> Result<(), BaseUrlError> {
    let bad = || BaseUrlError::Host(host.to_owned());
    if let Some(inner) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        if inner.contains('%') {
            return Err(BaseUrlError::Zone);
        }
        return inner.parse::<std::net::Ipv6Addr>().map(|_| ()).map_err(|_| bad());
    }
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if host.is_empty() || !host.bytes().all(word) { Err(bad()) } else { Ok(()) }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl std::str::FromStr for BaseUrl {
    type Err = BaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_keep_their_form() {
        for (given, kept) in [
            ("http://127.0.0.1:9001", "http://127.0.0.1:9001"),
            ("http://127.0.0.1:9001/", "http://127.0.0.1:9001"),
            ("HTTP://worker_1.svc:80", "http://worker_1.svc:80"),
            ("http://[::1]:9001/", "http://[::1]:9001"),
            ("http://h:1/base/", "http://h:1/base"),
            ("http://h:1/a/b//", "http://h:1/a/b"),
        ] {
            assert_eq!(BaseUrl::parse(given).map(|u| u.to_string()), Ok(kept.to_owned()));
        }
    }

    #[test]
    fn f057_bad_addresses_are_refused_with_the_reason() {
        let err = |text| BaseUrl::parse(text).expect_err(text);
        assert_eq!(err("[::1]:9001"), BaseUrlError::Scheme);
        assert_eq!(err("::1"), BaseUrlError::Scheme);
        assert_eq!(err("https://h:1"), BaseUrlError::Scheme);
        assert_eq!(err("http://::1:9001"), BaseUrlError::Brackets);
        assert_eq!(err("http://[::1:9001"), BaseUrlError::Brackets);
        assert_eq!(err("http://fe80::1%lo:9001"), BaseUrlError::Zone);
        assert_eq!(err("http://[fe80::1%25lo]:9001"), BaseUrlError::Zone);
        assert_eq!(err("http://h"), BaseUrlError::Port);
        assert_eq!(err("http://[::1]"), BaseUrlError::Port);
        assert_eq!(err("http://h:0"), BaseUrlError::Port);
        assert_eq!(err("http://h:+80"), BaseUrlError::Port);
        assert_eq!(err("http://h:65536"), BaseUrlError::Port);
        assert_eq!(err("http://h:x"), BaseUrlError::Port);
        assert_eq!(err("http://u:p@h:1"), BaseUrlError::Part('@'));
        assert_eq!(err("http://h:1/?a"), BaseUrlError::Part('?'));
        assert_eq!(err("http://h:1/#a"), BaseUrlError::Part('#'));
        assert_eq!(err("http://:1"), BaseUrlError::Host(String::new()));
        assert_eq!(err("http://h h:1"), BaseUrlError::Host("h h".into()));
        assert_eq!(err("http://[::g]:1"), BaseUrlError::Host("[::g]".into()));
        assert!(BaseUrl::parse_reachable("http://0.0.0.0:1").is_err());
        assert!(BaseUrl::parse_reachable("http://[::]:1").is_err());
        assert!(BaseUrl::parse_reachable("http://[::1]:1").is_ok());
    }

    #[test]
    fn f115_base_and_path_meet_at_exactly_one_slash() {
        for base in ["http://h:1", "http://h:1/"] {
            let url = BaseUrl::parse(base).unwrap();
            assert_eq!(url.join("/v1/models?x=1"), "http://h:1/v1/models?x=1");
            assert_eq!(url.join("health"), "http://h:1/health");
        }
        let url = BaseUrl::parse("http://h:1/base/").unwrap();
        assert_eq!(url.join("/v1/models"), "http://h:1/base/v1/models");
        assert_eq!(url.authority(), "h:1");
    }
}
