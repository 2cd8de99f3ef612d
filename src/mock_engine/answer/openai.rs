//! Chat and text completions.

use serde_json::{Value, json};

use super::{Answer, data};
use crate::mock_engine::model::Finish;

fn usage(answer: &Answer) -> Value {
    json!({
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.generated,
        "total_tokens": answer.prompt_tokens + answer.generated,
    })
}

fn envelope(answer: &Answer, object: &str, choices: Value) -> Value {
    json!({"id": answer.id, "object": object, "created": answer.created, "model": answer.model, "choices": choices})
}

fn with_usage(answer: &Answer, mut value: Value) -> Value {
    value["usage"] = usage(answer);
    value
}

pub(super) fn chat(answer: &Answer, finish: Finish) -> Value {
    let message = json!({"role": "assistant", "content": answer.text()});
    let choices = json!([{"index": 0, "message": message, "logprobs": null, "finish_reason": finish.name()}]);
    with_usage(answer, envelope(answer, "chat.completion", choices))
}

pub(super) fn completion(answer: &Answer, finish: Finish) -> Value {
    let choices = json!([{"index": 0, "text": answer.text(), "logprobs": null, "finish_reason": finish.name()}]);
    with_usage(answer, envelope(answer, "text_completion", choices))
}

fn chat_chunk(answer: &Answer, delta: &Value, finish: Option<Finish>) -> String {
    let finish = finish.map(Finish::name);
    let choices = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    data(&envelope(answer, "chat.completion.chunk", choices))
}

fn completion_chunk(answer: &Answer, text: &str, finish: Option<Finish>) -> String {
    let finish = finish.map(Finish::name);
    let choices = json!([{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]);
    data(&envelope(answer, "text_completion", choices))
}

fn last(answer: &Answer, object: &str) -> String {
    let usage =
        if answer.usage { data(&with_usage(answer, envelope(answer, object, json!([])))) } else { String::new() };
    format!("{usage}data: [DONE]\n\n")
}

pub(super) fn chat_begin(answer: &Answer) -> String {
    chat_chunk(answer, &json!({"role": "assistant", "content": ""}), None)
}

pub(super) fn chat_token(answer: &Answer, word: &str) -> String {
    chat_chunk(answer, &json!({"content": word}), None)
}

pub(super) fn chat_end(answer: &Answer, finish: Finish) -> String {
    chat_chunk(answer, &json!({}), Some(finish)) + &last(answer, "chat.completion.chunk")
}

pub(super) fn completion_token(answer: &Answer, word: &str) -> String {
    completion_chunk(answer, word, None)
}

pub(super) fn completion_end(answer: &Answer, finish: Finish) -> String {
    completion_chunk(answer, "", Some(finish)) + &last(answer, "text_completion")
}
