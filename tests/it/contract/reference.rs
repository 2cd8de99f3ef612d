//! The reference's own end-to-end and configuration tests, restated: reference 8.1 and 8.5, T1, T2 and T5, with 529.
//! (T6 is in `admin`, T7 in `gate`.)

use serde_json::{Value, json};

use crate::harness::{Answer, Connection, Fleet, Process, chat, eventually, get, metric, post, request, thresholds};

/// A worker with a mock engine of 64 blocks of 4 tokens, and a frontend in mode `kv`.
async fn fleet_of_one(engine: &[&str], frontend: &[&str]) -> (Fleet, [Process; 3]) {
    let fleet = Fleet::new();
    let mut arguments = vec!["mock-engine", "--listen", "127.0.0.1:0", "--model", "m"];
    arguments.extend(["--kv-block-size", "4", "--kv-total-blocks", "64"]);
    arguments.extend(engine);
    let engine = fleet.process("engine", &arguments, &[]).listening().await;
    let url = format!("http://{}", engine.address());
    let flags = ["--engine-metrics", "vllm", "--kv-block-size", "4", "--report-interval-ms", "50"];
    let worker = fleet.start_worker(fleet.redis.url(), "m", "w1", &url, &flags).listening().await;
    fleet.registered("m", "w1").await;
    let arguments = [&["--router-mode", "kv"], frontend].concat();
    let frontend = fleet.frontend(&arguments).await;
    (fleet, [engine, worker, frontend])
}

/// Opens distinct streaming chats and keeps them open, until one is refused or there are 50.
async fn held_chats(frontend: &Process, max_tokens: u64) -> (Vec<Connection>, Vec<Answer>) {
    let (mut held, mut answers) = (Vec::new(), Vec::new());
    for number in 0..50 {
        let content = format!("{number}: {}", "tide ".repeat(8));
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}], "stream": true,
            "max_tokens": max_tokens});
        let mut client = Connection::open(frontend.address()).await.unwrap();
        let headers = "Content-Type: application/json\r\n";
        client.send(request("POST", "/v1/chat/completions", headers, body.to_string().as_bytes())).await.unwrap();
        // Real engines send the head at once; a refusal has a body.
        let head = client.head().await.unwrap();
        let refused = head.status != 200;
        answers.push(if refused { client.body(head).await } else { head });
        held.push(client);
        if refused {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    (held, answers)
}

async fn some_are_served_and_then_one_is_refused(frontend: &Process, max_tokens: u64) {
    let (_held, answers) = held_chats(frontend, max_tokens).await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.status == 529).count();
    assert!(served >= 1 && refused >= 1 && served + refused == answers.len(), "{served} served, {refused} refused");
    let last = answers.last().unwrap();
    assert_eq!(last.reason(), "all_workers_busy");
    assert_eq!(last.json()["message"], "Service temporarily overloaded");
    assert_eq!(last.json()["type"], "Overloaded");
    assert_eq!(last.json()["code"], 529);
    let labels = ["model=\"m\"", "endpoint=\"chat_completions\""];
    let counted = metric(frontend, "dynamo_frontend_model_rejection_total", &labels).await;
    assert_eq!(counted, Some(refused as f64));
}

