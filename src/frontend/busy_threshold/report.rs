//! How thresholds are told: all keys, always; null when unset.

use serde_json::{Value, json};

use crate::core::id::ModelName;
use crate::core::thresholds::{Field, Value as Typed};

/// A model's thresholds, from the values in force.
pub(super) fn thresholds(model: &ModelName, in_force: &[(String, String)]) -> Value {
    object(model.as_str(), |field| {
        let text = in_force.iter().find(|(name, _)| name == field.name()).map(|(_, text)| text.as_str())?;
        match field.check(text).ok()? {
            Typed::Fraction(number) => Some(json!(number)),
            Typed::Integer(number) => Some(json!(number)),
            Typed::Switch(_) | Typed::Mode(_) => None,
        }
    })
}

/// Of a name that no model can have.
pub(super) fn none(model: &str) -> Value {
    object(model, |_| None)
}

fn object(model: &str, value: impl Fn(Field) -> Option<Value>) -> Value {
    json!({
        "model": model,
        "active_decode_blocks_threshold": value(Field::ActiveDecodeBlocks),
        "active_prefill_tokens_threshold": value(Field::ActivePrefillTokens),
        "active_prefill_tokens_threshold_frac": value(Field::ActivePrefillTokensFrac),
        "max_inflight": value(Field::MaxInflight),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_are_there_and_numbers_are_numbers() {
        let model = ModelName::parse("m").expect("a name");
        let in_force = [
            ("active_decode_blocks_threshold".to_owned(), "1".to_owned()),
            ("active_prefill_tokens_threshold".to_owned(), "1000".to_owned()),
            ("error:max_inflight".to_owned(), "x".to_owned()),
        ];
        let want = json!({
            "model": "m", "active_decode_blocks_threshold": 1.0, "active_prefill_tokens_threshold": 1000,
            "active_prefill_tokens_threshold_frac": null, "max_inflight": null,
        });
        assert_eq!(thresholds(&model, &in_force), want);
        assert_eq!(none("m")["model"], "m");
    }
}
