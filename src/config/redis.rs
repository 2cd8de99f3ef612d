//! The settings of the connection to Redis, which most commands share.

use std::time::Duration;

use crate::core::id::Namespace;

use super::redis_url::{RedisUrl, Topology};
use super::{Resolved, Setting, SettingsError, parse, resolved};

/// Where Redis is, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `--redis-url`, with the password of `--redis-password-file` if that is given.
    pub url: RedisUrl,
    /// `--namespace`.
    pub namespace: Namespace,
    /// `--redis-timeout-ms`: the budget of one call, 1 ms to 60 s.
    pub timeout: Duration,
    /// `--redis-pool-size`: 1 to 1,024.
    pub pool_size: usize,
}

impl RedisSettings {
    /// Reads `redis_url`, `redis_password_file`, `redis_timeout_ms`, `redis_pool_size` and `namespace`.
    ///
    /// # Errors
    /// Any of them is not valid.
    pub fn resolve(settings: &Resolved) -> Result<Self, SettingsError> {
        let mut url = settings.required("redis_url", RedisUrl::parse)?;
        if let Some(password) = settings.optional("redis_password_file", parse::secret_file)? {
            url.password = Some(password);
        }
        if let (Topology::Unix(path), Some(Setting { text, origin })) = (&url.topology, settings.setting("redis_url")?)
            && path.as_os_str().len() > MAX_SOCKET_PATH
        {
            let reason = format!("names a socket path of more than {MAX_SOCKET_PATH} bytes");
            return Err(resolved::error("redis_url", &text, &reason, &origin));
        }
        Ok(Self {
            url,
            namespace: settings.required("namespace", parse::name(Namespace::parse))?,
            timeout: settings.required("redis_timeout_ms", parse::millis(1, 60_000))?,
            pool_size: settings.required("redis_pool_size", parse::size(1, 1_024))?,
        })
    }
}

/// The longest path that fits into a Unix socket's address.
const MAX_SOCKET_PATH: usize = 107;
