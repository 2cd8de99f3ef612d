//! Layers, origins and refusals, with a map in place of the process environment.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use super::*;
use crate::config::Layers;

/// A plan, or the message that stops the start.
fn planned(arguments: &str, environment: &[(&str, &str)]) -> Result<Plan, String> {
    let words = std::iter::once("tidegate").chain(arguments.split(' ').filter(|word| !word.is_empty()));
    let words = words.map(|word| word.trim_matches('\''));
    let matches = Cli::command().try_get_matches_from(words).map_err(|why| why.to_string())?;
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
        Ok(Plan { job: Job::Serve(Server::Worker(settings, _)), .. }) => settings,
        other => panic!("{other:?}"),
    }
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, text).unwrap();
    (dir, path.display().to_string())
}

fn frontend(arguments: &str, environment: &[(&str, &str)]) -> (Box<edge::Settings>, Notes) {
    match planned(&format!("frontend {arguments}"), environment) {
        Ok(Plan { job: Job::Serve(Server::Frontend(settings, _)), notes, .. }) => (settings, notes),
        other => panic!("{other:?}"),
    }
}

fn seeds(arguments: &str, environment: &[(&str, &str)]) -> Vec<(String, String)> {
    frontend(arguments, environment).0.seeds
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
    let (_dir, path) = file("[worker]\nrequest_queue_limit = 3\nengine_request_limit = 1\n");
    assert_eq!(
        sidecar(&format!("--config {path}"), &variable).request_queue_limit,
        5,
        "the environment is above a file"
    );
    assert_eq!(sidecar(&format!("--config {path}"), &[]).request_queue_limit, 3);
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
    assert_eq!(plan.notes.warnings.len(), 2, "{:?}", plan.notes.warnings);
    assert!(plan.notes.warnings.iter().any(|line| line.contains("TIDEGATE_REDIS_URI")));
    assert!(plan.notes.warnings.iter().any(|line| line.contains("RUST_LOG")));
}

