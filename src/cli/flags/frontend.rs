//! `tidegate frontend`.

use clap::Args;
use serde::Serialize;

use super::Redis;

/// `tidegate frontend`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Frontend {
    /// Address of the public port
    #[arg(long, value_name = "ADDR")]
    pub http_listen: Option<String>,
    /// Second address; /busy_threshold, /fleet and /metrics move to it
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// File with the bearer token that POST /busy_threshold asks for
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<String>,
    /// Where Redis is.
    #[command(flatten)]
    #[serde(flatten)]
    pub redis: Redis,
    /// What each model's shared settings begin with.
    #[command(flatten)]
    #[serde(flatten)]
    pub seeds: Seeds,
    /// The proxy.
    #[command(flatten)]
    #[serde(flatten)]
    pub proxy: Proxy,
    /// What happens when Redis is not there.
    #[command(flatten)]
    #[serde(flatten)]
    pub outage: Outage,
}

/// Flags that seed fields of `P:config`: a field is seeded once, from then on Redis is the truth.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Busy thresholds and routing (seed a model's settings in Redis, once)")]
pub struct Seeds {
    /// A rank is busy above this share of its KV blocks: 0 to 1, or None
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub active_decode_blocks_threshold: Option<String>,
    /// A rank is busy above this many tokens waiting for prefill: an integer from 0, or None
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub active_prefill_tokens_threshold: Option<String>,
    /// The same as a multiple of max_num_batched_tokens: from 0 (64.0 is fine), or None
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    pub active_prefill_tokens_threshold_frac: Option<String>,
    /// round-robin, random, power-of-two, least-loaded, kv or direct
    #[arg(long, value_name = "MODE")]
    pub router_mode: Option<String>,
    /// Count generated tokens as KV blocks too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub router_track_output_blocks: Option<String>,
    /// Let the load that leases explain steer the score of mode kv: true or false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub router_track_active_blocks: Option<String>,
    /// A reported signal counts until it is this old, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub load_ttl_ms: Option<String>,
    /// Accepted and ignored: each threshold is on when it is set (token-capacity or none)
    #[arg(long, value_name = "MODE", hide = true)]
    pub admission_control: Option<String>,
}

/// Flags of the proxy.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Proxy")]
pub struct Proxy {
    /// Tries on another worker after a refusal or a failed connect; 0: none
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub migration_limit: Option<String>,
    /// Largest request body, in bytes; above: 413
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_body_bytes: Option<String>,
    /// All bodies held at once, in bytes; above: 503
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_buffered_bytes: Option<String>,
    /// Client connections at once
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_connections: Option<String>,
    /// Longest wait for an engine's response to begin, in milliseconds; 0: no limit
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub engine_timeout_ms: Option<String>,
    /// Longest silence within a response, in milliseconds; 0: no limit
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub stream_idle_ms: Option<String>,
    /// Sends an SSE comment after this much silence, in milliseconds; 0: never
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub sse_keep_alive_ms: Option<String>,
    /// /metrics has a series per worker only up to this many workers
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_worker_series: Option<String>,
    /// At shutdown running requests have this long to end, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub drain_seconds: Option<String>,
    /// At shutdown /ready is 503 for this long before the port closes, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub drain_pause_seconds: Option<String>,
}

/// Flags for times without Redis, and without workers.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Outages")]
pub struct Outage {
    /// When Redis is lost: static (go on from the last snapshot, own leases only) or closed (503)
    #[arg(long, value_name = "MODE")]
    pub on_store_loss: Option<String>,
    /// How long static mode may last, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub static_max_age_ms: Option<String>,
    /// A model is forgotten this long after its last worker, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub model_retention_s: Option<String>,
}
