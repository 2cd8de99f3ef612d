//! `/busy_threshold`, in the reference's shapes (reference behaviour, sections 2.2 and 8.5).

use serde_json::{Value, json};
use tidegate::config::secret::Secret;
use tidegate::core::op::FigureKind;

use super::rig::{JSON, Rig, Worker};
use crate::harness::{Answer, Stub, chat, eventually, get, post, request};

const PATH: &str = "/busy_threshold";

fn all(decode: Value, tokens: Value, frac: Value, inflight: Value) -> Value {
    json!({
        "model": "m", "active_decode_blocks_threshold": decode, "active_prefill_tokens_threshold": tokens,
        "active_prefill_tokens_threshold_frac": frac, "max_inflight": inflight,
    })
}

async fn set(rig: &Rig, body: Value) -> Answer {
    post(rig.address(), PATH, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn t6_the_reference_s_test_of_its_api() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |settings| {
        let seed = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        settings.seeds =
            vec![seed("active_decode_blocks_threshold", "0.9"), seed("active_prefill_tokens_threshold", "1000")];
    })
    .await;
    let seeded = all(json!(0.9), json!(1000), Value::Null, Value::Null);
    eventually("the flags are in force", async || set(&rig, json!({"model": "m"})).await.json() == seeded).await;
    assert_eq!(get(rig.address(), PATH).await.json(), json!({"thresholds": [seeded]}));
    for (body, status, want) in [
        (json!({"active_decode_blocks_threshold": 0.75}), 200, all(json!(0.75), json!(1000), Value::Null, Value::Null)),
        (
            json!({"active_prefill_tokens_threshold": 2000}),
            200,
            all(json!(0.75), json!(2000), Value::Null, Value::Null),
        ),
        (
            json!({"active_decode_blocks_threshold": 0.5, "active_prefill_tokens_threshold": 1200}),
            200,
            all(json!(0.5), json!(1200), Value::Null, Value::Null),
        ),
        (json!({"active_decode_blocks_threshold": 1.5}), 400, Value::Null),
        (json!({"active_prefill_tokens_threshold": 5000}), 200, all(json!(0.5), json!(5000), Value::Null, Value::Null)),
        (json!({"active_prefill_tokens_threshold": -1.0}), 422, Value::Null),
        (
            json!({"active_prefill_tokens_threshold_frac": 0.8, "max_inflight": 7}),
            200,
            all(json!(0.5), json!(5000), json!(0.8), json!(7)),
        ),
        (
            json!({"unset": ["max_inflight"], "active_decode_blocks_threshold": null}),
            200,
            all(json!(0.5), json!(5000), json!(0.8), Value::Null),
        ),
    ] {
        let mut whole = body.clone();
        whole["model"] = json!("m");
        let answer = set(&rig, whole).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        if status == 200 {
            assert_eq!(answer.json(), want, "{body}");
        } else {
            assert!(answer.json()["error"].is_string(), "{body}");
        }
    }
    let last = all(json!(0.5), json!(5000), json!(0.8), Value::Null);
    assert_eq!(get(rig.address(), PATH).await.json(), json!({"thresholds": [last]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_models_and_bad_requests() {
    let rig = Rig::bare(|_| {}).await;
    let unknown = set(&rig, json!({"model": "X", "max_inflight": 1})).await;
    let message = "Model 'X' not found. Thresholds can only be set for discovered models.";
    assert_eq!((unknown.status, unknown.json()), (404, json!({"error": message})));
    let asked = set(&rig, json!({"model": "X"})).await;
    assert_eq!((asked.status, asked.json()["max_inflight"].clone()), (200, Value::Null));
    assert_eq!(
        set(&rig, json!({"model": "X", "active_decode_blocks_threshold": 2})).await.status,
        400,
        "400 before 404"
    );
    assert_eq!(set(&rig, json!({"model": "X", "busy_threshold": 2})).await.status, 422);
    let mut client = rig.connect().await;
    client.send(request("POST", PATH, "Content-Type: text/plain\r\n", b"{}")).await.unwrap();
    let plain = client.answer().await.unwrap();
    assert_eq!(
        (plain.status, plain.json()["error"].as_str()),
        (415, Some("Expected request with Content-Type application/json"))
    );
    client.send(request("POST", PATH, JSON, &vec![b' '; 100_000])).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 413);
    assert_eq!(get(rig.address(), PATH).await.json(), json!({"thresholds": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn recompute_acts_before_the_answer() {
    let stub = Stub::start().await;
    let mut rig = Rig::bare(|_| {}).await;
    let figures = vec![(FigureKind::ActiveDecodeBlocks, 60), (FigureKind::KvTotalBlocks, 100)];
    rig.add(Worker { figures, ..Worker::new("w1", &stub) }).await;
    assert_eq!(chat(rig.address(), "m").await.status, 200);
    for _ in 0..5 {
        let body = json!({"model": "m", "active_decode_blocks_threshold": 0.5, "recompute": true});
        assert_eq!(set(&rig, body).await.status, 200);
        let refused = chat(rig.address(), "m").await;
        assert_eq!((refused.status, refused.reason().as_str()), (529, "all_workers_busy"));
        let body = json!({"model": "m", "unset": ["active_decode_blocks_threshold"], "recompute": true});
        assert_eq!(set(&rig, body).await.status, 200);
        assert_eq!(chat(rig.address(), "m").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f033_what_one_frontend_sets_all_have() {
    let stub = Stub::start().await;
    let one = Rig::with(&stub, 10, |_| {}).await;
    assert_eq!(set(&one, json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await.status, 200);
    let settings = tidegate::frontend::Settings::new("127.0.0.1:0".parse().unwrap());
    let other = tidegate::frontend::Frontend::bind(settings, one.store.clone()).await.unwrap();
    let address = other.local_addr().unwrap();
    let serving = tokio::spawn(other.serve(one.shutdown.clone()));
    let shown = post(address, PATH, &json!({"model": "m"})).await.json();
    assert_eq!(shown["active_decode_blocks_threshold"], 0.5);
    serving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn f134_only_the_token_opens_the_admin_route() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |settings| settings.admin_token = Some(Secret::new("s3cret-token"))).await;
    let body = json!({"model": "m", "max_inflight": 3}).to_string();
    let try_with = async |path: &str, headers: &str| {
        let mut client = rig.connect().await;
        client.send(request("POST", path, &format!("{JSON}{headers}"), body.as_bytes())).await.unwrap();
        client.answer().await.unwrap()
    };
    for headers in [
        "",
        "Authorization: Bearer wrong\r\n",
        "Authorization: Bearer s3cret-tokem\r\n",
        "Authorization: Bearer s3cret-token2\r\n",
        "Authorization: Bearer s3cret\r\n",
        "Authorization: bearer s3cret-token\r\n",
        "Authorization: Bearer  s3cret-token\r\n",
        "Authorization: s3cret-token\r\n",
        "Authorization: Basic s3cret-token\r\n",
        "Authorization: Bearer s3cret-token\r\nAuthorization: Bearer s3cret-token\r\n",
        "X-HTTP-Method-Override: GET\r\n",
    ] {
        let answer = try_with(PATH, headers).await;
        assert_eq!(answer.status, 401, "{headers:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(!answer.text().contains("s3cret"));
    }
    for path in ["/busy_threshold/", "//busy_threshold", "/%62usy_threshold", "/Busy_threshold"] {
        assert_eq!(try_with(path, "").await.status, 404, "{path}");
    }
    let open = get(rig.address(), PATH).await;
    assert_eq!((open.status, open.json()["thresholds"][0]["max_inflight"].clone()), (200, Value::Null));
    let right = try_with(PATH, "Authorization: Bearer s3cret-token\r\n").await;
    assert_eq!((right.status, right.json()["max_inflight"].clone()), (200, json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_port_takes_the_admin_routes() {
    let stub = Stub::start().await;
    let rig = Rig::with(&stub, 10, |settings| settings.admin_listen = Some("127.0.0.1:0".parse().unwrap())).await;
    for path in [PATH, "/fleet", "/metrics"] {
        assert_eq!(get(rig.address(), path).await.status, 404, "{path}");
        assert_eq!(get(rig.admin(), path).await.status, 200, "{path}");
    }
    assert_eq!(chat(rig.admin(), "m").await.status, 404);
    assert_eq!(chat(rig.address(), "m").await.status, 200);
    let without = Rig::bare(|settings| settings.admin_api = false).await;
    assert_eq!(get(without.address(), PATH).await.status, 404);
    assert_eq!(post(without.address(), PATH, &json!({"model": "m"})).await.status, 404);
}
