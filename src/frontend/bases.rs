//! The addresses of sidecars, taken apart once.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};

/// More addresses than any fleet has: then the table begins anew.
const MOST: usize = 20_000;

/// `http://host:port[/base]`, ready to be put before a path.
#[derive(Debug)]
pub(super) struct Base {
    authority: Authority,
    /// For the header `Host`.
    pub(super) host: HeaderValue,
    /// Without a slash at its end.
    path: String,
}

impl Base {
    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?.clone();
        Some(Self {
            host: HeaderValue::from_str(authority.as_str()).ok()?,
            authority,
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// Base, path and query, with exactly one slash between base and path.
    pub(super) fn join(&self, path: &'static str, query: &str) -> Option<Uri> {
        let target = if self.path.is_empty() && query.is_empty() {
            PathAndQuery::from_static(path)
        } else if query.is_empty() {
            PathAndQuery::try_from(format!("{}{path}", self.path)).ok()?
        } else {
            PathAndQuery::try_from(format!("{}{path}?{query}", self.path)).ok()?
        };
        let mut parts = hyper::http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).ok()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Bases(RwLock<HashMap<Arc<str>, Arc<Base>>>);

impl Bases {
    /// Of an address; none if it is not one (sidecars register checked ones only).
    pub(super) fn of(&self, url: &Arc<str>) -> Option<Arc<Base>> {
        if let Some(base) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(url) {
            return Some(Arc::clone(base));
        }
        let base = Arc::new(Base::parse(url)?);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(Arc::clone(url), Arc::clone(&base));
        Some(base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f115_base_and_path_meet_at_one_slash() {
        let join = |url: &str, query: &str| {
            let bases = Bases::default();
            bases.of(&url.into()).and_then(|base| base.join("/v1/completions", query)).map(|uri| uri.to_string())
        };
        let is = |text: &str| Some(text.to_owned());
        assert_eq!(join("http://h:1", ""), is("http://h:1/v1/completions"));
        assert_eq!(join("http://h:1/", "x=1&y"), is("http://h:1/v1/completions?x=1&y"));
        assert_eq!(join("http://[::1]:1/base/", ""), is("http://[::1]:1/base/v1/completions"));
        assert_eq!(join("http://h:1/base", "x"), is("http://h:1/base/v1/completions?x"));
        assert_eq!(join("/nowhere", ""), None);
    }
}
