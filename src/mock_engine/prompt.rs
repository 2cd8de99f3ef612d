//! What the engine takes from a request body: how long the prompt is, how long the answer is to be, and its form.

use serde_json::{Map, Value};

/// Tokens of an answer whose request sets no limit.
const DEFAULT_OUTPUT: u64 = 64;

/// A request, read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prompt {
    pub(super) model: String,
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
    /// The request itself set the length.
    pub(super) limited: bool,
    pub(super) stream: bool,
    /// `stream_options.include_usage`.
    pub(super) usage: bool,
    /// How many inputs there are: the vectors of an embedding.
    pub(super) inputs: usize,
}

impl Prompt {
    /// Reads a body.
    ///
    /// # Errors
    /// Says which field is missing or wrong.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("invalid JSON: {error}"))?;
        let Value::Object(fields) = value else { return Err("the body must be a JSON object".into()) };
        let model = fields.get("model").and_then(Value::as_str).ok_or("model: a string is required")?.to_owned();
        let texts = ["messages", "prompt", "input", "system", "instructions"];
        if !texts.iter().any(|name| fields.contains_key(*name)) {
            return Err("messages, prompt or input is required".into());
        }
        let prompt_tokens = texts.iter().filter_map(|name| fields.get(*name)).map(tokens).sum::<f64>();
        let limit = limit(&fields)?;
        let stream = match fields.get("stream") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(stream)) => *stream,
            Some(other) => return Err(format!("stream: must be true or false, is {other}")),
        };
        let options = fields.get("stream_options").and_then(|options| options.get("include_usage"));
        Ok(Self {
            model,
            prompt_tokens: (prompt_tokens.ceil() as u64).max(1),
            output_tokens: limit.unwrap_or(DEFAULT_OUTPUT),
            limited: limit.is_some(),
            stream,
            usage: options.and_then(Value::as_bool).unwrap_or(false),
            inputs: match fields.get("input") {
                Some(Value::Array(inputs)) if !inputs.iter().any(Value::is_number) => inputs.len(),
                _ => 1,
            },
        })
    }
}

fn limit(fields: &Map<String, Value>) -> Result<Option<u64>, String> {
    for name in ["max_completion_tokens", "max_output_tokens", "max_tokens"] {
        match fields.get(name) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let limit = value.as_u64().filter(|limit| *limit > 0);
                return limit.map(Some).ok_or_else(|| format!("{name}: must be a positive integer, is {value}"));
            }
        }
    }
    Ok(None)
}

/// Four bytes of text are a token; a number in a prompt is one.
fn tokens(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.len() as f64 / 4.0,
        Value::Number(_) => 1.0,
        Value::Array(items) => items.iter().map(tokens).sum(),
        Value::Object(fields) => {
            fields.iter().filter(|(name, _)| *name != "role" && *name != "type").map(|(_, value)| tokens(value)).sum()
        }
        Value::Null | Value::Bool(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Prompt, String> {
        Prompt::read(text.as_bytes())
    }

    #[test]
    fn lengths_and_forms() {
        let chat = read(r#"{"model":"m","messages":[{"role":"user","content":"12345678"}],"stream":true}"#).unwrap();
        assert_eq!((chat.prompt_tokens, chat.output_tokens, chat.stream, chat.limited), (2, 64, true, false));
        let parts = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"1234"}]}]}"#;
        assert_eq!(read(parts).unwrap().prompt_tokens, 1);
        let ids = read(r#"{"model":"m","prompt":[1,2,3],"max_tokens":7}"#).unwrap();
        assert_eq!((ids.prompt_tokens, ids.output_tokens, ids.limited), (3, 7, true));
        assert_eq!(read(r#"{"model":"m","input":["a","b"]}"#).unwrap().inputs, 2);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, word) in [
            ("{", "JSON"),
            ("[]", "object"),
            ("{}", "model"),
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","prompt":"x","max_tokens":0}"#, "max_tokens"),
            (r#"{"model":"m","prompt":"x","stream":1}"#, "stream"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(word), "{body}: {error}");
        }
    }
}
