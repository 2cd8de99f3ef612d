//! `tidegate demo`, as a newcomer runs it.

use std::net::SocketAddr;

use crate::harness::{Connection, Fleet, Process, Signal, eventually, get, post};

/// Starts a demo and waits until it says where everything is.
async fn demo(fleet: &Fleet, arguments: &[&str], environment: &[(&str, &str)]) -> (Process, Vec<SocketAddr>) {
    let process = fleet.process("demo", &[&["demo"], arguments].concat(), environment);
    let frontends = || -> Vec<SocketAddr> {
        let log = process.log();
        let lines = log.lines().filter(|line| line.trim_start().starts_with("frontend "));
        lines.filter_map(|line| line.rsplit("http://").next()?.parse().ok()).collect()
    };
    eventually("it says where its frontends are", async || frontends().len() == 2).await;
    let addresses = frontends();
    for address in &addresses {
        eventually("a frontend is ready", async || get(*address, "/ready").await.status == 200).await;
    }
    (process, addresses)
}

async fn serves(frontends: &[SocketAddr]) {
    let body = serde_json::json!({"model": "llama", "messages": [], "max_tokens": 1});
    for address in frontends {
        eventually("it serves", async || post(*address, "/v1/chat/completions", &body).await.status == 200).await;
    }
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn it_brings_its_own_redis_and_takes_it_away_even_when_killed() {
        let fleet = Fleet::new();
        let (process, frontends) = demo(&fleet, &[], &[]).await;
        serves(&frontends).await;
        let log = process.log();
        let line = log.lines().find(|line| line.contains("a private ")).unwrap();
        let redis: SocketAddr = line.rsplit("redis://").next().unwrap().trim_end_matches("/0").parse().unwrap();
        assert!(Connection::open(redis).await.is_ok());
        process.signal(Signal::KILL);
        eventually("its Redis is gone too", async || Connection::open(redis).await.is_err()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn without_redis_it_says_so_and_runs_all_the_same() {
        let fleet = Fleet::new();
        let (mut process, frontends) = demo(&fleet, &["--seconds", "6"], &[("PATH", "/nonexistent")]).await;
        assert!(process.log().contains("THIS IS NOT REDIS"), "{}", process.log());
        serves(&frontends).await;
        assert_eq!(process.exit_code().await, 0);
        assert!(process.log().contains("in flight / cap"), "{}", process.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_uses_the_redis_it_is_given_and_ends_at_a_signal() {
    let fleet = Fleet::new();
    let (mut process, frontends) = demo(&fleet, &["--redis-url", fleet.redis.url()], &[]).await;
    serves(&frontends).await;
    process.signal(Signal::INT);
    assert_eq!(process.exit_code().await, 0);
    assert!(process.log().contains("namespace demo-"), "a namespace of its own: {}", process.log());
}
