//! `tidegate doctor`: what is sound passes, every damage is found, and a repair ends it.

use std::time::Duration;

use tidegate::ops::doctor;

use super::Stage;
use crate::harness::{Fleet, Stub, chat, eventually};

/// Two workers, three requests in flight.
async fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.worker("w1", 1).await;
    stage.worker("w2", 2).await;
    stage.admit(3).await;
    stage
}

/// Runs the doctor with short pauses; whether all is sound, and what it printed.
async fn doctor(stage: &Stage, repair: bool) -> (bool, String) {
    let settings = doctor::Settings {
        model: Some(stage.model.clone()),
        json: false,
        repair,
        pause: Duration::from_millis(20),
        healing: Duration::from_millis(20),
    };
    let mut out = Vec::new();
    let sound = doctor::run(settings, &stage.store, &mut out).await.expect("Redis is there");
    (sound, String::from_utf8(out).expect("text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_state_passes() {
    let stage = stage().await;
    let (sound, text) = doctor(&stage, false).await;
    assert!(sound, "{text}");
    assert!(text.contains("model m: sound (workers 2, frontends 1, leases 3"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_damage_is_found_and_repaired() {
    let cases: [(&str, &[&str]); 11] = [
        ("in flight) of w1", &["HSET", "inflight", "w1", "-5"]),
        ("registries of workers) of w2", &["HDEL", "inflight", "w2"]),
        ("totals) of inflight_total", &["HINCRBY", "stats", "inflight_total", "1"]),
        ("leases of a frontend) of f-00000001", &["DEL", "leases:f-00000001"]),
        ("registries of frontends) of f-00000001", &["DEL", "frontends"]),
        ("eligible) of w1", &["ZREM", "eligible", "w1"]),
        ("no gate) of ghost", &["ZADD", "eligible", "1", "ghost"]),
        ("busy set) of w1", &["SADD", "busy", "w1"]),
        ("draining) of w1", &["HSET", "worker:w1", "draining", "1"]),
        ("key without an owner) of leases:gone", &["HSET", "leases:gone", "l", "w1|1-a|0"]),
        ("type of a key)", &["SET", "gate", "x"]),
    ];
    for (wanted, damage) in cases {
        let stage = stage().await;
        let key = stage.key(damage[1]);
        let mut words = vec![damage[0], key.as_str()];
        words.extend(&damage[2..]);
        stage.command(&words).await;
        let (sound, text) = doctor(&stage, false).await;
        assert!(!sound && text.contains("BROKEN") && text.contains(wanted), "{wanted} is not in\n{text}");
        let (sound, text) = doctor(&stage, true).await;
        assert!(sound && text.contains("sound, after a new epoch"), "{damage:?} was not repaired:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_keeps_the_configuration_and_tells_in_the_journal() {
    let stage = stage().await;
    stage.json(&["thresholds", "set", "--json=true", "max_inflight=9"]).await;
    let before = stage.fleet.hash("stats").await;
    stage.command(&["HSET", &stage.key("inflight"), "w1", "77"]).await;
    assert!(doctor(&stage, true).await.0);
    let after = stage.fleet.hash("stats").await;
    assert_ne!(before["epoch"], after["epoch"]);
    let revision = |stats: &std::collections::HashMap<String, String>| stats["revision"].parse::<u64>().unwrap();
    assert!(revision(&after) > revision(&before));
    assert_eq!(stage.fleet.hash("config:applied").await["max_inflight"], "9");
    let journal: Vec<(String, Vec<String>)> =
        stage.fleet.redis.command(&["XREVRANGE", &stage.key("transitions"), "+", "-", "COUNT", "1"]).await;
    assert!(journal[0].1.contains(&"repair".to_owned()), "{journal:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_says_whether_all_is_sound() {
    let stage = stage().await;
    assert_eq!(stage.json(&["doctor", "--json"]).await["sound"], true);
    stage.command(&["ZADD", &stage.key("eligible"), "1", "ghost"]).await;
    let (code, text) = stage.run(&["doctor", "--json"]).await;
    assert_eq!(code, 1, "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["models"][0]["violations"][0]["subject"], "ghost");
    let (code, text) = stage.run(&["doctor", "--model", "ghost"]).await;
    assert_eq!(code, 1);
    assert!(text.contains("not known"), "{text}");
}

/// A fleet at work is always between two states; none of that is damage.
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_at_work_is_sound() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let mut processes = vec![
        fleet.worker("w1", &engine, &["--engine-request-limit", "1", "--request-queue-limit", "1"]).await,
        fleet.worker("w2", &engine, &["--engine-request-limit", "2", "--request-queue-limit", "0"]).await,
    ];
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    let (mut clients, model) = (tokio::task::JoinSet::new(), "m");
    for n in 0..6 {
        let address = frontends[n % 2].address();
        clients.spawn(async move {
            loop {
                chat(address, model).await;
            }
        });
    }
    processes.extend(frontends);
    let stage = Stage::on(fleet);
    let admitted = async || stage.fleet.hash("stats").await.get("admitted").and_then(|n| n.parse::<u64>().ok());
    eventually("there is traffic", async || admitted().await > Some(100)).await;
    for _ in 0..10 {
        let before = admitted().await;
        let (sound, text) = doctor(&stage, false).await;
        assert!(sound, "{text}");
        eventually("the traffic goes on", async || admitted().await > before).await;
    }
    clients.abort_all();
}
