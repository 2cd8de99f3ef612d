//! The mock engine, over its port.

use std::net::SocketAddr;

use serde_json::json;
use tidegate::core::id::ModelName;
use tidegate::mock_engine::model::Limits;
use tidegate::mock_engine::{MockEngine, Settings};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::harness::{Connection, eventually, get, post, request};

fn limits() -> Limits {
    Limits {
        kv_total_blocks: 100,
        kv_block_size: 16,
        max_num_seqs: 2,
        max_num_batched_tokens: 8_192,
        prefill_tokens_per_s: 1e6,
        decode_tokens_per_s: 1e3,
        data_parallel_size: 1,
    }
}

fn start(limits: Limits) -> (SocketAddr, DropGuard) {
    let settings = Settings { listen: "127.0.0.1:0".parse().unwrap(), model: ModelName::parse("m").unwrap(), limits };
    let engine = MockEngine::bind(settings).unwrap();
    let address = engine.address();
    let shutdown = CancellationToken::new();
    tokio::spawn(engine.serve(shutdown.clone()));
    (address, shutdown.drop_guard())
}

/// The first value of a series of the metrics page.
async fn figure(address: SocketAddr, series: &str) -> f64 {
    let page = get(address, "/metrics").await.text();
    let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("{series}:\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn whole_answers_have_the_tokens_that_were_asked_for() {
    let (address, _guard) = start(limits());
    let messages = json!([{"role": "user", "content": "hello"}]);
    let chat = json!({"model": "m", "messages": messages, "max_tokens": 3});
    let answer = post(address, "/v1/chat/completions", &chat).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "the tide comes");
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
    assert_eq!(answer.json()["usage"], json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}));

    let text = post(address, "/v1/completions", &json!({"model": "m", "prompt": "x", "max_tokens": 1})).await;
    assert_eq!(text.json()["choices"][0]["text"], "the");
    let response = post(address, "/v1/responses", &json!({"model": "m", "input": "x"})).await;
    assert_eq!(response.json()["status"], "completed");
    let message = post(address, "/v1/messages", &json!({"model": "m", "messages": messages, "max_tokens": 2})).await;
    assert_eq!(message.json()["content"][0]["text"], "the tide");
    assert_eq!(message.json()["stop_reason"], "max_tokens");
    let count = post(address, "/v1/messages/count_tokens", &json!({"model": "m", "messages": messages})).await;
    assert_eq!(count.json(), json!({"input_tokens": 2}));
    let vectors = post(address, "/v1/embeddings", &json!({"model": "m", "input": ["a", "b"]})).await;
    assert_eq!(vectors.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(get(address, "/v1/models").await.json()["data"][0]["id"], "m");
    assert_eq!(get(address, "/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_come_token_by_token_and_end_properly() {
    let (address, _guard) = start(limits());
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": true,
        "stream_options": {"include_usage": true}});
    let answer = post(address, "/v1/chat/completions", &body).await;
    assert!(answer.complete);
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    let text = answer.text();
    let events: Vec<&str> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    assert_eq!(events.len(), 1 + 4 + 1 + 1 + 1, "role, tokens, reason, usage, end:\n{text}");
    assert_eq!(events.last(), Some(&"data: [DONE]"));

    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": true});
    let text = post(address, "/v1/messages", &body).await.text();
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let expected = "message_start content_block_start content_block_delta content_block_delta content_block_stop \
                    message_delta message_stop";
    assert_eq!(names.join(" "), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn load_shows_on_the_page_and_goes_with_the_client() {
    let (address, _guard) = start(Limits { decode_tokens_per_s: 1.0, ..limits() });
    let prompt = "x".repeat(640);
    let body = json!({"model": "m", "prompt": prompt, "max_tokens": 1_000, "stream": true}).to_string();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Connection::open(address).await.unwrap();
        client.send(request("POST", "/v1/completions", "", body.as_bytes())).await.unwrap();
        clients.push(client);
    }
    eventually("two run and one waits", async || {
        figure(address, "vllm:num_requests_running{").await == 2.0
            && figure(address, "vllm:num_requests_waiting{").await == 1.0
    })
    .await;
    // 160 tokens of prompt, the first token and room for the next one: eleven blocks each.
    assert_eq!(figure(address, "vllm:kv_cache_usage_perc{").await, 0.22);
    clients.clear();
    eventually("all of it is given back", async || {
        figure(address, "vllm:kv_cache_usage_perc{").await == 0.0
            && figure(address, "vllm:num_requests_waiting{").await == 0.0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said() {
    let (address, _guard) = start(limits());
    for (path, body, status, word) in [
        ("/v1/completions", json!({"model": "other", "prompt": "x"}), 404, "other"),
        ("/v1/completions", json!({"model": "m"}), 400, "prompt"),
        ("/v1/completions", json!({"model": "m", "prompt": "x", "max_tokens": 1_600}), 400, "1600"),
        ("/v1/nothing", json!({}), 404, "/v1/nothing"),
    ] {
        let answer = post(address, path, &body).await;
        assert_eq!(answer.status, status, "{path} {body}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(get(address, "/v1/completions").await.status, 405);
}
