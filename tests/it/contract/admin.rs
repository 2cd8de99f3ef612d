//! `/busy_threshold` and thresholds by hand: one value, wherever it is set (design sections 3.2, 4 and 5; reference
//! 2.2 and T6).

use serde_json::{Value, json};

use crate::harness::{Connection, Fleet, Process, Stub, chat, eventually, get, post, publish, request, thresholds};

const PATH: &str = "/busy_threshold";

#[tokio::test(flavor = "multi_thread")]
async fn t6_the_admin_calls_of_the_reference() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = fleet.worker("w1", &engine, &[]).await;
    let flags = ["--active-decode-blocks-threshold", "0.9", "--active-prefill-tokens-threshold", "1000"];
    let frontend = fleet.frontend(&flags).await;
    let address = frontend.address();
    eventually("the flags are in force", async || {
        fleet.applied("active_prefill_tokens_threshold").await.as_deref() == Some("1000")
    })
    .await;

    let all = get(address, PATH).await;
    assert_eq!(all.status, 200);
    let listed = all.json()["thresholds"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["model"], "m");

    let read = thresholds(&frontend, &json!({"model": "m"})).await;
    assert_eq!(read["active_decode_blocks_threshold"], json!(0.9));
    assert_eq!(read["active_prefill_tokens_threshold"], json!(1000));
    assert_eq!(read["active_prefill_tokens_threshold_frac"], Value::Null);

    let set = thresholds(&frontend, &json!({"model": "m", "active_decode_blocks_threshold": 0.75})).await;
    assert_eq!(set["active_decode_blocks_threshold"], json!(0.75));
    assert_eq!(set["active_prefill_tokens_threshold"], json!(1000), "only supplied fields change");
    let set = thresholds(&frontend, &json!({"model": "m", "active_prefill_tokens_threshold": 2000})).await;
    assert_eq!(set["active_prefill_tokens_threshold"], json!(2000));
    let both = json!({"model": "m", "active_decode_blocks_threshold": 0.5, "active_prefill_tokens_threshold": 1200});
    thresholds(&frontend, &both).await;
    let listed = get(address, PATH).await.json()["thresholds"][0].clone();
    assert_eq!(listed["active_decode_blocks_threshold"], json!(0.5));
    assert_eq!(listed["active_prefill_tokens_threshold"], json!(1200));

    let refused = post(address, PATH, &json!({"model": "m", "active_decode_blocks_threshold": 1.5})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("active_decode_blocks_threshold must be between 0.0 and 1.0, got 1.5"));
    let set = thresholds(&frontend, &json!({"model": "m", "active_prefill_tokens_threshold": 5000})).await;
    assert_eq!(set["active_prefill_tokens_threshold"], json!(5000));
    let refused = post(address, PATH, &json!({"model": "m", "active_prefill_tokens_threshold": -1.0})).await;
    assert_eq!(refused.status, 422);
    thresholds(&frontend, &json!({"model": "m", "active_prefill_tokens_threshold_frac": 0.8})).await;
    let listed = get(address, PATH).await.json()["thresholds"][0].clone();
    assert_eq!(listed["active_prefill_tokens_threshold_frac"], json!(0.8));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_body_has_its_status() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = fleet.worker("w1", &engine, &[]).await;
    let frontend = fleet.frontend(&[]).await;
    let frac = "active_prefill_tokens_threshold_frac";
    for (body, status, word) in [
        (json!({"model": "m", frac: -0.1}), 400, frac),
        (json!({"model": "m", "active_decode_blocks_threshold": -0.1}), 400, "active_decode_blocks_threshold"),
        (json!({"model": "m", "active_prefill_tokens_threshold": -1}), 422, "active_prefill_tokens_threshold"),
        (json!({"model": "m", "active_prefill_tokens_threshold": 1.5}), 422, "active_prefill_tokens_threshold"),
        (json!({"active_decode_blocks_threshold": 0.5}), 422, "model"),
        (json!({"model": 7, "active_decode_blocks_threshold": 0.5}), 422, "model"),
        (json!({"model": "m", "max_inflight": -1}), 422, "max_inflight"),
        (json!({"model": "m", "unset": ["nothing"]}), 422, "nothing"),
        (json!({"model": "other", "active_decode_blocks_threshold": 0.5}), 404, "Model 'other' not found"),
        (json!({"model": "other", "active_decode_blocks_threshold": 1.5}), 400, "active_decode_blocks_threshold"),
    ] {
        let answer = post(frontend.address(), PATH, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
        assert!(!answer.json()["error"].is_null());
    }
    let read = thresholds(&frontend, &json!({"model": "other"})).await;
    assert!(read["active_decode_blocks_threshold"].is_null(), "reading an unknown model is no error");

    for (headers, body, status) in [
        ("Content-Type: application/json\r\n", "{\"model\":", 400),
        ("Content-Type: text/plain\r\n", "{\"model\":\"m\"}", 415),
        ("", "{\"model\":\"m\"}", 415),
    ] {
        let mut client = Connection::open(frontend.address()).await.unwrap();
        client.send(request("POST", PATH, headers, body.as_bytes())).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, status, "{headers:?} {body}");
    }
    assert!(fleet.hash("config").await.is_empty(), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn hset_acts_on_every_frontend_and_hdel_undoes_it() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    for frontend in &frontends {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
    }
    let figures = json!({"active_decode_blocks": 60, "kv_total_blocks": 100});
    publish(&worker, &figures).await;
    fleet.set_config("active_decode_blocks_threshold", "0.5").await;
    for frontend in &frontends {
        eventually("60 of 100 is over 0.5", async || {
            publish(&worker, &figures).await;
            chat(frontend.address(), "m").await.status == 529
        })
        .await;
        let read = thresholds(frontend, &json!({"model": "m"})).await;
        assert_eq!(read["active_decode_blocks_threshold"], json!(0.5));
    }
    let field = "active_decode_blocks_threshold";
    fleet.redis.command::<i64>(&["HDEL", &fleet.keys().named("config"), field]).await;
    for frontend in &frontends {
        eventually("unset again", async || chat(frontend.address(), "m").await.status == 200).await;
        assert!(thresholds(frontend, &json!({"model": "m"})).await[field].is_null());
    }
}

