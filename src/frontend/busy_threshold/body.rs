//! The body of `POST /busy_threshold`, strictly read: a field that is not known is refused, and every message names the
//! field.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use super::Problem;
use crate::core::refusal::Fault;
use crate::core::thresholds::{Field, Kind};

/// The fields that this route can change.
const FIELDS: [Field; 4] =
    [Field::ActiveDecodeBlocks, Field::ActivePrefillTokens, Field::ActivePrefillTokensFrac, Field::MaxInflight];

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Change {
    pub(super) model: String,
    /// Field and new value; none unsets it. Empty: only tell.
    pub(super) changes: Vec<(String, Option<String>)>,
    /// Judge all workers anew before the answer.
    pub(super) recompute: bool,
}

impl Change {
    /// Reads a body. A syntax error is a 400, a field that does not fit a 422, a value out of range a 400.
    pub(in super::super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let Pairs(pairs) = serde_json::from_slice(body).map_err(|e| {
            let fault = if e.classify() == Category::Data { Fault::Field } else { Fault::Body };
            Problem::new(fault, e.to_string())
        })?;
        let field = |message: String| Problem::new(Fault::Field, message);
        let (mut model, mut recompute, mut changes) = (None, false, Vec::new());
        let mut unset = Vec::new();
        for (name, value) in pairs {
            match (name.as_str(), value) {
                ("model", Value::String(name)) => model = Some(name),
                ("model", other) => return Err(field(format!("model must be a string, got {other}"))),
                ("recompute", Value::Bool(flag)) => recompute = flag,
                ("recompute", Value::Null) => {}
                ("recompute", other) => return Err(field(format!("recompute must be true or false, got {other}"))),
                ("unset", Value::Null) => {}
                ("unset", Value::Array(names)) => unset = names,
                ("unset", other) => return Err(field(format!("unset must be a list of fields, got {other}"))),
                (name, value) => {
                    let Some(known) = FIELDS.into_iter().find(|known| known.name() == name) else {
                        return Err(field(format!("unknown field {name:?}")));
                    };
                    if !value.is_null() {
                        changes.push((known.name().to_owned(), Some(text(known, &value)?)));
                    }
                }
            }
        }
        for name in unset {
            let known = FIELDS.into_iter().find(|known| Some(known.name()) == name.as_str());
            let Some(known) = known else { return Err(field(format!("unset: {name} is not a field of this route"))) };
            if changes.iter().any(|(other, _)| other == known.name()) {
                return Err(field(format!("{known} is named twice")));
            }
            changes.push((known.name().to_owned(), None));
        }
        let model = model.ok_or_else(|| field("model is missing".into()))?;
        Ok(Self { model, changes, recompute })
    }
}

/// The value of a field, as Redis keeps it.
fn text(field: Field, value: &Value) -> Result<String, Problem> {
    let integer = matches!(field.kind(), Kind::Integer { .. });
    let number = match value {
        Value::Number(number) if !integer || number.is_u64() => number,
        other => {
            let wanted = if integer { "an integer of at least 0" } else { "a number" };
            return Err(Problem::new(Fault::Field, format!("{field} must be {wanted}, got {other}")));
        }
    };
    // JSON has a zero with a sign.
    let text = if number.as_f64() == Some(0.0) { "0".to_owned() } else { number.to_string() };
    field.check(&text).map(|_| text).map_err(|_| {
        let range = match field.kind() {
            Kind::Fraction { most: Some(most) } => format!("between 0.0 and {most}.0"),
            Kind::Fraction { most: None } => "a finite value greater than or equal to 0.0".into(),
            other => other.to_string(),
        };
        Problem::new(Fault::Body, format!("{field} must be {range}, got {number}"))
    })
}

