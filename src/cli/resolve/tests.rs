//! Layers, origins and refusals, with a map in place of the process environment.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use super::*;
use crate::config::{DEFAULT, Layers};

/// A plan, or the message that stops the start.
fn planned(arguments: &str, environment: &[(&str, &str)]) -> Result<Plan, String> {
    let words = std::iter::once("tidegate").chain(arguments.split(' ').filter(|word| !word.is_empty()));
    let words = words.map(|word| word.trim_matches('\''));
    let matches = help::command().try_get_matches_from(words).map_err(|why| why.to_string())?;
    let cli = Cli::from_arg_matches(&matches).map_err(|why| why.to_string())?;
    let environment = environment.iter().map(|(name, text)| (OsString::from(name), OsString::from(text))).collect();
    plan(&cli, environment).map_err(|why| why.to_string())
}

fn refusal(arguments: &str, environment: &[(&str, &str)]) -> String {
    match planned(arguments, environment) {
        Ok(plan) => panic!("{arguments} {environment:?} was accepted: {plan:?}"),
        Err(message) => message,
    }
}

fn sidecar(arguments: &str, environment: &[(&str, &str)]) -> Box<sidecar::Settings> {
    match planned(&format!("worker --model m --worker-id w {arguments}"), environment) {
        Ok(Plan { job: Job::Worker(settings, _), .. }) => settings,
        other => panic!("{other:?}"),
    }
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path.display().to_string())
}

#[test]
fn the_command_line_is_well_formed() {
    help::command().debug_assert();
    Cli::command().debug_assert();
}

/// The built-in file is the reference: it has every flag, and nothing else.
#[test]
fn the_built_in_file_has_every_flag() {
    let schema = help::schema("frontend");
    let mut flags: BTreeSet<String> = schema.keys.values().flatten().cloned().collect();
    for section in schema.keys.keys() {
        let settings = Layers::default().resolve(&help::schema(section));
        assert!(settings.is_ok(), "{section}: {settings:?}");
        let settings = settings.unwrap();
        for key in schema.keys.get(section).unwrap() {
            assert!(settings.defined(key), "default.toml has no {key} for {section}");
            flags.remove(key);
        }
    }
    assert!(flags.is_empty());
    assert!(DEFAULT.lines().any(|line| line.starts_with('#')));
}

#[test]
fn later_layers_win() {
    let (_dir, path) = file("queue_timeout_ms = 1\nreport_interval_ms = 100\n[worker]\nreport_interval_ms = 200\n");
    assert_eq!(sidecar("", &[]).queue_timeout, None);
    let config = format!("--config {path}");
    let with_file = sidecar(&config, &[]);
    assert_eq!(with_file.queue_timeout.map(|time| time.as_millis()), Some(1));
    assert_eq!(with_file.report_interval.as_millis(), 200, "the section wins over the top of the file");
    let with_environment = sidecar(&config, &[("TIDEGATE_QUEUE_TIMEOUT_MS", "2")]);
    assert_eq!(with_environment.queue_timeout.map(|time| time.as_millis()), Some(2));
    let with_flag = sidecar(&format!("{config} --queue-timeout-ms 3"), &[("TIDEGATE_QUEUE_TIMEOUT_MS", "2")]);
    assert_eq!(with_flag.queue_timeout.map(|time| time.as_millis()), Some(3));
    let by_variable = sidecar("", &[("TIDEGATE_CONFIG", &path)]);
    assert_eq!(by_variable.report_interval.as_millis(), 200);
}

#[test]
fn the_names_of_the_reference_system_are_read_and_ours_win() {
    assert_eq!(sidecar("", &[("DYN_ENGINE_REQUEST_LIMIT", "3")]).engine_request_limit, Some(3));
    let both = [("DYN_ENGINE_REQUEST_LIMIT", "3"), ("TIDEGATE_ENGINE_REQUEST_LIMIT", "4")];
    assert_eq!(sidecar("", &both).engine_request_limit, Some(4));
    assert_eq!(sidecar("--engine-request-limit 5", &both).engine_request_limit, Some(5));
    assert_eq!(sidecar("--engine-request-limit None", &both).engine_request_limit, None);
}

#[test]
fn the_reference_queue_limit_counts_only_with_a_request_limit() {
    let variable = [("DYN_DYNAMO_REQUEST_QUEUE_LIMIT", "5")];
    assert_eq!(sidecar("", &variable).request_queue_limit, 16);
    assert_eq!(sidecar("--engine-request-limit 1", &variable).request_queue_limit, 5);
    assert_eq!(sidecar("--engine-request-limit 1 --request-queue-limit 0", &variable).request_queue_limit, 0);
    for text in ["1", "0", "", " 2", "x", "-2"] {
        let bad = [("DYN_DYNAMO_REQUEST_QUEUE_LIMIT", text)];
        assert_eq!(sidecar("", &bad).request_queue_limit, 16, "not read without N");
        let message = refusal("worker --model m --worker-id w --engine-request-limit 1", &bad);
        assert!(
            message.contains("DYN_DYNAMO_REQUEST_QUEUE_LIMIT") && message.contains(&format!("{text:?}")),
            "{message}"
        );
    }
}

