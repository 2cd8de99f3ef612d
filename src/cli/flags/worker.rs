//! `tidegate worker` and `tidegate mock-engine`.

use clap::Args;
use serde::Serialize;

use super::Redis;

/// `tidegate worker`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Worker {
    /// Model this engine serves (required)
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Name of this worker, unique per model (required)
    #[arg(long, value_name = "NAME")]
    pub worker_id: Option<String>,
    /// Address of the sidecar's port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where frontends reach this sidecar; without it http:// and the listen address
    #[arg(long, value_name = "URL")]
    pub advertise_url: Option<String>,
    /// File with the bearer token for POST /load and /limits from other hosts
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<String>,
    /// Where Redis is.
    #[command(flatten)]
    #[serde(flatten)]
    pub redis: Redis,
    /// The engine.
    #[command(flatten)]
    #[serde(flatten)]
    pub engine: Engine,
    /// The gate.
    #[command(flatten)]
    #[serde(flatten)]
    pub gate: Gate,
    /// The reports.
    #[command(flatten)]
    #[serde(flatten)]
    pub report: Report,
}

/// Flags about the engine behind a sidecar.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Engine")]
pub struct Engine {
    /// Where the engine listens
    #[arg(long, value_name = "URL")]
    pub engine_url: Option<String>,
    /// Path that is probed; any status below 500 will do
    #[arg(long, value_name = "PATH")]
    pub engine_health_path: Option<String>,
    /// Scrape the engine's metric page: vllm, sglang, trtllm or none
    #[arg(long, value_name = "KIND")]
    pub engine_metrics: Option<String>,
    /// Data-parallel ranks of this engine: 1 to 1024
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub data_parallel_size: Option<String>,
    /// Its first rank
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub data_parallel_start_rank: Option<String>,
    /// KV blocks of a rank, if the engine does not say it
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub kv_total_blocks: Option<String>,
    /// Tokens per engine step of a rank, if the engine does not say it
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_num_batched_tokens: Option<String>,
    /// Tokens per KV block
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub kv_block_size: Option<String>,
}

/// Flags of the gate before the engine.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Limits")]
pub struct Gate {
    /// N: requests the engine runs at once; without it there is no cap
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub engine_request_limit: Option<String>,
    /// Q: requests that may wait for a slot; counts only together with N
    ///
    /// DYN_DYNAMO_REQUEST_QUEUE_LIMIT (2 or more) is read too, if N is set.
    #[arg(long, value_name = "Q", allow_hyphen_values = true)]
    pub request_queue_limit: Option<String>,
    /// Longest wait in the queue, in milliseconds; 0: no limit
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub queue_timeout_ms: Option<String>,
    /// At shutdown running requests have this long to end, in seconds
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub drain_seconds: Option<String>,
}

/// Flags of the reports.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Reports")]
pub struct Report {
    /// How often the load is sampled, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub report_interval_ms: Option<String>,
    /// Silent for this long the worker counts as dead, in milliseconds; 5000 or more
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub worker_ttl_ms: Option<String>,
}

/// `tidegate mock-engine`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct MockEngine {
    /// Address of its port
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Model it serves (required)
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// KV blocks of a rank
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub kv_total_blocks: Option<String>,
    /// Tokens per KV block
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub kv_block_size: Option<String>,
    /// Requests that a rank runs at once
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_num_seqs: Option<String>,
    /// Tokens per engine step of a rank
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_num_batched_tokens: Option<String>,
    /// Prompt tokens per second of a rank
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub prefill_tokens_per_s: Option<String>,
    /// Generated tokens per second of a request
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub decode_tokens_per_s: Option<String>,
    /// Data-parallel ranks: 1 to 1024
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub data_parallel_size: Option<String>,
}
