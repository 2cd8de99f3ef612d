//! Anthropic's messages.

use serde_json::{Value, json};

use super::{Answer, event};
use crate::mock_engine::model::Finish;

fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
    }
}

fn message(answer: &Answer, content: Value, finish: Option<Finish>) -> Value {
    json!({
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": finish.map(reason),
        "stop_sequence": null,
        "usage": {"input_tokens": answer.prompt_tokens, "output_tokens": answer.generated},
    })
}

pub(super) fn whole(answer: &Answer, finish: Finish) -> Value {
    message(answer, json!([{"type": "text", "text": answer.text()}]), Some(finish))
}

pub(super) fn begin(answer: &Answer) -> String {
    event(&json!({"type": "message_start", "message": message(answer, json!([]), None)}))
        + &event(&json!({
            "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
        }))
}

pub(super) fn token(word: &str) -> String {
    event(&json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}))
}

pub(super) fn end(answer: &Answer, finish: Finish) -> String {
    event(&json!({"type": "content_block_stop", "index": 0}))
        + &event(&json!({
            "type": "message_delta", "delta": {"stop_reason": reason(finish), "stop_sequence": null},
            "usage": {"output_tokens": answer.generated},
        }))
        + &event(&json!({"type": "message_stop"}))
}