#[tokio::test(flavor = "multi_thread")]
async fn t1_decode_blocks() {
    let slow = ["--decode-tokens-per-s", "1"];
    let (fleet, [_engine, _worker, frontend]) = fleet_of_one(&slow, &["--active-decode-blocks-threshold", "0.2"]).await;
    some_are_served_and_then_one_is_refused(&frontend, 50).await;
    // The clients have left: the engine and the gate are free again.
    fleet.quiet().await;
    eventually("free again", async || !fleet.is_busy("w1").await).await;
    let short = json!({"model": "m", "messages": [], "max_tokens": 1});
    assert_eq!(post(frontend.address(), "/v1/chat/completions", &short).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn t2_prefill_tokens() {
    let slow = ["--prefill-tokens-per-s", "2"];
    let flags = ["--active-prefill-tokens-threshold", "1", "--active-prefill-tokens-threshold-frac", "None"];
    let (_fleet, [_engine, _worker, frontend]) = fleet_of_one(&slow, &flags).await;
    some_are_served_and_then_one_is_refused(&frontend, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t5_everything_none() {
    let flags = [
        "--active-decode-blocks-threshold",
        "None",
        "--active-prefill-tokens-threshold",
        "None",
        "--active-prefill-tokens-threshold-frac",
        "None",
    ];
    let (_fleet, [_engine, _worker, frontend]) = fleet_of_one(&["--decode-tokens-per-s", "1"], &flags).await;
    let read = thresholds(&frontend, &json!({"model": "m"})).await;
    for field in &flags[..5] {
        let field = field.trim_start_matches('-').replace('-', "_");
        if field.contains("threshold") {
            assert_eq!(read.get(&field), Some(&Value::Null), "{field}");
        }
    }
    for _ in 0..4 {
        let mut client = Connection::open(frontend.address()).await.unwrap();
        let body = json!({"model": "m", "messages": [], "stream": true, "max_tokens": 50}).to_string();
        let headers = "Content-Type: application/json\r\n";
        client.send(request("POST", "/v1/chat/completions", headers, body.as_bytes())).await.unwrap();
        assert_eq!(client.head().await.unwrap().status, 200);
    }
    let labels = ["model=\"m\"", "endpoint=\"chat_completions\""];
    let counted = metric(&frontend, "dynamo_frontend_model_rejection_total", &labels).await;
    assert!(matches!(counted, None | Some(0.0)), "{counted:?}");
}

/// C2, C3, C4, C6: what is set by flag or variable, and nothing else, is in force.
#[tokio::test(flavor = "multi_thread")]
async fn c2_each_threshold_is_set_on_its_own() {
    let names =
        ["active_decode_blocks_threshold", "active_prefill_tokens_threshold", "active_prefill_tokens_threshold_frac"];
    let flag = |name: &str| format!("--{}", name.replace('_', "-"));
    let variable = |name: &str| format!("DYN_{}", name.to_uppercase());
    for (index, (by_flag, by_variable)) in [("0.5", "0.6"), ("1000", "2000"), ("2.0", "64.0")].into_iter().enumerate() {
        let name = names[index];
        for (flags, variables, value) in [
            (vec![flag(name), by_flag.to_owned()], vec![], by_flag),
            (vec![], vec![(variable(name), by_variable.to_owned())], by_variable),
            (vec![flag(name), by_flag.to_owned()], vec![(variable(name), by_variable.to_owned())], by_flag),
        ] {
            let fleet = Fleet::new();
            let engine = crate::harness::Stub::start().await;
            let _worker = fleet.worker("w1", &engine, &[]).await;
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let frontend = fleet.start_frontend(fleet.redis.url(), &flags, &variables).listening().await;
            eventually("it is in force", async || fleet.applied(name).await.is_some()).await;
            let wanted: f64 = value.parse().unwrap();
            let read = thresholds(&frontend, &json!({"model": "m"})).await;
            for other in names {
                let expected = (other == name).then_some(wanted);
                assert_eq!(read[other].as_f64(), expected, "{flags:?} {variables:?}: {read}");
            }
        }
    }
}

/// C8: the configured code, and what is no code.
#[tokio::test(flavor = "multi_thread")]
async fn c8_the_overload_status_can_be_chosen() {
    let fleet = Fleet::new();
    let engine = crate::harness::Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    fleet.set_config("active_decode_blocks_threshold", "0.5").await;
    for (text, status) in
        [("503", 503), ("429", 429), ("999", 999), ("199", 529), ("1000", 529), ("not-a-code", 529), ("", 529)]
    {
        let variable = [("DYN_HTTP_OVERLOAD_STATUS_CODE", text)];
        let frontend = fleet.start_frontend(fleet.redis.url(), &[], &variable).listening().await;
        eventually("ready", async || get(frontend.address(), "/ready").await.status == 200).await;
        crate::harness::publish(&worker, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
        eventually("busy", async || fleet.is_busy("w1").await).await;
        let answer = chat(frontend.address(), "m").await;
        assert_eq!(answer.status, status, "{text:?}");
        assert_eq!(answer.json()["type"], "Overloaded");
        assert_eq!(answer.json()["code"], status);
    }
}

/// C7: the old switch is accepted, warned about, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn c7_admission_control_is_ignored_with_a_warning() {
    let fleet = Fleet::new();
    let frontend = fleet.frontend(&["--admission-control", "none"]).await;
    assert!(frontend.log().contains("admission-control"), "{}", frontend.log());
}
