//! Settings in layers: built-in `default.toml` < `--config FILE` < environment < flags (design section 8).

pub mod redis_url;
pub mod secret;
