//! SIGTERM and SIGINT: the first drains, the second ends the process at once.

use crate::harness::{Fleet, Script, Signal, Stub, chat, eventually, holds_for};

use super::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_process_ends_at_the_first_signal() {
    let fleet = Fleet::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut frontend = fleet.frontend(&[]).await;
        frontend.signal(signal);
        assert_eq!(frontend.exit_code().await, 0, "{}", frontend.log());
        let arguments = ["mock-engine", "--model", "m", "--listen", "127.0.0.1:0"];
        let mut engine = fleet.process("mock-engine", &arguments, &[]).listening().await;
        engine.signal(signal);
        assert_eq!(engine.exit_code().await, 0, "{}", engine.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_process_drains_and_a_second_signal_ends_it() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &[]).await;
    let mut frontend = fleet.frontend(&[]).await;
    engine.script(Script::held_stream());
    let address = frontend.address();
    let held = tokio::spawn(async move { chat(address, "m").await });
    eventually("the engine has the request", async || engine.holding() == 1).await;
    frontend.signal(Signal::TERM);
    let logged = |word: &str| frontend.log().contains(word);
    eventually("the drain has begun", async || logged("draining")).await;
    holds_for(std::time::Duration::from_millis(300), "it waits for the stream", async || frontend.runs()).await;
    frontend.signal(Signal::TERM);
    assert_eq!(frontend.exit_code().await, 1, "{}", frontend.log());
    held.abort();
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_until_it_is_interrupted() {
    let stage = Stage::new();
    stage.worker("w1", 1).await;
    let namespace = stage.fleet.redis.namespace().as_str();
    let mut arguments = vec!["status", "--watch", "--json", "--interval-ms", "100", "--log", "off"];
    arguments.extend(["--redis-url", stage.fleet.redis.url(), "--namespace", namespace]);
    let mut watch = stage.fleet.process("watch", &arguments, &[]);
    eventually("it has looked three times", async || watch.log().lines().count() >= 3).await;
    watch.signal(Signal::INT);
    assert_eq!(watch.exit_code().await, 0);
    for line in watch.log().lines() {
        let view: serde_json::Value = serde_json::from_str(line).expect("one look a line");
        assert_eq!(view["models"][0]["model"], "m");
    }
}
