//! Names and metrics.

use serde_json::json;

use crate::harness::{
    Connection, Crowd, Fleet, Script, Stub, chat, chat_body, delete, eventually, get, keys, post, publish, request,
    thresholds, with_status,
};

#[tokio::test(flavor = "multi_thread")]
async fn f123_made_up_names_leave_no_trace() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let address = frontend.address();
    eventually("unknown models are unknown", async || chat(address, "nobody").await.status == 404).await;
    chat(address, "m").await;
    get(address, "/nothing").await;
    delete(address, "/nothing").await;
    let series = async || {
        let page = get(address, "/metrics").await.text();
        page.lines().filter(|line| !line.starts_with('#')).count()
    };
    let stored = async || {
        let pattern = format!("{}*", fleet.redis.namespace());
        fleet.redis.command::<Vec<String>>(&["KEYS", &pattern]).await.len()
    };
    let (series_before, stored_before) = (series().await, stored().await);
    let mut client = Connection::open(address).await.unwrap();
    for number in 0..500_u32 {
        let name: u64 = rand::random();
        let body = chat_body(&format!("made-up-{name}")).to_string();
        let headers = format!("Content-Type: application/json\r\nx-request-id: {name}\r\n");
        client.send(request("POST", "/v1/chat/completions", &headers, body.as_bytes())).await.unwrap();
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, 404, "{number}");
        assert_eq!(answer.header("x-request-id"), Some(name.to_string().as_str()));
        client.send(request("GET", &format!("/{name}"), "", b"")).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 404);
    }
    assert_eq!(series().await, series_before);
    assert_eq!(stored().await, stored_before, "keys were made for unknown models");
    assert_eq!(engine.count(), 1);
}

