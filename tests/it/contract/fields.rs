//! Whatever an operator writes into `P:config` is either in force or refused where it can be seen, and Lua and Rust
//! agree on which (design sections 3.1 and 4).

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::json;
use tidegate::core::thresholds::Field;

use crate::harness::{Fleet, Stub, chat, eventually, get, publish, rounds};

/// Numbers, near-numbers, words of other fields, and anything else.
fn text() -> impl Strategy<Value = String> {
    let words = [
        "",
        " ",
        "true",
        "TRUE",
        "kv",
        "direct",
        "None",
        "nan",
        "inf",
        "-0",
        "0x1f",
        "1e309",
        "1e-400",
        "9007199254740992",
    ];
    prop_oneof![
        2 => "[0-9]{1,17}",
        3 => "[0-9]{0,3}\\.[0-9]{0,6}",
        2 => "[0-9]{1,2}(\\.[0-9]{1,3})?[eE][+-]?[0-9]{1,3}",
        2 => "[-+0-9.eE xX_,%]{1,12}",
        1 => prop::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => "\\PC{0,20}",
        1 => "[0-9|:{}'\"\\\\\n\r\0]{1,300}",
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn any_text_in_a_field_is_applied_or_refused_in_sight() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let mut runner = TestRunner::default();
    let strategy = (prop::sample::select(Field::ALL.as_slice()), text());
    let figures = json!({"active_decode_blocks": 0, "kv_total_blocks": 100});
    for _ in 0..rounds(800, 20_000) {
        let (field, text) = strategy.new_tree(&mut runner).unwrap().current();
        let before = fleet.applied(field.name()).await;
        fleet.set_config(field.name(), &text).await;
        publish(&worker, &figures).await;
        let after = fleet.applied(field.name()).await;
        let error = fleet.applied(&format!("error:{field}")).await;
        match field.check(&text) {
            Ok(value) => {
                let after = after.unwrap_or_else(|| panic!("{field} = {text:?} is valid and not in force"));
                assert_eq!(field.check(&after), Ok(value), "{field} = {text:?} became {after:?}");
                assert_eq!(error, None, "{field} = {text:?}");
            }
            Err(_) => {
                assert_eq!(after, before, "{field} = {text:?} is not valid");
                let error = error.unwrap_or_else(|| panic!("{field} = {text:?}: the refusal cannot be seen"));
                assert!(error.len() <= 200 && text.as_bytes().starts_with(error.as_bytes()), "{text:?}: {error:?}");
            }
        }
    }
    let key = fleet.keys().named("config");
    fleet.redis.command::<i64>(&["DEL", &key]).await;
    publish(&worker, &figures).await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
    assert!(!frontend.log().contains("panicked") && !worker.log().contains("panicked"));
}

/// Redis cuts bytes, not characters; nobody may stumble over half of one.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_value_in_any_script_is_shown() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    for value in ["模".repeat(100), "x".to_owned() + &"é".repeat(150)] {
        fleet.set_config("max_inflight", &value).await;
        publish(&worker, &json!({"active_decode_blocks": 0, "kv_total_blocks": 100})).await;
        eventually("a frontend shows it", async || {
            let page = get(frontend.address(), "/fleet").await;
            page.status == 200 && page.text().contains(&value.chars().take(40).collect::<String>())
        })
        .await;
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
        let url = fleet.redis.url();
        let namespace = fleet.redis.namespace().as_str();
        let mut status = fleet.process("status", &["status", "--redis-url", url, "--namespace", namespace], &[]);
        assert_eq!(status.exit_code().await, 0, "{}", status.log());
        assert!(status.log().contains("max_inflight"), "{}", status.log());
    }
}
