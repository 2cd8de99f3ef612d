//! How long a prompt is, without a tokenizer: bytes of prompt text / 4 (design section 3.1).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bytes of text that make a token.
const BYTES_PER_TOKEN: u64 = 4;

/// Estimated prompt tokens of a request body of any of the APIs, rounded up. A prompt of token ids counts exactly;
/// images and other data do not count, nor does a body that is not JSON.
#[must_use]
pub fn tokens(body: &[u8]) -> u64 {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    Top.deserialize(&mut deserializer).map_or(0, |bytes| bytes.div_ceil(BYTES_PER_TOKEN))
}

/// The whole body: only the members that hold the prompt count.
struct Top;

/// A prompt: text, token ids, or messages whose `content` and `text` count.
struct Prompt;

impl<'de> DeserializeSeed<'de> for Top {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        sum(map, |key| matches!(key, "messages" | "prompt" | "input" | "system" | "instructions"))
    }
}

impl<'de> DeserializeSeed<'de> for Prompt {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Prompt {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt")
    }

    fn visit_str<E>(self, text: &str) -> Result<u64, E> {
        Ok(text.len() as u64)
    }

    fn visit_u64<E>(self, _token: u64) -> Result<u64, E> {
        Ok(BYTES_PER_TOKEN)
    }

    fn visit_i64<E>(self, _: i64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<u64, A::Error> {
        let mut bytes = 0_u64;
        while let Some(more) = seq.next_element_seed(Self)? {
            bytes = bytes.saturating_add(more);
        }
        Ok(bytes)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        sum(map, |key| matches!(key, "content" | "text"))
    }
}

fn sum<'de, A: MapAccess<'de>>(mut map: A, counts: impl Fn(&str) -> bool) -> Result<u64, A::Error> {
    let mut bytes = 0_u64;
    while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
        if counts(&key) {
            bytes = bytes.saturating_add(map.next_value_seed(Prompt)?);
        } else {
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn prompt_text_of_every_api_counts_and_nothing_else() {
        for (body, wanted) in [
            (r#"{"model":"mmmm","prompt":"12345678"}"#, 2),
            (r#"{"prompt":"12345"}"#, 2),
            (r#"{"prompt":["1234","5678"],"user":"someone"}"#, 2),
            (r#"{"prompt":[1,2,3]}"#, 3),
            (r#"{"prompt":[[1,2],[3]]}"#, 3),
            (r#"{"messages":[{"role":"system","content":"1234"},{"role":"user","content":"5678"}]}"#, 2),
            (r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"call_1"}]}]}"#, 0),
            (
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"1234"},
                    {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAAAAAAAAAAAAAAAAAA"}}]}]}"#,
                1,
            ),
            (r#"{"system":[{"type":"text","text":"1234"}],"messages":[{"role":"user","content":"1234"}]}"#, 2),
            (r#"{"instructions":"1234","input":"1234"}"#, 2),
            (r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"1234"}]}]}"#, 1),
            (r#"{"prompt":"\u00e9\n"}"#, 1),
            (r#"{"prompt":true,"input":-1,"system":1.5}"#, 0),
            ("{}", 0),
            ("[]", 0),
            ("", 0),
            (r#"{"prompt":"1234""#, 0),
        ] {
            assert_eq!(tokens(body.as_bytes()), wanted, "{body}");
        }
    }

    #[test]
    fn depth_neither_counts_nor_overflows() {
        let deep = "[".repeat(100_000);
        assert_eq!(tokens(format!("{{\"x\":{deep}").as_bytes()), 0);
        assert_eq!(tokens(format!("{{\"prompt\":{deep}").as_bytes()), 0);
        let ignored = format!("{{\"x\":{deep}{},\"prompt\":\"1234\"}}", "]".repeat(100_000));
        assert_eq!(tokens(ignored.as_bytes()), 1);
    }
}