/// Names that keys, patterns, hash tags or labels could stumble over.
#[tokio::test(flavor = "multi_thread")]
async fn f125_every_name_is_its_own() {
    let models = [
        "us.vendor.m-v1:0",
        "llama3:8b",
        "org/m",
        "a b",
        "模型",
        "\u{e9}",
        "e\u{301}",
        "*",
        "m?",
        "[ab]",
        "{a}b",
        "%7Ba%7Db",
        "\"quoted\\",
    ];
    let workers = ["pod:1:2", "10.0.0.1:9001", "工", "a|b", "{w}", "*"];
    let fleet = Fleet::new();
    let frontend = fleet.frontend(&[]).await;
    let address = frontend.address();
    let mut running = Vec::new();
    for (index, model) in models.iter().enumerate() {
        let engine = Stub::start().await;
        let id = workers[index % workers.len()];
        let worker = fleet.start_worker(fleet.redis.url(), model, id, &engine.url(), &[]).listening().await;
        fleet.registered(model, id).await;
        running.push((*model, id, engine, worker));
    }
    eventually("all are listed", async || {
        let listed = get(address, "/v1/models").await.json();
        let listed: Vec<&str> = listed["data"].as_array().unwrap().iter().filter_map(|m| m["id"].as_str()).collect();
        models.iter().all(|model| listed.contains(model)) && listed.len() == models.len()
    })
    .await;
    for (model, id, engine, worker) in &running {
        let before: usize = running.iter().map(|(_, _, engine, _)| engine.count()).sum();
        let answer = chat(address, model).await;
        assert_eq!((answer.status, answer.worker().map(str::to_owned)), (200, Some((*id).to_owned())), "{model}");
        assert_eq!(engine.seen().last().unwrap().body, chat_body(model).to_string().as_bytes());
        assert_eq!(running.iter().map(|(_, _, engine, _)| engine.count()).sum::<usize>(), before + 1);

        thresholds(&frontend, &json!({"model": model, "active_decode_blocks_threshold": 0.5})).await;
        publish(worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
        let busy = keys(&fleet.redis, model).named("busy");
        assert_eq!(fleet.redis.command::<Vec<String>>(&["SMEMBERS", &busy]).await, [*id]);
        assert_eq!(chat(address, model).await.status, 529, "{model}");
        for (other, _, _, _) in running.iter().filter(|(other, _, _, _)| other != model) {
            let busy = keys(&fleet.redis, other).named("busy");
            assert_eq!(fleet.redis.command::<i64>(&["SCARD", &busy]).await, 0, "{model} made {other} busy");
        }
        thresholds(&frontend, &json!({"model": model, "unset": ["active_decode_blocks_threshold"], "recompute": true}))
            .await;
        let page = get(address, "/metrics").await.text();
        let label = model.replace('\\', "\\\\").replace('"', "\\\"");
        assert!(page.contains(&format!("model=\"{label}\"")), "{model} is not a label of:\n{page}");
    }
    for strange in ["modell", "m", "ab", "A b", "org%2Fm", "a b "] {
        assert_ne!(chat(address, strange).await.status, 200, "{strange}");
    }
    for (name, too_long) in [("model", "--model"), ("worker-id", "--worker-id")] {
        let long = "x".repeat(257);
        let (model, id) = if name == "model" { (long.as_str(), "w") } else { ("m", long.as_str()) };
        let mut refused = fleet.start_worker(fleet.redis.url(), model, id, "http://127.0.0.1:1", &[]);
        assert_eq!(refused.exit_code().await, 2);
        assert!(refused.log().contains(too_long.trim_start_matches('-')), "{}", refused.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f127_two_namespaces_on_one_redis_do_not_meet() {
    let one = Fleet::new();
    let two = Fleet::on(one.redis.other_namespace());
    let (engine_one, engine_two) = (Stub::start().await, Stub::start().await);
    let limits = ["--engine-request-limit", "1", "--request-queue-limit", "0"];
    let worker_one = one.worker("w1", &engine_one, &limits).await;
    let _worker_two = two.worker("w1", &engine_two, &limits).await;
    let (frontend_one, frontend_two) = (one.frontend(&[]).await, two.frontend(&[]).await);

    thresholds(&frontend_one, &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
    assert!(thresholds(&frontend_two, &json!({"model": "m"})).await["active_decode_blocks_threshold"].is_null());
    publish(&worker_one, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
    assert_eq!(chat(frontend_one.address(), "m").await.status, 529);
    assert_eq!(chat(frontend_two.address(), "m").await.status, 200);

    publish(&worker_one, &json!({"active_decode_blocks": 10})).await;
    engine_one.script(Script::hold());
    let held = Crowd::start(&[frontend_one.address()], 1, &chat_body("m")).await;
    eventually("fleet one is full", async || one.inflight("w1").await == 1).await;
    assert_eq!(chat(frontend_one.address(), "m").await.status, 529);
    assert_eq!(chat(frontend_two.address(), "m").await.status, 200);
    two.quiet().await;
    engine_one.open();
    assert_eq!(with_status(&held.finish().await, 200), 1);
    drop(worker_one);
    eventually("fleet one has no worker", async || chat(frontend_one.address(), "m").await.status == 503).await;
    assert_eq!(chat(frontend_two.address(), "m").await.status, 200);
    assert_eq!(engine_one.count(), 1);
}

mod owned {
    use super::*;
    use crate::harness::Redis;

    #[tokio::test(flavor = "multi_thread")]
    async fn f127_every_key_begins_with_its_namespace() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let worker = fleet.worker("w1", &engine, &["--engine-request-limit", "2"]).await;
        let frontend = fleet.frontend(&["--active-decode-blocks-threshold", "0.9"]).await;
        publish(&worker, &json!({"active_decode_blocks": 95, "kv_total_blocks": 100})).await;
        chat(frontend.address(), "m").await;
        publish(&worker, &json!({"active_decode_blocks": 5})).await;
        chat(frontend.address(), "m").await;
        post(frontend.address(), "/busy_threshold", &json!({"model": "m", "max_inflight": 9})).await;
        let all: Vec<String> = fleet.redis.command(&["KEYS", "*"]).await;
        assert!(all.len() > 10, "{all:?}");
        let own = format!("{}:", fleet.redis.namespace());
        assert!(all.iter().all(|key| key.starts_with(&own)), "{all:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f128_one_worker_id_under_two_models() {
    let fleet = Fleet::new();
    let (engine_a, engine_b) = (Stub::start().await, Stub::start().await);
    let url = fleet.redis.url();
    let flags = |slots: &'static str| ["--engine-request-limit", slots, "--request-queue-limit", "0"];
    let worker_a = fleet.start_worker(url, "A", "w", &engine_a.url(), &flags("1")).listening().await;
    let _worker_b = fleet.start_worker(url, "B", "w", &engine_b.url(), &flags("5")).listening().await;
    fleet.registered("A", "w").await;
    fleet.registered("B", "w").await;
    let frontend = fleet.frontend(&[]).await;
    thresholds(&frontend, &json!({"model": "A", "active_decode_blocks_threshold": 0.1})).await;
    thresholds(&frontend, &json!({"model": "B", "active_decode_blocks_threshold": 0.9})).await;
    publish(&worker_a, &json!({"active_decode_blocks": 50, "kv_total_blocks": 100})).await;
    assert_eq!(chat(frontend.address(), "A").await.status, 529);
    assert_eq!(chat(frontend.address(), "B").await.status, 200);
    publish(&worker_a, &json!({"active_decode_blocks": 5})).await;

    engine_a.script(Script::hold());
    engine_b.script(Script::hold());
    let mut a = Crowd::start(&[frontend.address()], 10, &chat_body("A")).await;
    let mut b = Crowd::start(&[frontend.address()], 10, &chat_body("B")).await;
    a.answered(9).await;
    b.answered(5).await;
    engine_a.open();
    engine_b.open();
    assert_eq!(with_status(&a.finish().await, 200), 1);
    assert_eq!(with_status(&b.finish().await, 200), 5);
}
