//! Bad settings stop the start before a port opens, with a message that names them.

use crate::harness::Fleet;

async fn refused(flags: &[&str], environment: &[(&str, &str)], names: &[&str]) {
    let fleet = Fleet::new();
    let mut all = vec!["worker", "--model", "m", "--worker-id", "w1", "--engine-url", "http://127.0.0.1:9"];
    all.extend(["--redis-url", fleet.redis.url()]);
    if !flags.contains(&"--listen") {
        all.extend(["--listen", "127.0.0.1:0"]);
    }
    all.extend(flags);
    let mut worker = fleet.process("worker", &all, environment);
    assert_eq!(worker.exit_code().await, 2, "{flags:?} {environment:?}: {}", worker.log());
    for name in names {
        assert!(worker.log().contains(name), "{name:?} is not in: {}", worker.log());
    }
    assert!(!worker.log().contains("listening on"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_flags_are_named() {
    for (flag, value) in [
        ("--engine-request-limit", "0"),
        ("--request-queue-limit", "-1"),
        ("--data-parallel-size", "0"),
        ("--worker-ttl-ms", "4999"),
        ("--report-interval-ms", "0"),
        ("--engine-metrics", "tgi"),
        ("--kv-block-size", "1.5"),
    ] {
        let flags = format!("{flag}={value}");
        refused(&[&flags], &[], &[flag.trim_start_matches('-'), value]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f057_an_address_that_others_cannot_use_is_refused() {
    for url in
        ["[::1]:9001", "::1", "http://::1:9001", "http://fe80::1%lo:9001", "http://[fe80::1%lo]:9001", "http://h"]
    {
        refused(&["--advertise-url", url], &[], &["advertise-url", url]).await;
    }
    refused(&["--listen", "0.0.0.0:0"], &[], &["--advertise-url"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_references_queue_variable_is_2_or_more_and_read_only_with_a_limit() {
    const NAME: &str = "DYN_DYNAMO_REQUEST_QUEUE_LIMIT";
    for value in ["1", "0", "many", "-2"] {
        refused(&["--engine-request-limit", "1"], &[(NAME, value)], &[NAME, value]).await;
    }
    let fleet = Fleet::new();
    let engine = crate::harness::Stub::start().await;
    let namespace = fleet.redis.namespace().as_str();
    let url = engine.url();
    let mut all = vec!["worker", "--model", "m", "--worker-id", "w1", "--engine-url", &*url, "--namespace", namespace];
    all.extend(["--redis-url", fleet.redis.url(), "--listen", "127.0.0.1:0"]);
    let _ignored = fleet.process("ignored", &all, &[(NAME, "many")]).listening().await;
    fleet.registered("m", "w1").await;
    all.extend(["--engine-request-limit", "3"]);
    all[4] = "w2";
    let _heeded = fleet.process("heeded", &all, &[(NAME, "5")]).listening().await;
    fleet.registered("m", "w2").await;
    assert_eq!(fleet.hash("gate").await["w2"].split('|').nth(1), Some("8"));
}
