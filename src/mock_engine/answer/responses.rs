//! OpenAI's responses.

use serde_json::{Value, json};

use super::{Answer, event};
use crate::mock_engine::model::Finish;

fn response(answer: &Answer, status: &str, output: Value) -> Value {
    json!({
        "id": answer.id,
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "model": answer.model,
        "output": output,
        "parallel_tool_calls": false,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": answer.generated,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.prompt_tokens + answer.generated,
        },
    })
}

fn message(answer: &Answer, status: &str, content: Value) -> Value {
    let id = answer.id.replacen("resp_", "msg_", 1);
    json!({"id": id, "type": "message", "role": "assistant", "status": status, "content": content})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

fn status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

pub(super) fn whole(answer: &Answer, finish: Finish) -> Value {
    let message = message(answer, status(finish), json!([part(&answer.text())]));
    let mut whole = response(answer, status(finish), json!([message]));
    if finish == Finish::Length {
        whole["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    whole
}

/// `sequence_number` of the first token: three events come before it.
const FIRST: u64 = 3;

pub(super) fn begin(answer: &Answer) -> String {
    let item = message(answer, "in_progress", json!([]));
    let id = &item["id"];
    event(&json!({
        "type": "response.created", "sequence_number": 0, "response": response(answer, "in_progress", json!([])),
    })) + &event(&json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item}))
        + &event(&json!({
            "type": "response.content_part.added", "sequence_number": 2, "item_id": id, "output_index": 0,
            "content_index": 0, "part": part(""),
        }))
}

pub(super) fn token(answer: &Answer, word: &str) -> String {
    event(&json!({
        "type": "response.output_text.delta", "sequence_number": FIRST + answer.generated - 1,
        "item_id": answer.id.replacen("resp_", "msg_", 1), "output_index": 0, "content_index": 0, "delta": word,
        "logprobs": [],
    }))
}

pub(super) fn end(answer: &Answer, finish: Finish) -> String {
    let name = if finish == Finish::Stop { "response.completed" } else { "response.incomplete" };
    let text = answer.text();
    let item = message(answer, status(finish), json!([part(&text)]));
    let next = FIRST + answer.generated;
    event(&json!({
        "type": "response.output_text.done", "sequence_number": next, "item_id": item["id"], "output_index": 0,
        "content_index": 0, "text": text, "logprobs": [],
    })) + &event(&json!({
        "type": "response.content_part.done", "sequence_number": next + 1, "item_id": item["id"], "output_index": 0,
        "content_index": 0, "part": part(&text),
    })) + &event(&json!({
        "type": "response.output_item.done", "sequence_number": next + 2, "output_index": 0, "item": item,
    })) + &event(&json!({"type": name, "sequence_number": next + 3, "response": whole(answer, finish)}))
}
