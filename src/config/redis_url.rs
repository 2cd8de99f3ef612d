//! Where Redis is (design section 8): `redis://`, `rediss://`, `redis+unix://`,
//! `redis+sentinel://h1:26379,h2:26379/mymaster/0`, `redis+cluster://h1:7000,h2:7000`.

use std::fmt;
use std::path::PathBuf;

use super::secret::Secret;

/// A checked Redis URL. Its `Display` and `Debug` never show a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// What kind of Redis, and where.
    pub topology: Topology,
    /// ACL user; none: the default user.
    pub user: Option<String>,
    /// Password, percent-decoded, or from `--redis-password-file`.
    pub password: Option<Secret>,
    /// Database number, 0 to 65,535; always 0 in a cluster.
    pub db: u16,
    /// TLS to the server (`rediss://`).
    pub tls: bool,
}

/// The kinds of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone(Node),
    /// One server on a Unix socket.
    Unix(PathBuf),
    /// A primary that Sentinels know.
    Sentinel {
        /// The Sentinels; at least one.
        nodes: Vec<Node>,
        /// The name of the primary.
        service: String,
    },
    /// A cluster.
    Cluster {
        /// Seeds; at least one.
        nodes: Vec<Node>,
    },
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// 1 to 65,535.
    pub port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = |nodes: &[Node]| nodes.iter().map(Node::to_string).collect::<Vec<_>>().join(",");
        f.write_str(match (&self.topology, self.tls) {
            (Topology::Standalone(_), false) => "redis://",
            (Topology::Standalone(_), true) => "rediss://",
            (Topology::Unix(_), _) => "redis+unix://",
            (Topology::Sentinel { .. }, _) => "redis+sentinel://",
            (Topology::Cluster { .. }, _) => "redis+cluster://",
        })?;
        match (&self.user, &self.password) {
            (None, None) => {}
            (user, None) => write!(f, "{}@", user.as_deref().unwrap_or(""))?,
            (user, Some(_)) => write!(f, "{}:***@", user.as_deref().unwrap_or(""))?,
        }
        match &self.topology {
            Topology::Standalone(node) => write!(f, "{node}/{}", self.db),
            Topology::Unix(path) => write!(f, "{}?db={}", path.display(), self.db),
            Topology::Sentinel { nodes: list, service } => write!(f, "{}/{service}/{}", nodes(list), self.db),
            Topology::Cluster { nodes: list } => f.write_str(&nodes(list)),
        }
    }
}

impl RedisUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// Says what is wrong, without repeating the URL (it may hold a password).
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text
            .split_once("://")
            .ok_or("must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster://")?;
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("must not contain white space or control characters".into());
        }
        if rest.contains('#') {
            return Err("must not contain `#`; percent-encode it as %23".into());
        }
        if rest.find('/').is_some_and(|at| rest.get(at..).unwrap_or("").contains('@')) {
            return Err("has an `@` after a `/`; in user and password write %40 and %2F".into());
        }
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (userinfo, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(userinfo, hosts)| (Some(userinfo), hosts));
        let (user, password) = credentials(userinfo)?;
        if query.is_some() && scheme != "redis+unix" {
            return Err("takes no `?` parameters".into());
        }
        let (topology, db) = match scheme {
            "redis" | "rediss" => {
                let mut nodes = nodes(hosts, 6379)?;
                let node = nodes.pop().filter(|_| nodes.is_empty());
                let node = node.ok_or("names several hosts: use redis+sentinel:// or redis+cluster://")?;
                (Topology::Standalone(node), database(path.strip_prefix('/').unwrap_or(""))?)
            }
            "redis+unix" => {
                if !hosts.is_empty() || path.len() < 2 {
                    return Err("must name an absolute path, as in redis+unix:///run/redis.sock".into());
                }
                let db = match query {
                    None => 0,
                    Some(query) => database(query.strip_prefix("db=").ok_or("knows only the parameter db")?)?,
                };
                (Topology::Unix(PathBuf::from(decode(path, "path")?)), db)
            }
            "redis+sentinel" => {
                let mut parts = path.strip_prefix('/').unwrap_or("").splitn(2, '/');
                let service = decode(parts.next().unwrap_or(""), "name of the primary")?;
                if service.is_empty() {
                    return Err("must name the primary, as in redis+sentinel://host:26379/mymaster/0".into());
                }
                let db = database(parts.next().unwrap_or(""))?;
                (Topology::Sentinel { nodes: nodes(hosts, 26379)?, service }, db)
            }
            "redis+cluster" => {
                if database(path.strip_prefix('/').unwrap_or(""))? != 0 {
                    return Err("a cluster has only database 0".into());
                }
                (Topology::Cluster { nodes: nodes(hosts, 6379)? }, 0)
            }
            _ => {
                return Err(
                    "must begin with redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster://".into(),
                );
            }
        };
        Ok(Self { topology, user, password, db, tls: scheme == "rediss" })
    }
}

/// A URL as it may be shown although it could not be parsed: without anything that might be a password.
#[must_use]
pub fn redacted(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    match (text.get(..start), text.rfind('@')) {
        (Some(scheme), Some(at)) if at >= start => format!("{scheme}***{}", text.get(at..).unwrap_or("")),
        _ => text.to_owned(),
    }
}

