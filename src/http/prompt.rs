//! How long a prompt is, without a tokenizer: bytes of prompt text / 4 (design section 3.1).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bytes of text that make a token.
const BYTES_PER_TOKEN: u64 = 4;

/// How deep text is looked for; `messages[].content[].content[].text` is 7. What lies deeper is not counted, and costs
/// no stack.
const DEPTH: u8 = 12;

/// Estimated prompt tokens of a request body of any of the APIs, rounded up. A prompt of token ids counts exactly;
/// images and other data do not count, nor does a body that is not JSON.
#[must_use]
pub fn tokens(body: &[u8]) -> u64 {
    let mut bytes = 0;
    let mut json = serde_json::Deserializer::from_slice(body);
    match json.deserialize_map(Top(&mut bytes)) {
        Ok(()) => tokens_of(bytes),
        Err(_) => 0,
    }
}

/// Tokens in so many bytes of text, rounded up.
#[must_use]
pub fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Whether a member of the body holds the prompt.
#[must_use]
pub fn is_prompt(key: &str) -> bool {
    matches!(key, "messages" | "prompt" | "input" | "system" | "instructions")
}

/// The whole body: only the members that hold the prompt count.
struct Top<'a>(&'a mut u64);

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(prompt) = map.next_key_seed(KeyIs(is_prompt))? {
            if prompt {
                map.next_value_seed(Text::new(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Adds up the bytes of a prompt: text, token ids, or messages whose `content` and `text` count.
#[derive(Debug)]
pub struct Text<'a> {
    depth: u8,
    bytes: &'a mut u64,
}

impl<'a> Text<'a> {
    /// Adds to `bytes`.
    pub fn new(bytes: &'a mut u64) -> Self {
        Self { depth: DEPTH, bytes }
    }
}

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        if self.depth == 0 {
            return json.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prompt")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        *self.bytes = self.bytes.saturating_add(text.len() as u64);
        Ok(())
    }

    fn visit_u64<E>(self, _token: u64) -> Result<(), E> {
        *self.bytes = self.bytes.saturating_add(BYTES_PER_TOKEN);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let depth = self.depth - 1;
        while seq.next_element_seed(Text { depth, bytes: self.bytes })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth = self.depth - 1;
        while let Some(text) = map.next_key_seed(KeyIs(|key| matches!(key, "content" | "text")))? {
            if text {
                map.next_value_seed(Text { depth, bytes: self.bytes })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Asks something of a key without keeping it.
struct KeyIs(fn(&str) -> bool);

impl<'de> DeserializeSeed<'de> for KeyIs {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok((self.0)(key))
    }
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
