//! The settings of a frontend, as resolved from flags, environment and file.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::secret::Secret;
use crate::core::refusal::OverloadStatus;

/// What happens when Redis cannot be used (`--on-store-loss`, design section 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStoreLoss {
    /// Go on from the last snapshot, for [`Settings::static_max_age`].
    #[default]
    Static,
    /// Refuse at once.
    Closed,
}

impl std::str::FromStr for OnStoreLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "static" => Ok(Self::Static),
            "closed" => Ok(Self::Closed),
            _ => Err("must be static or closed".into()),
        }
    }
}

/// All flags of `tidegate frontend` but those of the store (design section 8).
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--http-listen`; port 0 takes a free one.
    pub http_listen: SocketAddr,
    /// `--admin-listen`: moves `/busy_threshold`, `/fleet` and `/metrics` off the public port.
    pub admin_listen: Option<SocketAddr>,
    /// The content of `--admin-token-file`, without the end of line: `POST /busy_threshold` needs it.
    pub admin_token: Option<Secret>,
    /// False with `DYN_DISABLE_FRONTEND_ADMIN_API`: `/busy_threshold` does not exist.
    pub admin_api: bool,
    /// Fields of `P:config` named by flags (`--active-decode-blocks-threshold`, `--router-mode`, `--load-ttl-ms`, …),
    /// written once in the life of `P:config:applied`.
    pub seeds: Vec<(String, String)>,
    /// `--migration-limit`: how often a request that a worker refused is tried elsewhere.
    pub migration_limit: u32,
    /// `--model-retention-s`: a model without workers is forgotten after this.
    pub model_retention: Duration,
    /// `--on-store-loss`.
    pub on_store_loss: OnStoreLoss,
    /// `--static-max-age-ms`: how long static mode lasts after the last good contact.
    pub static_max_age: Duration,
    /// `--max-body-bytes` of one request.
    pub max_body_bytes: usize,
    /// `--max-buffered-bytes` of all requests that have no response byte yet.
    pub max_buffered_bytes: usize,
    /// `--max-connections` of clients, 1 or more.
    pub max_connections: usize,
    /// `--max-worker-series`: larger fleets have no per-worker metrics here.
    pub max_worker_series: usize,
    /// `--drain-seconds`: how long running requests may still take after SIGTERM.
    pub drain: Duration,
    /// `--drain-pause-seconds`: how long requests are still taken after SIGTERM, with `/ready` already at 503.
    pub drain_pause: Duration,
    /// `--engine-timeout-ms`: for the first byte of an answer; none (0): no limit.
    pub engine_timeout: Option<Duration>,
    /// `--stream-idle-ms`: between two pieces of an answer; none (0): no limit.
    pub stream_idle: Option<Duration>,
    /// `--sse-keep-alive-ms`: a comment whenever a stream says nothing for this long; none (0): never.
    pub sse_keep_alive: Option<Duration>,
    /// `DYN_HTTP_OVERLOAD_STATUS_CODE`.
    pub overload: OverloadStatus,
}

impl Settings {
    /// The settings with all defaults of design section 8.
    #[must_use]
    pub fn new(http_listen: SocketAddr) -> Self {
        Self {
            http_listen,
            admin_listen: None,
            admin_token: None,
            admin_api: true,
            seeds: Vec::new(),
            migration_limit: 1,
            model_retention: Duration::from_secs(3600),
            on_store_loss: OnStoreLoss::Static,
            static_max_age: Duration::from_secs(10),
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 1 << 30,
            max_connections: 10_000,
            max_worker_series: 200,
            drain: Duration::from_secs(30),
            drain_pause: Duration::ZERO,
            engine_timeout: None,
            stream_idle: None,
            sse_keep_alive: None,
            overload: OverloadStatus::default(),
        }
    }
}
