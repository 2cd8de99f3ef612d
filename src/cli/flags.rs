//! The flags, as text. A flag's name is its key in a settings file with `-` for `_`, and its environment variable with
//! `TIDEGATE_` in front. Defaults are not here but in `config/default.toml`; the help takes them from there.

mod frontend;
mod ops;
mod worker;

use clap::Args;
use serde::Serialize;

pub use frontend::Frontend;
pub use ops::{Change, Doctor, Status, Thresholds, ThresholdsCommand, ThresholdsTarget};
pub use worker::{MockEngine, Worker};

/// Flags of every command.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "General")]
pub struct Global {
    /// Settings file (TOML); its keys are those of the built-in default.toml
    #[arg(long, global = true, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<String>,
    /// What to log: a level (error, warn, info, debug, trace) or a filter such as info,tidegate=debug
    ///
    /// RUST_LOG is read if neither this flag nor TIDEGATE_LOG is given.
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
    /// How to log, to standard error: text or json
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// Where Redis is, and how long to wait for it.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Redis")]
pub struct Redis {
    /// redis://, rediss://, redis+unix://, redis+sentinel://h1,h2/primary/0 or redis+cluster://h1,h2
    ///
    /// User and password stand percent-encoded before the host; better: --redis-password-file.
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<String>,
    /// File that holds the Redis password (one line); wins over a password in the URL
    #[arg(long, value_name = "FILE")]
    pub redis_password_file: Option<String>,
    /// Budget of one Redis call, in milliseconds
    #[arg(long, value_name = "MS", allow_hyphen_values = true)]
    pub redis_timeout_ms: Option<String>,
    /// Connections of the pool that serves all but admissions
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub redis_pool_size: Option<String>,
    /// What all keys of this fleet begin with: [A-Za-z0-9_.-]{1,64}
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// `tidegate demo`.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub struct Demo {
    /// Redis to use; without it a private server is started if one is found on PATH
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<String>,
    /// End after this many seconds; without it the fleet stays up until Ctrl-C
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub seconds: Option<String>,
}
