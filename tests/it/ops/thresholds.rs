//! `tidegate thresholds`.

use serde_json::Value;

use super::Stage;

async fn busy(stage: &Stage) -> usize {
    stage.fleet.redis.command(&["SCARD", &stage.key("busy")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_recomputes_every_worker_before_the_command_ends() {
    let stage = Stage::new();
    // More than one sweep takes.
    for n in 0..300 {
        stage.worker(&format!("w{n}"), 60 + n % 2 * 30).await;
    }
    let set = stage.json(&["thresholds", "set", "--json=true", "active_decode_blocks_threshold=0.85"]).await;
    assert_eq!(set["recomputed_workers"], 300);
    assert_eq!(set["in_force"]["active_decode_blocks_threshold"], 0.85);
    assert_eq!(busy(&stage).await, 150);
    stage.json(&["thresholds", "set", "--json=true", "active_decode_blocks_threshold=0.5", "max_inflight", "7"]).await;
    assert_eq!(busy(&stage).await, 300);

    let undone = stage.json(&["thresholds", "undo", "--json=true"]).await;
    assert_eq!(undone["in_force"]["active_decode_blocks_threshold"], 0.85);
    assert_eq!(undone["in_force"]["max_inflight"], Value::Null, "what was set together goes back together");
    assert_eq!(busy(&stage).await, 150);
    let unset = stage.json(&["thresholds", "unset", "--json=true", "active_decode_blocks_threshold"]).await;
    assert_eq!(unset["in_force"]["active_decode_blocks_threshold"], Value::Null);
    assert_eq!(busy(&stage).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_tells_who_changed_what() {
    let stage = Stage::new();
    stage.worker("w1", 1).await;
    stage.json(&["thresholds", "set", "--json=true", "active_prefill_tokens_threshold=1000"]).await;
    stage.json(&["thresholds", "set", "--json=true", "active_prefill_tokens_threshold=2000"]).await;
    let history = stage.json(&["thresholds", "history", "--json=true"]).await;
    let newest = &history["history"][0];
    assert_eq!((&newest["old"], &newest["new"], &newest["source"]), (&"1000".into(), &"2000".into(), &"cli".into()));
    let version = newest["version"].to_string();
    let first = history["history"][1]["version"].to_string();
    let (code, text) = stage.run(&["thresholds", "undo", "--version", &first]).await;
    assert_eq!(code, 1);
    assert!(text.contains("changed again"), "{text}");
    let undone = stage.json(&["thresholds", "undo", "--json=true", "--version", &version]).await;
    assert_eq!(undone["in_force"]["active_prefill_tokens_threshold"], 1000);
    let (code, text) = stage.run(&["thresholds", "history", "--limit", "1"]).await;
    assert_eq!(code, 0);
    assert!(text.contains("active_prefill_tokens_threshold") && text.contains("cli"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_value_changes_nothing() {
    let stage = Stage::new();
    stage.worker("w1", 1).await;
    for (words, part) in [
        (vec!["max_inflight=5", "active_decode_blocks_threshold=nan"], "nan"),
        (vec!["decode=0.5"], "decode"),
        (vec!["max_inflight"], "max_inflight"),
    ] {
        let mut arguments = vec!["thresholds", "set"];
        arguments.extend(words);
        let (code, text) = stage.run(&arguments).await;
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(stage.fleet.hash("config").await.len(), 0);
    let (code, text) = stage.run(&["thresholds", "get"]).await;
    assert_eq!(code, 0, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_may_be_left_out_only_if_there_is_one() {
    let stage = Stage::new();
    let (code, text) = stage.run(&["thresholds", "get"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("no model"), "{text}");
    let (code, text) = stage.run(&["thresholds", "set", "--model", "ghost", "max_inflight=1"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("ghost"), "{text}");
    stage.worker("w1", 1).await;
    let models = format!("{}:models", stage.fleet.redis.namespace());
    stage.command(&["ZADD", &models, "1", "m", "2", "other"]).await;
    let (code, text) = stage.run(&["thresholds", "get"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("m, other"), "{text}");
    let shown = stage.json(&["thresholds", "get", "--model", "m", "--json=true"]).await;
    assert_eq!(shown["model"], "m");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_no_hash_is_told_and_touched_by_nobody() {
    let stage = Stage::new();
    stage.worker("w1", 1).await;
    stage.json(&["thresholds", "set", "--json=true", "max_inflight=9"]).await;
    stage.command(&["SET", &stage.key("config"), "x"]).await;
    let (code, text) = stage.run(&["thresholds", "set", "max_inflight=5"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("config") && text.contains("not a hash"), "{text}");
    let shown = stage.json(&["thresholds", "get", "--json=true"]).await;
    assert_eq!(shown["in_force"]["max_inflight"], 9);
    assert_eq!(stage.json(&["status", "--json"]).await["models"][0]["in_force"]["max_inflight"], 9);
}
