//! What the gate needs to know of a request's body: the model, whether a stream is asked for, and how much prompt text
//! there is. The body is checked to be JSON and passes on unchanged; no tree is built (design section 5).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::core::id::ModelName;
use crate::http::prompt;

/// What a body says at its top level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The model asked for.
    pub model: ModelName,
    /// `"stream": true`.
    pub stream: bool,
    /// Estimated prompt tokens ([`prompt`]).
    pub tokens: u64,
}

/// Why a body was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not UTF-8, not JSON, not an object, or a key twice that must not be.
    #[error("{0}")]
    Invalid(String),
    /// Well-formed, but no model can have this name.
    #[error("no model has this name")]
    NoSuchModel,
}

/// Reads a body.
///
/// # Errors
/// See [`BodyError`]; the messages name the field.
pub fn parse(body: &[u8]) -> Result<Parsed, BodyError> {
    let text = std::str::from_utf8(body)
        .map_err(|e| BodyError::Invalid(format!("the body is not UTF-8 from byte {} on", e.valid_up_to())))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let top = json
        .deserialize_map(TopLevel)
        .and_then(|top| json.end().map(|()| top))
        .map_err(|e| BodyError::Invalid(format!("the body is not valid: {e}")))?;
    let model = match top.model {
        Some(Name::Text(name)) => name,
        Some(Name::Other) => return Err(BodyError::Invalid("model must be a string".into())),
        None => return Err(BodyError::Invalid("model is missing".into())),
    };
    if model.is_empty() {
        return Err(BodyError::Invalid("model is empty".into()));
    }
    let model = ModelName::parse(&model).map_err(|_| BodyError::NoSuchModel)?;
    Ok(Parsed { model, stream: top.stream.unwrap_or(false), tokens: prompt::tokens_of(top.prompt_bytes) })
}

#[derive(Default)]
struct Top<'a> {
    model: Option<Name<'a>>,
    stream: Option<bool>,
    prompt_bytes: u64,
}

enum Name<'a> {
    Text(std::borrow::Cow<'a, str>),
    Other,
}

struct TopLevel;

impl<'de> Visitor<'de> for TopLevel {
    type Value = Top<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Top<'de>, A::Error> {
        let mut top = Top::default();
        let mut stream_seen = false;
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match key {
                Key::Model if top.model.is_some() => return Err(A::Error::custom("model is there twice")),
                Key::Model => top.model = Some(map.next_value_seed(NameSeed)?),
                Key::Stream if stream_seen => return Err(A::Error::custom("stream is there twice")),
                Key::Stream => {
                    stream_seen = true;
                    top.stream = map.next_value_seed(FlagSeed)?;
                }
                Key::Prompt => {
                    map.next_value_seed(prompt::Text::new(&mut top.prompt_bytes))?;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(top)
    }
}

enum Key {
    Model,
    Stream,
    Prompt,
    Other,
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Key, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Key, E> {
        Ok(match key {
            "model" => Key::Model,
            "stream" => Key::Stream,
            key if prompt::is_prompt(key) => Key::Prompt,
            _ => Key::Other,
        })
    }
}

/// Visitors that take one kind of value and pass over the others, which are the engine's to judge.
macro_rules! pass_over {
    ($value:expr; $($method:ident: $kind:ty),*) => {
        $(fn $method<E>(self, _: $kind) -> Result<Self::Value, E> {
            Ok($value)
        })*

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($value)
        }
    };
}

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name<'de>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Name<'de>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a model")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
        Ok(Name::Text(name.into()))
    }

    fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
        Ok(Name::Text(name.to_owned().into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Name<'de>, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Name::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Name<'de>, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Name::Other)
    }

    pass_over!(Name::Other; visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
}

struct FlagSeed;

impl<'de> DeserializeSeed<'de> for FlagSeed {
    type Value = Option<bool>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<bool>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for FlagSeed {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Option<bool>, E> {
        Ok(Some(flag))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<bool>, A::Error> {
        IgnoredAny.visit_map(map).map(|_| None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Option<bool>, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| None)
    }

    pass_over!(None; visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);
}

#[cfg(test)]
mod tests;
