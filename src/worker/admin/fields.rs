//! The bodies of `POST /load` and `POST /limits`, strictly: an unknown field, a wrong type or a value out of range is
//! an error that names the field.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value;

use crate::core::op::{Figure, FigureKind};
use crate::worker::gate;
use crate::worker::settings::{MAX_FIGURE, MAX_LIMIT, Settings};

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Wrong {
    /// No JSON object, or one with unknown or repeated fields.
    #[error("{0}")]
    Json(String),
    /// One field's value.
    #[error("{field}: {what}")]
    Field {
        /// Which.
        field: String,
        /// What it must be.
        what: String,
    },
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Wrong> {
    // serde takes an array for a struct, too.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(Wrong::Json("the body is not a JSON object".into()));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let text = error.to_string();
        // serde's words for these name the field between backquotes.
        let named = |start: &str| text.strip_prefix(start).and_then(|rest| rest.split('`').next()).map(str::to_owned);
        match (named("unknown field `"), named("duplicate field `")) {
            (Some(field), _) => Wrong::Field { field, what: "is not known".into() },
            (_, Some(field)) => Wrong::Field { field, what: "stands twice".into() },
            _ => Wrong::Json(format!("the body is not a JSON object of the expected form: {text}")),
        }
    })
}

/// `null` is a value here, not an absent field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn whole(field: &str, value: &Value, low: u64, high: u64) -> Result<u64, Wrong> {
    match value.as_u64() {
        Some(n) if (low..=high).contains(&n) => Ok(n),
        _ => Err(Wrong::Field {
            field: field.into(),
            what: format!("{} is not an integer from {low} to {high}", short(value)),
        }),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(100).collect()
}

/// The body of `POST /load`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    #[serde(default, deserialize_with = "present")]
    dp_rank: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    active_decode_blocks: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    kv_total_blocks: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    active_prefill_tokens: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    max_num_batched_tokens: Option<Value>,
}

impl Load {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        parse(bytes)
    }

    /// The figures, of a rank that this worker declared.
    pub(super) fn figures(&self, settings: &Settings) -> Result<Vec<Figure>, Wrong> {
        let (start, size) = (settings.data_parallel_start_rank, settings.data_parallel_size);
        let last = u64::from(start) + u64::from(size) - 1;
        let rank = match &self.dp_rank {
            Some(value) => whole("dp_rank", value, start.into(), last)?,
            None if size == 1 => start.into(),
            None => {
                let what = format!("must be given: this worker has the ranks {start} to {last}");
                return Err(Wrong::Field { field: "dp_rank".into(), what });
            }
        };
        let rank = u32::try_from(rank).unwrap_or(start);
        let mut figures = Vec::new();
        for (kind, value) in [
            (FigureKind::ActiveDecodeBlocks, &self.active_decode_blocks),
            (FigureKind::KvTotalBlocks, &self.kv_total_blocks),
            (FigureKind::ActivePrefillTokens, &self.active_prefill_tokens),
            (FigureKind::MaxNumBatchedTokens, &self.max_num_batched_tokens),
        ] {
            if let Some(value) = value {
                figures.push(Figure { rank, kind, value: whole(kind.field(), value, 0, MAX_FIGURE)? });
            }
        }
        Ok(figures)
    }
}

/// The body of `POST /limits`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    #[serde(default, deserialize_with = "present")]
    engine_request_limit: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    request_queue_limit: Option<Value>,
}