fn credentials(userinfo: Option<&str>) -> Result<(Option<String>, Option<Secret>), String> {
    let Some(userinfo) = userinfo else { return Ok((None, None)) };
    let (user, password) = userinfo.split_once(':').map_or((userinfo, None), |(user, word)| (user, Some(word)));
    let user = decode(user, "user")?;
    let password = password.map(|word| decode(word, "password")).transpose()?;
    if user.is_empty() && password.as_deref().is_none_or(str::is_empty) {
        return Err("has an `@` but neither user nor password".into());
    }
    let password = password.filter(|word| !word.is_empty()).map(Secret::new);
    Ok((Some(user).filter(|user| !user.is_empty()), password))
}

fn nodes(hosts: &str, port: u16) -> Result<Vec<Node>, String> {
    hosts.split(',').map(|host| node(host, port)).collect()
}

fn node(text: &str, default_port: u16) -> Result<Node, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or("has text after an IPv6 address")?)),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let bracketed = text.starts_with('[');
    if bracketed && host.parse::<std::net::Ipv6Addr>().is_err() {
        return Err(format!("has {host:?} where an IPv6 address should be"));
    }
    if !bracketed && (host.is_empty() || url::Host::parse(host).is_err()) {
        return Err(format!("has {host:?} where a host should be"));
    }
    let port = match port {
        None => default_port,
        Some(port) => port_number(port).ok_or_else(|| format!("has port {port:?}, which is not 1 to 65535"))?,
    };
    Ok(Node { host: host.to_owned(), port })
}

fn port_number(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

fn database(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| format!("has database {text:?}, which is not a number from 0"))
}

fn decode(text: &str, what: &str) -> Result<String, String> {
    let well_formed =
        text.split('%').skip(1).all(|rest| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2);
    if !well_formed {
        return Err(format!("has a `%` in its {what} that begins no percent-encoding; write %25"));
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| format!("has a {what} that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read() {
        for (text, shown) in [
            ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
            ("redis://cache", "redis://cache:6379/0"),
            ("redis://[::1]:7000/3", "redis://[::1]:7000/3"),
            ("redis://[::1]", "redis://[::1]:6379/0"),
            ("rediss://me:p%40ss@cache:6380/", "rediss://me:***@cache:6380/0"),
            ("redis://:word@cache", "redis://:***@cache:6379/0"),
            ("redis://me@cache", "redis://me@cache:6379/0"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock?db=0"),
            ("redis+unix://u:p@/run/a%20b.sock?db=2", "redis+unix://u:***@/run/a b.sock?db=2"),
            ("redis+sentinel://h1:26379,h2/mymaster/1", "redis+sentinel://h1:26379,h2:26379/mymaster/1"),
            ("redis+sentinel://:pw@h1/m", "redis+sentinel://:***@h1:26379/m/0"),
            ("redis+cluster://h1:7000,h2:7001", "redis+cluster://h1:7000,h2:7001"),
            ("redis+cluster://h1:7000/0", "redis+cluster://h1:7000"),
        ] {
            assert_eq!(RedisUrl::parse(text).map(|url| url.to_string()), Ok(shown.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_redis_url_is_refused() {
        for text in [
            "",
            "redis",
            "redis:",
            "redis://",
            "http://h",
            "REDIS://h",
            "redis://h:0",
            "redis://h:65536",
            "redis://h:+1",
            "redis://h:",
            "redis://h/x",
            "redis://h/-1",
            "redis://h/0/1",
            "redis://h/65536",
            "redis://h1,h2",
            "redis://h?db=1",
            "redis://@h",
            "redis://:@h",
            "redis://u:50%@h",
            "redis://u:%ff@h",
            "redis:// h",
            "redis://h /0",
            "redis://h#0",
            "redis://[::1",
            "redis://[x]:1",
            "redis://[::1]7",
            "redis://h:6379:1",
            "redis+unix://",
            "redis+unix:///",
            "redis+unix://h/s",
            "redis+unix:///s?x=1",
            "redis+unix:///s?db=a",
            "redis+sentinel://h",
            "redis+sentinel://h/",
            "redis+sentinel:///m",
            "redis+sentinel://h,/m",
            "redis+sentinel://h/m/0/1",
            "redis+cluster://h/1",
            "redis+cluster://",
            "redis+cluster://h:1,",
        ] {
            let answer = RedisUrl::parse(text);
            assert!(answer.is_err(), "{text} became {answer:?}");
        }
    }

    #[test]
    fn a_password_is_decoded_and_never_shown() {
        let url = RedisUrl::parse("redis://me:p%40s%3Aw@h/0").unwrap();
        assert_eq!(url.password.as_ref().map(Secret::reveal), Some("p@s:w"));
        assert!(!format!("{url:?} {url}").contains("p@s"));
        assert!(!RedisUrl::parse("redis://me:hunter2@h:0").unwrap_err().contains("hunter2"));
        assert!(!RedisUrl::parse("redis://me:hun/ter@h/0").unwrap_err().contains("hun"));
        assert_eq!(redacted("redis://me:hun@ter2@h:0"), "redis://***@h:0");
        assert_eq!(redacted("me:hunter2@h:0"), "***@h:0");
        assert_eq!(redacted("redis://h:0"), "redis://h:0");
    }
}
