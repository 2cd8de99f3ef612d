//! The settings of `tidegate worker`.

use std::time::Duration;

use crate::config::environment::QUEUE_LIMIT;
use crate::config::{Resolved, Setting, SettingsError, parse};
use crate::core::id::{ModelName, WorkerId};
use crate::core::thresholds::MAX_INTEGER;
use crate::http::base_url::BaseUrl;
use crate::worker::Settings;

use super::DAY_MS;
use crate::worker::settings::{EngineMetrics, MAX_LIMIT, SettingError, queue_limit_variable};

/// Reads all of them.
pub(super) fn sidecar(given: &Resolved) -> Result<Settings, SettingsError> {
    let engine_request_limit = given.optional("engine_request_limit", parse::whole(1, MAX_LIMIT))?;
    let resolved = Settings {
        model: given.required("model", parse::name(ModelName::parse))?,
        worker: given.required("worker_id", parse::name(WorkerId::parse))?,
        listen: given.required("listen", parse::listen)?,
        engine_url: given.required("engine_url", base_url)?,
        advertise_url: given.optional("advertise_url", reachable)?,
        engine_request_limit,
        request_queue_limit: queue_limit(given, engine_request_limit.is_some())?,
        queue_timeout: given.required("queue_timeout_ms", parse::millis(0, DAY_MS))?.into_option(),
        data_parallel_size: given.required("data_parallel_size", parse::small(1, 1_024))?,
        data_parallel_start_rank: given.required("data_parallel_start_rank", parse::small(0, 65_535))?,
        kv_total_blocks: given.optional("kv_total_blocks", parse::whole(0, MAX_INTEGER))?,
        max_num_batched_tokens: given.optional("max_num_batched_tokens", parse::whole(0, MAX_INTEGER))?,
        kv_block_size: given.required("kv_block_size", parse::whole(1, 1_000_000))?,
        engine_metrics: given.required("engine_metrics", str::parse::<EngineMetrics>)?,
        engine_health_path: given.required("engine_health_path", |text| Ok(text.to_owned()))?,
        report_interval: given.required("report_interval_ms", parse::millis(10, 2_000))?,
        worker_ttl: given.required("worker_ttl_ms", parse::millis(5_000, 3_600_000))?,
        drain: given.required("drain_seconds", parse::seconds(0, DAY_MS / 1_000))?,
        admin_token: given.optional("admin_token_file", parse::secret_file)?,
    };
    resolved.check().map_err(|refused| named(given, &refused))?;
    Ok(resolved)
}

/// Q. The variable of the reference system is read only if N is set; it wins over a file, a flag wins over it.
fn queue_limit(given: &Resolved, capped: bool) -> Result<u64, SettingsError> {
    let limit = given.required("request_queue_limit", parse::whole(0, MAX_LIMIT))?;
    match given.variable(QUEUE_LIMIT) {
        Some(text) if capped && !given.given_at_start("request_queue_limit") => queue_limit_variable(text)
            .map_err(|refused| value(&refused, format!("environment variable {QUEUE_LIMIT}"), "request_queue_limit")),
        _ => Ok(limit),
    }
}

fn base_url(text: &str) -> Result<BaseUrl, String> {
    BaseUrl::parse(text).map_err(|why| why.to_string())
}

fn reachable(text: &str) -> Result<BaseUrl, String> {
    BaseUrl::parse_reachable(text).map_err(|why| why.to_string())
}

/// A refusal of the sidecar's own check, with the place where the value was given.
fn named(given: &Resolved, refused: &SettingError) -> SettingsError {
    let key = refused.flag.replace('-', "_");
    let origin = given.setting(&key).ok().flatten().map_or_else(String::new, |Setting { origin, .. }| origin);
    value(refused, origin, &key)
}

fn value(refused: &SettingError, origin: String, key: &str) -> SettingsError {
    SettingsError::Value { key: key.to_owned(), value: refused.value.clone(), reason: refused.must.clone(), origin }
}

/// 0 stands for no limit.
trait IntoOption {
    fn into_option(self) -> Option<Duration>;
}

impl IntoOption for Duration {
    fn into_option(self) -> Option<Duration> {
        Some(self).filter(|time| !time.is_zero())
    }
}