/// The fields of an object, in order; none twice.
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs: Vec<(String, Value)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if pairs.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format_args!("{name} is named twice")));
                    }
                    if pairs.len() > 16 {
                        return Err(A::Error::custom("too many fields"));
                    }
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(body: &str) -> Change {
        Change::parse(body.as_bytes()).unwrap_or_else(|e| panic!("{e:?}: {body}"))
    }

    fn refused(body: &str) -> (u16, String) {
        let problem = Change::parse(body.as_bytes()).expect_err(body);
        (problem.fault.words().status, problem.message)
    }

    #[test]
    fn values_and_nulls() {
        let change =
            ok(r#"{"model":"m","active_decode_blocks_threshold":8.5e-1,"active_prefill_tokens_threshold":null}"#);
        let decode = ("active_decode_blocks_threshold".to_owned(), Some("0.85".to_owned()));
        assert_eq!(change, Change { model: "m".into(), changes: vec![decode], recompute: false });
        let change =
            ok(r#"{"model":"m","unset":["max_inflight"],"recompute":true,"active_prefill_tokens_threshold":7}"#);
        let tokens = ("active_prefill_tokens_threshold".to_owned(), Some("7".to_owned()));
        assert_eq!(change.changes, [tokens, ("max_inflight".to_owned(), None)]);
        assert!(change.recompute);
        assert!(ok(r#"{"model":"m"}"#).changes.is_empty());
        assert_eq!(ok(r#"{"model":"m","active_decode_blocks_threshold":-0.0}"#).changes[0].1.as_deref(), Some("0"));
        ok(r#"{"model":"m","active_prefill_tokens_threshold_frac":64.0}"#);
        ok(r#"{"model":"m","active_prefill_tokens_threshold_frac":1e300}"#);
    }

    #[test]
    fn t6_the_reference_s_statuses() {
        let decode = "active_decode_blocks_threshold must be between 0.0 and 1.0, got 1.5";
        assert_eq!(refused(r#"{"model":"m","active_decode_blocks_threshold":1.5}"#), (400, decode.into()));
        let frac = "active_prefill_tokens_threshold_frac must be a finite value greater than or equal to 0.0, got -0.1";
        assert_eq!(refused(r#"{"model":"m","active_prefill_tokens_threshold_frac":-0.1}"#), (400, frac.into()));
        for (body, status, names) in [
            (r#"{"model":"m","active_prefill_tokens_threshold":-1}"#, 422, "active_prefill_tokens_threshold"),
            (r#"{"model":"m","active_prefill_tokens_threshold":-1.0}"#, 422, "active_prefill_tokens_threshold"),
            (r#"{"model":"m","active_prefill_tokens_threshold":5.5}"#, 422, "active_prefill_tokens_threshold"),
            (r#"{"model":"m","active_prefill_tokens_threshold":9007199254740992}"#, 400, "9007199254740992"),
            (r#"{"active_decode_blocks_threshold":0.5}"#, 422, "model"),
            (r#"{"model":7}"#, 422, "model"),
            (r#"{"model":"m","#, 400, "EOF"),
            ("", 400, "EOF"),
            ("[]", 422, "object"),
            (r#"{"model":"m","active_decode_blocks_threshold":1e309}"#, 400, "number out of range"),
            (r#"{"model":"m","active_decode_blocks_threshold":NaN}"#, 400, "expected"),
        ] {
            let (got, message) = refused(body);
            assert_eq!(got, status, "{body}: {message}");
            assert!(message.contains(names), "{body}: {message}");
        }
    }

    #[test]
    fn f042_what_is_not_known_is_refused_by_name() {
        for (body, names) in [
            (r#"{"model":"m","busy_threshold":0.9}"#, "busy_threshold"),
            (r#"{"model":"m","active_decode_block_threshold":0.9}"#, "active_decode_block_threshold"),
            (r#"{"model":"m","active_decode_blocks_threshold":"0.9"}"#, "active_decode_blocks_threshold"),
            (r#"{"Model":"m","active_decode_blocks_threshold":0.9}"#, "Model"),
            (r#"{"model":"m","model":"n"}"#, "model"),
            (r#"{"model":"m","max_inflight":true}"#, "max_inflight"),
            (r#"{"model":"m","router_mode":"random"}"#, "router_mode"),
            (r#"{"model":"m","unset":["router_mode"]}"#, "router_mode"),
            (r#"{"model":"m","unset":[1]}"#, "unset"),
            (r#"{"model":"m","unset":"max_inflight"}"#, "unset"),
            (r#"{"model":"m","unset":["max_inflight"],"max_inflight":1}"#, "max_inflight"),
            (r#"{"model":"m","recompute":1}"#, "recompute"),
        ] {
            let (status, message) = refused(body);
            assert_eq!(status, 422, "{body}: {message}");
            assert!(message.contains(names), "{body}: {message}");
        }
    }
}