/// Also F033.
#[tokio::test(flavor = "multi_thread")]
async fn f033_a_value_set_on_one_frontend_holds_on_all_and_survives_their_restart() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    thresholds(&frontends[0], &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
    let shown = async |frontend: &Process| {
        thresholds(frontend, &json!({"model": "m"})).await["active_decode_blocks_threshold"] == json!(0.5)
    };
    eventually("the other one shows it", async || shown(&frontends[1]).await).await;
    publish(&worker, &json!({"active_decode_blocks": 60, "kv_total_blocks": 100})).await;
    for frontend in &frontends {
        assert_eq!(chat(frontend.address(), "m").await.status, 529);
    }
    drop(frontends);
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&["--active-decode-blocks-threshold", "0.9"]).await];
    publish(&worker, &json!({"active_decode_blocks": 60, "kv_total_blocks": 100})).await;
    for frontend in &frontends {
        assert_eq!(chat(frontend.address(), "m").await.status, 529);
        assert!(shown(frontend).await, "a flag seeds only what nobody has set");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_recomputes_only_when_told_to() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    // So seldom that no report comes between.
    let worker = fleet.worker("w1", &engine, &["--report-interval-ms", "2000"]).await;
    let frontend = fleet.frontend(&[]).await;
    publish(&worker, &json!({"active_decode_blocks": 60, "kv_total_blocks": 100})).await;
    let set = json!({"model": "m", "active_decode_blocks_threshold": 0.5, "recompute": true});
    thresholds(&frontend, &set).await;
    assert!(fleet.is_busy("w1").await, "in force before the answer");
    assert_eq!(chat(frontend.address(), "m").await.status, 529);
    let unset = json!({"model": "m", "unset": ["active_decode_blocks_threshold"], "recompute": true});
    thresholds(&frontend, &unset).await;
    assert!(!fleet.is_busy("w1").await);
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_inflight_caps_the_whole_model() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(crate::harness::Script::hold());
    let _worker = fleet.worker("w1", &engine, &[]).await;
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    thresholds(&frontends[0], &json!({"model": "m", "max_inflight": 3})).await;
    let addresses = frontends.each_ref().map(|frontend| frontend.address());
    let mut crowd = crate::harness::Crowd::start(&addresses, 20, &crate::harness::chat_body("m")).await;
    crowd.answered(17).await;
    assert!(crowd.answers().iter().all(|answer| answer.status == 529 && answer.reason() == "max_inflight"));
    engine.open();
    assert_eq!(crate::harness::with_status(&crowd.finish().await, 200), 3);
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_api_can_be_removed() {
    let fleet = Fleet::new();
    let disabled = [("DYN_DISABLE_FRONTEND_ADMIN_API", "true")];
    let frontend = fleet.start_frontend(fleet.redis.url(), &[], &disabled).listening().await;
    assert_eq!(get(frontend.address(), PATH).await.status, 404);
    assert_eq!(post(frontend.address(), PATH, &json!({"model": "m"})).await.status, 404);
}
