//! Double release, and leases that outlive their frontend.

use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Act, Connection, Crowd, Fault, FaultProxy, Fleet, Process, Script, Signal, Stub, chat, chat_body, eventually,
    eventually_within, holds_for, request, rounds, with_status,
};

async fn fleet_of_one(slots: &str) -> (Fleet, Stub, Process) {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let worker = fleet.worker("w1", &engine, &["--engine-request-limit", slots, "--request-queue-limit", "0"]).await;
    (fleet, engine, worker)
}

async fn stream(frontend: &Process) -> Connection {
    let mut client = Connection::open(frontend.address()).await.unwrap();
    let body = json!({"model": "m", "messages": [], "stream": true}).to_string();
    let headers = "Content-Type: application/json\r\n";
    client.send(request("POST", "/v1/chat/completions", headers, body.as_bytes())).await.unwrap();
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn f011_an_end_and_a_departure_at_the_same_moment_release_once() {
    let (fleet, engine, _worker) = fleet_of_one("1").await;
    let frontend = fleet.frontend(&[]).await;
    let (stop, mut stopped) = tokio::sync::watch::channel(());
    let (redis, key) = (fleet.redis.clone(), fleet.keys().named("inflight"));
    let poller = tokio::spawn(async move {
        let mut least = 0;
        while tokio::time::timeout(Duration::from_millis(2), stopped.changed()).await.is_err() {
            let count: Option<i64> = redis.command(&["HGET", &key, "w1"]).await;
            least = least.min(count.unwrap_or(0));
        }
        least
    });
    for round in 0..rounds(60, 300) {
        let end = Duration::from_millis(8);
        engine.next(Script::stream(vec![Act::Pause(end), Script::event("[DONE]"), Script::last_chunk()]));
        let mut client = stream(&frontend).await;
        assert_eq!(client.head().await.unwrap().status, 200, "round {round}");
        tokio::time::sleep(Duration::from_micros(rand::random_range(3_000..13_000))).await;
        drop(client);
        eventually("its place is given back", async || fleet.inflight("w1").await == 0 && engine.running() == 0).await;
    }
    stop.send(()).unwrap();
    assert_eq!(poller.await.unwrap(), 0, "a sample was below zero");
    fleet.quiet().await;
    engine.script(Script::hold());
    let mut crowd = Crowd::start(&[frontend.address()], 10, &chat_body("m")).await;
    crowd.answered(9).await;
    engine.open();
    assert_eq!(with_status(&crowd.finish().await, 200), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn f013_a_late_release_of_a_reaped_frontend_changes_nothing() {
    let (fleet, engine, _worker) = fleet_of_one("1").await;
    let (first, second) = (fleet.frontend(&[]).await, fleet.frontend(&[]).await);
    engine.next(Script::held_stream());
    let mut a = stream(&first).await;
    let head = a.head().await.unwrap();
    first.signal(Signal::STOP);
    eventually_within(Duration::from_secs(40), "the frozen frontend's lease is given back", async || {
        fleet.inflight("w1").await == 0
    })
    .await;
    // Redis has room, but the sidecar knows better: A still runs.
    let refused = chat(second.address(), "m").await;
    assert_eq!(refused.status, 529);
    assert_eq!(engine.count(), 1);
    first.signal(Signal::CONT);
    eventually("the frontend asserts what it still streams", async || fleet.inflight("w1").await == 1).await;
    let still = chat(second.address(), "m").await;
    assert_eq!(still.status, 529, "A holds the only slot");
    engine.release(1);
    assert!(a.body(head).await.complete);
    fleet.quiet().await;
    for frontend in [&first, &second] {
        // The refusal of the sidecar made all skip it, for a second at the most.
        eventually("served again", async || chat(frontend.address(), "m").await.status == 200).await;
    }
    fleet.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_frontend_gives_its_streams_back() {
    let (fleet, engine, _worker) = fleet_of_one("8").await;
    let (killed, other) = (fleet.frontend(&[]).await, fleet.frontend(&[]).await);
    engine.script(Script::held_stream());
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut client = stream(&killed).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        streams.push(client);
    }
    assert_eq!(chat(other.address(), "m").await.status, 529);
    killed.signal(Signal::KILL);
    eventually("the engine sees them leave", async || engine.running() == 0).await;
    eventually_within(Duration::from_secs(40), "reaped", async || fleet.inflight_total().await == 0).await;
    fleet.quiet().await;
    engine.script(Script::ok());
    assert_eq!(chat(other.address(), "m").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn f015_damage_to_a_counter_heals_without_overshoot_at_the_engine() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let _worker = fleet.worker("w1", &engine, &["--engine-request-limit", "5", "--request-queue-limit", "0"]).await;
    let proxy = FaultProxy::before(&fleet.redis).await;
    proxy.set(Fault::Delay(Duration::ZERO, Duration::from_millis(30)));
    let url = proxy.url(&fleet.redis);
    // A busy machine may miss the usual budget of a call.
    let patient = ["--redis-timeout-ms", "10000"];
    let frontends = [fleet.frontend_on(&url, &patient).await, fleet.frontend_on(&url, &patient).await];
    let addresses = frontends.each_ref().map(Process::address);
    for damage in ["HDEL", "HSET", "DEL"] {
        engine.script(Script::hold());
        let held = Crowd::start(&[addresses[0]], 5, &chat_body("m")).await;
        eventually("five run", async || engine.holding() == 5).await;
        let key = fleet.keys().named("inflight");
        let words: &[&str] = match damage {
            "HDEL" => &["HDEL", &key, "w1"],
            "HSET" => &["HSET", &key, "w1", "-5"],
            _ => &["DEL", &key],
        };
        fleet.redis.command::<i64>(words).await;
        let burst = Crowd::start(&addresses, 50, &chat_body("m")).await;
        for _ in 0..5 {
            engine.release(1);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        engine.open();
        held.finish().await;
        burst.finish().await;
        engine.shut();
        engine.script(Script::ok());
        eventually("healed: all counters are 0 and requests are served", async || {
            let total = fleet.inflight_total().await;
            let counts = fleet.hash("inflight").await;
            // Both decide again: in static mode each has only its part of the five.
            let mut decided = true;
            for address in addresses {
                let answer = chat(address, "m").await;
                decided &= answer.status == 200 && answer.header("x-tidegate-degraded").is_none();
            }
            total == 0 && counts.get("w1").is_some_and(|count| count == "0") && decided
        })
        .await;
        fleet.quiet().await;
    }
    for _ in 0..rounds(3, 20) {
        Crowd::start(&addresses, 30, &chat_body("m")).await.finish().await;
        fleet.quiet().await;
    }
    assert!(engine.peak() <= 5, "{} at the engine", engine.peak());
}

#[tokio::test(flavor = "multi_thread")]
async fn f017_a_long_request_keeps_its_place() {
    let (fleet, engine, _worker) = fleet_of_one("1").await;
    let frontend = fleet.frontend(&[]).await;
    engine.next(Script::held_stream());
    let mut client = stream(&frontend).await;
    let head = client.head().await.unwrap();
    // Several heartbeats and sweeps.
    holds_for(Duration::from_secs(7), "the place is taken", async || {
        fleet.inflight("w1").await == 1 && chat(frontend.address(), "m").await.status == 529
    })
    .await;
    engine.release(1);
    assert!(client.body(head).await.complete);
    fleet.quiet().await;
    assert_eq!(chat(frontend.address(), "m").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_leave_no_counter_behind() {
    let (fleet, engine, _worker) = fleet_of_one("4").await;
    let proxy = FaultProxy::before(&fleet.redis).await;
    let frontend = fleet.frontend_on(&proxy.url(&fleet.redis), &[]).await;
    eventually("it serves", async || chat(frontend.address(), "m").await.status == 200).await;
    proxy.set(Fault::LoseReplies(0.1));
    for _ in 0..rounds(100, 1_000) {
        let answer = chat(frontend.address(), "m").await;
        assert!([200, 503, 529].contains(&answer.status), "{} {}", answer.status, answer.text());
    }
    assert!(proxy.lost() > 0);
    proxy.set(Fault::None);
    eventually("it serves again", async || chat(frontend.address(), "m").await.status == 200).await;
    fleet.quiet().await;
    assert!(engine.peak() <= 4);
}
