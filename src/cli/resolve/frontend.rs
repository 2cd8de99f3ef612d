//! The settings of `tidegate frontend`.

use crate::config::environment::{DISABLE_ADMIN, OVERLOAD_STATUS};
use crate::config::{Resolved, SettingsError, parse};
use crate::core::refusal::OverloadStatus;
use crate::core::thresholds::Field;
use crate::frontend::Settings;
use crate::frontend::settings::OnStoreLoss;

use super::{DAY_MS, Notes};

/// Flags that seed fields of `P:config`.
const SEEDS: [(&str, Field); 7] = [
    ("active_decode_blocks_threshold", Field::ActiveDecodeBlocks),
    ("active_prefill_tokens_threshold", Field::ActivePrefillTokens),
    ("active_prefill_tokens_threshold_frac", Field::ActivePrefillTokensFrac),
    ("router_mode", Field::RouterMode),
    ("router_track_output_blocks", Field::TrackOutputBlocks),
    ("router_track_active_blocks", Field::TrackActiveBlocks),
    ("load_ttl_ms", Field::LoadTtlMs),
];

/// Reads all of them.
pub(super) fn frontend(given: &Resolved, notes: &mut Notes) -> Result<Settings, SettingsError> {
    let large = 1 << 40;
    let off = |key: &str| {
        let time = given.required(key, parse::millis(0, DAY_MS))?;
        Ok::<_, SettingsError>(Some(time).filter(|time| !time.is_zero()))
    };
    let settings = Settings {
        http_listen: given.required("http_listen", parse::listen)?,
        admin_listen: given.optional("admin_listen", parse::listen)?,
        admin_token: given.optional("admin_token_file", parse::secret_file)?,
        admin_api: !given.variable(DISABLE_ADMIN).is_some_and(truthy),
        seeds: seeds(given, notes)?,
        migration_limit: given.required("migration_limit", parse::small(0, u32::MAX))?,
        model_retention: given.required("model_retention_s", parse::seconds(1, 366 * 86_400))?,
        on_store_loss: given.required("on_store_loss", str::parse::<OnStoreLoss>)?,
        static_max_age: given.required("static_max_age_ms", parse::millis(0, DAY_MS))?,
        max_body_bytes: given.required("max_body_bytes", parse::size(1, large))?,
        max_buffered_bytes: given.required("max_buffered_bytes", parse::size(1, large))?,
        max_connections: given.required("max_connections", parse::size(1, 1 << 20))?,
        max_worker_series: given.required("max_worker_series", parse::size(0, 1 << 20))?,
        drain: given.required("drain_seconds", parse::seconds(0, DAY_MS / 1_000))?,
        drain_pause: given.required("drain_pause_seconds", parse::seconds(0, DAY_MS / 1_000))?,
        engine_timeout: off("engine_timeout_ms")?,
        stream_idle: off("stream_idle_ms")?,
        sse_keep_alive: off("sse_keep_alive_ms")?,
        overload: OverloadStatus::parse(given.variable(OVERLOAD_STATUS)),
    };
    admission_control(given, notes)?;
    odd_status(given, settings.overload, notes);
    Ok(settings)
}

/// The fields that somebody named. The built-in values are not written: they are what an unset field means anyway, and
/// would stand in the way of another frontend's flag.
fn seeds(given: &Resolved, notes: &mut Notes) -> Result<Vec<(String, String)>, SettingsError> {
    let mut seeds = Vec::new();
    for (key, field) in SEEDS {
        let text = match field {
            Field::TrackOutputBlocks | Field::TrackActiveBlocks => {
                given.optional(key, parse::switch)?.map(|on| on.to_string())
            }
            _ => given.optional(key, parse::field(field))?,
        };
        if let Some(text) = text.filter(|_| given.given(key)) {
            notes.infos.push(format!("--{}={text}", key.replace('_', "-")));
            seeds.push((field.name().to_owned(), text));
        }
    }
    let threshold = |(name, _): &(String, String)| name.starts_with("active_");
    if !seeds.iter().any(threshold) {
        notes.infos.push("busy-worker rejection disabled by this frontend's settings: no threshold is set".to_owned());
    }
    Ok(seeds)
}

/// Accepted with a warning, as in the reference system; its values are still checked.
fn admission_control(given: &Resolved, notes: &mut Notes) -> Result<(), SettingsError> {
    let words = [("token-capacity", "token-capacity"), ("none", "none")];
    if given.optional("admission_control", parse::one_of(&words))?.is_some() {
        notes.warnings.push("--admission-control is no longer supported and is ignored".to_owned());
    }
    Ok(())
}

/// A status that the reference system would pass over in silence.
fn odd_status(given: &Resolved, used: OverloadStatus, notes: &mut Notes) {
    if let Some(text) = given.variable(OVERLOAD_STATUS)
        && text.trim() != used.get().to_string()
    {
        let used = used.get();
        notes.warnings.push(format!("{OVERLOAD_STATUS}={text:?} is not a status from 200 to 999: {used} is used"));
    }
}

/// As the reference system reads its switches.
fn truthy(text: &str) -> bool {
    parse::switch(text.trim()) == Ok(true)
}