impl Limits {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        parse(bytes)
    }

    /// The limits now, with what the body changes; `"engine_request_limit": null` takes the cap away.
    pub(super) fn onto(&self, now: gate::Limits) -> Result<gate::Limits, Wrong> {
        let slots = match &self.engine_request_limit {
            None => now.slots,
            Some(Value::Null) => None,
            Some(value) => Some(whole("engine_request_limit", value, 1, MAX_LIMIT)?),
        };
        let queue = match &self.request_queue_limit {
            None => now.queue,
            Some(value) => whole("request_queue_limit", value, 0, MAX_LIMIT)?,
        };
        if self.engine_request_limit.is_none() && self.request_queue_limit.is_none() {
            let what = "one of engine_request_limit and request_queue_limit must be given".into();
            return Err(Wrong::Json(what));
        }
        Ok(gate::Limits { slots, queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{ModelName, WorkerId};
    use crate::http::base_url::BaseUrl;

    fn settings(start: u32, size: u32) -> Settings {
        let mut settings = Settings::new(
            ModelName::parse("m").unwrap(),
            WorkerId::parse("w").unwrap(),
            "127.0.0.1:0".parse().unwrap(),
            BaseUrl::parse("http://127.0.0.1:1").unwrap(),
        );
        (settings.data_parallel_start_rank, settings.data_parallel_size) = (start, size);
        settings
    }

    fn load(body: &str, start: u32, size: u32) -> Result<Vec<(u32, FigureKind, u64)>, Wrong> {
        let figures = Load::parse(body.as_bytes())?.figures(&settings(start, size))?;
        Ok(figures.into_iter().map(|f| (f.rank, f.kind, f.value)).collect())
    }

    fn field(result: Result<impl std::fmt::Debug, Wrong>) -> String {
        match result {
            Err(Wrong::Field { field, .. }) => field,
            other => panic!("no field is named: {other:?}"),
        }
    }

    #[test]
    fn figures_are_optional_and_the_rank_is_only_if_there_is_one() {
        assert_eq!(load("{}", 3, 1), Ok(vec![]));
        let body = r#"{"dp_rank":1,"active_decode_blocks":0,"kv_total_blocks":9007199254740991}"#;
        let wanted = vec![(1, FigureKind::ActiveDecodeBlocks, 0), (1, FigureKind::KvTotalBlocks, MAX_FIGURE)];
        assert_eq!(load(body, 0, 2), Ok(wanted));
        assert_eq!(load(r#"{"max_num_batched_tokens":5}"#, 3, 1), Ok(vec![(3, FigureKind::MaxNumBatchedTokens, 5)]));
        assert_eq!(field(load("{}", 0, 2)), "dp_rank");
        assert_eq!(field(load(r#"{"dp_rank":2}"#, 0, 2)), "dp_rank");
        assert_eq!(field(load(r#"{"dp_rank":0}"#, 1, 2)), "dp_rank");
    }

    #[test]
    fn bad_values_are_named() {
        for value in ["-1", "1.5", "1e3", "9007199254740992", "1e400", "\"5\"", "null", "true", "[]", "{}"] {
            for name in ["active_decode_blocks", "kv_total_blocks", "active_prefill_tokens", "max_num_batched_tokens"] {
                let result = load(&format!("{{\"{name}\":{value}}}"), 0, 1);
                match result {
                    Err(Wrong::Field { field, .. }) => assert_eq!(field, name),
                    Err(Wrong::Json(_)) => assert_eq!(value, "1e400", "only what JSON cannot hold"),
                    Ok(figures) => panic!("{value} was taken: {figures:?}"),
                }
            }
        }
        assert_eq!(field(load(r#"{"active_decode_block":5}"#, 0, 1)), "active_decode_block");
        assert_eq!(field(load(r#"{"kv_total_blocks":5,"kv_total_blocks":6}"#, 0, 1)), "kv_total_blocks");
        for body in ["", "[]", "null", "{", "{\"kv_total_blocks\":5} x", "\u{feff}{}", "5"] {
            assert!(matches!(load(body, 0, 1), Err(Wrong::Json(_))), "{body}");
        }
    }

    #[test]
    fn limits_change_what_they_name() {
        let now = gate::Limits { slots: Some(4), queue: 2 };
        let change = |body: &str| Limits::parse(body.as_bytes()).and_then(|limits| limits.onto(now));
        assert_eq!(change(r#"{"engine_request_limit":9}"#), Ok(gate::Limits { slots: Some(9), queue: 2 }));
        assert_eq!(change(r#"{"request_queue_limit":0}"#), Ok(gate::Limits { slots: Some(4), queue: 0 }));
        assert_eq!(change(r#"{"engine_request_limit":null}"#), Ok(gate::Limits { slots: None, queue: 2 }));
        assert_eq!(field(change(r#"{"engine_request_limit":0}"#)), "engine_request_limit");
        assert_eq!(field(change(r#"{"request_queue_limit":null}"#)), "request_queue_limit");
        assert_eq!(field(change(r#"{"request_queue_limit":-1}"#)), "request_queue_limit");
        assert_eq!(field(change(r#"{"queue":1}"#)), "queue");
        assert!(matches!(change("{}"), Err(Wrong::Json(_))));
    }
}