#[test]
fn a_password_is_read_from_its_file_and_never_shown() {
    let (_dir, path) = file("hunter2\n");
    let line = format!("status --redis-url redis://me:other@h:1/0 --redis-password-file {path}");
    let plan = planned(&line, &[]).unwrap();
    let shown = format!("{plan:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("other"), "{shown}");
    let Job::Operate(Operator::Status(_), redis) = plan.job else { panic!("{shown}") };
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
    let Job::Operate(Operator::Status(status), redis) = planned(&format!("status --config {path}"), &[]).unwrap().job
    else {
        panic!()
    };
    assert!(status.json);
    assert_eq!(redis.timeout.as_millis(), 1_000);
    let (_dir, path) = file("[status]\njson = 7\n");
    assert!(refusal(&format!("status --config {path}"), &[]).contains("true or false"));
}

/// Rows C1, C2, C4 and C6 of the reference's table of settings.
#[test]
fn each_threshold_is_on_if_it_is_set_and_only_then() {
    assert_eq!(seeds("", &[]), []);
    let one = |name: &str, text: &str| vec![(name.to_owned(), text.to_owned())];
    for (key, flag, variable) in [
        ("active_decode_blocks_threshold", "0.5", "0.6"),
        ("active_prefill_tokens_threshold", "1000", "2000"),
        ("active_prefill_tokens_threshold_frac", "64.0", "3.0"),
    ] {
        let name = format!("--{}", key.replace('_', "-"));
        let upper = key.to_uppercase();
        assert_eq!(seeds(&format!("{name} {flag}"), &[]), one(key, flag));
        assert_eq!(seeds(&format!("{name}={flag}"), &[]), one(key, flag));
        assert_eq!(seeds("", &[(&format!("DYN_{upper}"), variable)]), one(key, variable));
        assert_eq!(seeds("", &[(&format!("TIDEGATE_{upper}"), variable)]), one(key, variable));
        assert_eq!(seeds(&format!("{name} None"), &[(&format!("DYN_{upper}"), variable)]), []);
        assert_eq!(seeds("", &[(&format!("DYN_{upper}"), "None")]), []);
    }
    for text in ["0", "1", "0.85", "8.5e-1"] {
        let given = seeds(&format!("--active-decode-blocks-threshold {text}"), &[]);
        assert_eq!(given, one("active_decode_blocks_threshold", text));
    }
}

/// F037, and row C5 of the reference's table of settings.
#[test]
fn f037_what_is_no_number_in_range_is_refused() {
    let decode = "active-decode-blocks-threshold";
    let (whole, share) = ("active-prefill-tokens-threshold", "active-prefill-tokens-threshold-frac");
    let all = ["nan", "NaN", "inf", "-inf", "-0.1", "1e309", "0x1", "", "0,85", "85%", "-1", "+1", "1_0", "none"];
    let flags = [(decode, "1.0000001"), (whole, "1.5"), (whole, "9007199254740992"), (share, "-0.0")];
    let cases = [decode, whole, share].into_iter().flat_map(|flag| all.map(|text| (flag, text))).chain(flags);
    for (flag, text) in cases {
        let message = refusal(&format!("frontend --{flag} '{text}'"), &[]);
        assert!(message.contains(&format!("--{flag}: {text:?}")), "{message}");
        let variable = format!("DYN_{}", flag.replace('-', "_").to_uppercase());
        let message = refusal("frontend", &[(&variable, text)]);
        assert!(message.contains(&variable) && message.contains(&format!("{text:?}")), "{message}");
    }
}

#[test]
fn shared_fields_are_seeded_only_if_somebody_names_them() {
    let given = seeds("--router-mode kv --router-track-output-blocks --router-track-active-blocks false", &[]);
    let want = [("router_mode", "kv"), ("track_output_blocks", "true"), ("track_active_blocks", "false")];
    assert_eq!(given, want.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let (_dir, path) = file("[frontend]\nload_ttl_ms = 5000\n");
    assert_eq!(seeds(&format!("--config {path}"), &[]), [("load_ttl_ms".to_owned(), "5000".to_owned())]);
    for bad in ["--router-mode device-aware-weighted", "--load-ttl-ms 99", "--router-track-active-blocks maybe"] {
        assert!(refusal(&format!("frontend {bad}"), &[]).contains(bad.split(' ').next().unwrap()));
    }
}

/// Row C7 of the reference's table of settings.
#[test]
fn admission_control_is_accepted_with_a_warning() {
    for (arguments, environment) in
        [("--admission-control none", vec![]), ("", vec![("DYN_ADMISSION_CONTROL", "token-capacity")])]
    {
        let (_, notes) = frontend(arguments, &environment);
        assert!(notes.warnings.iter().any(|line| line.contains("is no longer supported and is ignored")), "{notes:?}");
    }
    assert!(refusal("frontend --admission-control bogus", &[]).contains("--admission-control: \"bogus\""));
}

#[test]
fn frontend_defaults_are_those_of_its_own_settings() {
    let (settings, notes) = frontend("", &[]);
    let defaults = edge::Settings::new(settings.http_listen);
    assert_eq!(format!("{settings:?}"), format!("{defaults:?}"));
    assert_eq!(notes.warnings, Vec::<String>::new());
    assert!(notes.infos.iter().any(|line| line.contains("busy-worker rejection disabled")));
    let defaults = sidecar::Settings::new(
        crate::core::id::ModelName::parse("m").unwrap(),
        crate::core::id::WorkerId::parse("w").unwrap(),
        "127.0.0.1:9001".parse().unwrap(),
        "http://127.0.0.1:9101".parse().unwrap(),
    );
    assert_eq!(format!("{:?}", sidecar("", &[])), format!("{defaults:?}"));
}

#[test]
fn the_admin_variables_are_read() {
    let (_dir, path) = file("token\n");
    let (settings, notes) =
        frontend(&format!("--admin-token-file {path}"), &[("DYN_HTTP_OVERLOAD_STATUS_CODE", "599")]);
    assert_eq!(settings.admin_token.as_ref().map(|token| token.reveal()), Some("token"));
    assert_eq!(settings.overload.get(), 599);
    assert_eq!(notes.warnings, Vec::<String>::new());
    assert!(!frontend("", &[("DYN_DISABLE_FRONTEND_ADMIN_API", "yes")]).0.admin_api);
    assert!(frontend("", &[("DYN_DISABLE_FRONTEND_ADMIN_API", "0")]).0.admin_api);
    let (settings, notes) = frontend("", &[("DYN_HTTP_OVERLOAD_STATUS_CODE", "99")]);
    assert_eq!(settings.overload, crate::core::refusal::OverloadStatus::default());
    assert!(notes.warnings.iter().any(|line| line.contains("DYN_HTTP_OVERLOAD_STATUS_CODE")));
}

#[test]
fn out_of_range_settings_of_frontend_and_engine_are_named() {
    for line in [
        "frontend --http-listen 8000",
        "frontend --admin-listen x",
        "frontend --max-connections 0",
        "frontend --max-body-bytes 0",
        "frontend --on-store-loss open",
        "frontend --migration-limit 4294967296",
        "frontend --model-retention-s 0",
        "frontend --drain-seconds 1.5",
        "frontend --max-worker-series -1",
        "frontend --engine-timeout-ms 1s",
        "frontend --stream-idle-ms -1",
        "frontend --sse-keep-alive-ms x",
        "frontend --static-max-age-ms None",
        "mock-engine --kv-total-blocks 0",
        "mock-engine --decode-tokens-per-s 0",
        "mock-engine --prefill-tokens-per-s -1",
        "mock-engine --data-parallel-size 1025",
        "mock-engine --max-num-seqs 0",
        "status --interval-ms 0",
        "status --watch=maybe",
        "status --model=",
    ] {
        let message = refusal(line, &[("TIDEGATE_MODEL", "m")]);
        let flag = line.split([' ', '=']).nth(1).unwrap();
        assert!(message.contains(flag), "{line}: {message}");
    }
    assert!(refusal("mock-engine", &[]).contains("--model is required"));
    assert!(planned("mock-engine --model m --decode-tokens-per-s 12.5", &[]).is_ok());
}