/// F136: every numeric setting refuses what is no plain number, by flag, by variable and by file.
#[test]
fn f136_bad_numbers_are_refused_with_name_value_and_origin() {
    let numbers = [
        "redis-timeout-ms",
        "redis-pool-size",
        "engine-request-limit",
        "request-queue-limit",
        "queue-timeout-ms",
        "data-parallel-size",
        "data-parallel-start-rank",
        "kv-total-blocks",
        "max-num-batched-tokens",
        "kv-block-size",
        "report-interval-ms",
        "worker-ttl-ms",
        "drain-seconds",
    ];
    for flag in numbers {
        for text in ["", " 8000 ", "8000.0", "-1", "1_000", "99999999999999999999", "0x1", "nan", "85%"] {
            let base = "worker --model m --worker-id w";
            let key = flag.replace('-', "_");
            let variable = format!("TIDEGATE_{}", key.to_uppercase());
            let message = refusal(base, &[(&variable, text)]);
            assert!(message.contains(&variable) && message.contains(&format!("{text:?}")), "{message}");
            if !text.contains(' ') {
                let message = refusal(&format!("{base} --{flag} '{text}'"), &[]);
                assert!(
                    message.contains(&format!("flag --{flag}")) && message.contains(&format!("{text:?}")),
                    "{message}"
                );
            }
            let (_dir, path) = file(&format!("[worker]\n{key} = {text:?}\n"));
            let message = refusal(&format!("{base} --config {path}"), &[]);
            assert!(message.contains(&format!("worker.{key} in {path}")), "{message}");
        }
    }
}

#[test]
fn out_of_range_and_misspelt_values_are_named() {
    for (flag, text) in [
        ("worker-ttl-ms", "4999"),
        ("report-interval-ms", "0"),
        ("data-parallel-size", "0"),
        ("kv-block-size", "0"),
        ("engine-request-limit", "0"),
        ("redis-timeout-ms", "0"),
        ("redis-pool-size", "0"),
        ("listen", "127.0.0.1"),
        ("listen", "127.0.0.1:65536"),
        ("engine-url", "ftp://x"),
        ("engine-url", "http://h:1/?q"),
        ("advertise-url", "http://0.0.0.0:1"),
        ("engine-metrics", "dcgm"),
        ("engine-health-path", "health"),
        ("redis-url", "http://x"),
        ("namespace", "a:b"),
        ("log", "loud"),
        ("log-format", "xml"),
        ("redis-password-file", "/absent/file"),
        ("admin-token-file", "/absent/file"),
    ] {
        let message = refusal(&format!("worker --model m --worker-id w --{flag} {text}"), &[]);
        assert!(message.contains(&format!("--{flag}")) && message.contains(text), "{message}");
    }
    assert!(refusal("worker --model m", &[]).contains("--worker-id is required"));
    assert!(refusal("worker --model m --worker-id w --listen 0.0.0.0:9001", &[]).contains("advertise-url"));
}

#[test]
fn unknown_names_are_refused_or_warned_about() {
    assert!(refusal("worker --bogus 1", &[]).contains("--bogus"));
    for (text, part) in [
        ("bogus = 7\n", "bogus = 7"),
        ("[worker]\nhttp_listen = \"x\"\n", "worker.http_listen = x"),
        ("[bogus]\nx = 1\n", "bogus"),
        ("worker = 1\n", "worker = 1"),
        ("[worker]\nlisten = [1]\n", "must be a single value"),
        ("[worker]\nlisten = \n", "--config"),
        ("[worker]\nmodel = \"a\"\nmodel = \"b\"\n", "--config"),
    ] {
        let (_dir, path) = file(text);
        let message = refusal(&format!("worker --model m --worker-id w --config {path}"), &[]);
        assert!(message.contains(part) && message.contains(&path) || part.starts_with("must"), "{message}");
    }
    assert!(refusal("status --config /absent.toml", &[]).contains("/absent.toml"));
    let environment = [
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8000"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("TIDEGATE_REDIS_URI", "x"),
        ("TIDEGATE_HTTP_LISTEN", "no address"),
        ("REDIS_PORT", "tcp://10.0.0.1:6379"),
        ("RUST_LOG", "loud"),
    ];
    let plan = planned("status", &environment).unwrap();
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    assert!(plan.warnings.iter().any(|line| line.contains("TIDEGATE_REDIS_URI")));
    assert!(plan.warnings.iter().any(|line| line.contains("RUST_LOG")));
}

#[test]
fn a_password_is_read_from_its_file_and_never_shown() {
    let (_dir, path) = file("hunter2\n");
    let line = format!("status --redis-url redis://me:other@h:1/0 --redis-password-file {path}");
    let plan = planned(&line, &[]).unwrap();
    let shown = format!("{plan:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("other"), "{shown}");
    let Job::Status(_, redis) = plan.job else { panic!("{shown}") };
    assert_eq!(redis.url.password.map(|word| word.reveal().to_owned()), Some("hunter2".to_owned()));
    let message = refusal("status --redis-url redis://me:hunter2@h:x/0", &[]);
    assert!(message.contains("redis://***@h:x/0") && !message.contains("hunter2"), "{message}");
}

#[test]
fn none_unsets_and_empty_is_refused() {
    assert_eq!(sidecar("--kv-total-blocks None", &[("TIDEGATE_KV_TOTAL_BLOCKS", "9")]).kv_total_blocks, None);
    for variable in ["TIDEGATE_KV_TOTAL_BLOCKS", "TIDEGATE_LISTEN", "TIDEGATE_LOG", "DYN_ENGINE_REQUEST_LIMIT"] {
        let message = refusal("worker --model m --worker-id w", &[(variable, "")]);
        assert!(message.contains(variable) && message.contains("\"\""), "{message}");
    }
}

#[test]
fn toml_numbers_and_switches_are_values_too() {
    let (_dir, path) = file("redis_timeout_ms = 1_000\n[status]\njson = true\nmodel = \"m\"\n");
    let Job::Status(status, redis) = planned(&format!("status --config {path}"), &[]).unwrap().job else { panic!() };
    assert!(status.json);
    assert_eq!(redis.timeout.as_millis(), 1_000);
    let (_dir, path) = file("[status]\njson = 7\n");
    assert!(refusal(&format!("status --config {path}"), &[]).contains("true or false"));
}
