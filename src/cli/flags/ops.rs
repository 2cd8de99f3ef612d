//! `tidegate status`, `thresholds` and `doctor`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Redis;

/// `tidegate status`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Status {
    /// Show this model only; without it all models
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Print JSON instead of tables
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub json: Option<String>,
    /// Repeat until Ctrl-C
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub watch: Option<String>,
    /// Pause between two looks of --watch, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub interval_ms: Option<String>,
    /// Where Redis is.
    #[command(flatten)]
    #[serde(flatten)]
    pub redis: Redis,
}

/// `tidegate thresholds`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Thresholds {
    /// What to do.
    #[command(subcommand)]
    #[serde(skip)]
    pub command: ThresholdsCommand,
    /// Of which model.
    #[command(flatten)]
    #[serde(flatten)]
    pub target: ThresholdsTarget,
}

/// Whose thresholds.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct ThresholdsTarget {
    /// The model; may be left out if there is only one
    #[arg(long, value_name = "NAME", global = true)]
    pub model: Option<String>,
    /// Print JSON instead of tables
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true, global = true)]
    pub json: Option<String>,
    /// redis://, rediss://, redis+unix://, redis+sentinel://h1,h2/primary/0 or redis+cluster://h1,h2
    #[arg(long, value_name = "URL", global = true, help_heading = "Redis")]
    pub redis_url: Option<String>,
    /// File that holds the Redis password (one line); wins over a password in the URL
    #[arg(long, value_name = "FILE", global = true, help_heading = "Redis")]
    pub redis_password_file: Option<String>,
    /// Budget of one Redis call, in milliseconds
    #[arg(long, value_name = "MS", global = true, allow_hyphen_values = true, help_heading = "Redis")]
    pub redis_timeout_ms: Option<String>,
    /// Connections of the pool
    #[arg(long, value_name = "N", global = true, allow_hyphen_values = true, help_heading = "Redis")]
    pub redis_pool_size: Option<String>,
    /// What all keys of this fleet begin with: [A-Za-z0-9_.-]{1,64}
    #[arg(long, value_name = "NAME", global = true, help_heading = "Redis")]
    pub namespace: Option<String>,
}

/// What `tidegate thresholds` does.
#[derive(Debug, Clone, Subcommand)]
pub enum ThresholdsCommand {
    /// Show the values in force, refused values, and what is configured but not yet noticed
    Get,
    /// Set fields and recompute all workers at once; all fields or, if one is refused, none
    Set(Change),
    /// Unset fields and recompute all workers at once
    Unset {
        /// Field names
        #[arg(required = true, value_name = "FIELD")]
        fields: Vec<String>,
    },
    /// Show who changed what, newest first
    History {
        /// How many changes
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
    },
    /// Take back the last change (undo again brings it back), or the one that made a given version
    Undo {
        /// The version, as `history` shows it
        #[arg(long, value_name = "N")]
        version: Option<u64>,
    },
}

/// New values.
#[derive(Debug, Clone, Args)]
pub struct Change {
    /// Such as active_decode_blocks_threshold=0.85; None unsets
    ///
    /// The fields: active_decode_blocks_threshold, active_prefill_tokens_threshold,
    /// active_prefill_tokens_threshold_frac, max_inflight, router_mode, load_ttl_ms, track_output_blocks,
    /// track_active_blocks, kv_block_size.
    #[arg(required = true, value_name = "FIELD=VALUE")]
    pub changes: Vec<String>,
}

/// `tidegate doctor`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Doctor {
    /// Check this model only; without it all models
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Print JSON instead of text
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub json: Option<String>,
    /// Start a new epoch for a model whose state is broken: everybody asserts again what it holds
    ///
    /// Taken from the command line only, never from the environment or a file.
    #[arg(long)]
    #[serde(skip)]
    pub repair: bool,
    /// Where Redis is.
    #[command(flatten)]
    #[serde(flatten)]
    pub redis: Redis,
}
