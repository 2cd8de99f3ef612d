//! How the binary ends when its settings are refused: code 2, one message, no port.

use crate::harness::Fleet;

use super::finished;

async fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let fleet = Fleet::new();
    let (code, text) = finished(fleet.process(arguments[0], arguments, environment)).await;
    assert_eq!(code, 2, "{text}");
    assert!(!text.contains("listening") && !text.contains("panicked"), "{text}");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_end_with_code_2_before_a_port_opens() {
    let worker = ["worker", "--model", "m", "--worker-id", "w", "--listen", "127.0.0.1:0"];
    for (arguments, environment, parts) in [
        (vec!["frontend", "--bogus", "17"], vec![], vec!["--bogus 17"]),
        (vec!["frontend", "--bogus=17"], vec![], vec!["--bogus=17"]),
        (vec!["bogus"], vec![], vec!["bogus"]),
        (
            vec!["frontend", "--active-decode-blocks-threshold", "nan"],
            vec![],
            vec!["--active-decode-blocks-threshold", "nan", "flag"],
        ),
        (
            vec!["frontend"],
            vec![("DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD", "")],
            vec!["DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD"],
        ),
        (vec!["frontend", "--admission-control", "bogus"], vec![], vec!["--admission-control", "bogus"]),
        (worker.to_vec(), vec![("TIDEGATE_WORKER_TTL_MS", "4999")], vec!["TIDEGATE_WORKER_TTL_MS", "4999", "5000"]),
        (vec!["worker", "--model", "m"], vec![], vec!["--worker-id"]),
        (vec!["mock-engine"], vec![], vec!["--model"]),
        (vec!["status", "--config", "/absent.toml"], vec![], vec!["/absent.toml"]),
    ] {
        let text = refused(&arguments, &environment).await;
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
    }
}

/// F136: what Kubernetes injects does not stop the start.
#[tokio::test(flavor = "multi_thread")]
async fn f136_injected_variables_are_ignored() {
    let fleet = Fleet::new();
    let environment = [
        ("REDIS_PORT", "tcp://10.0.0.1:6379"),
        ("TIDEGATE_PORT", "tcp://10.0.0.2:8000"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.2"),
        ("TIDEGATE_PORT_8000_TCP_ADDR", "10.0.0.2"),
        ("TIDEGATE_BOGUS", "1"),
    ];
    let arguments = ["mock-engine", "--model", "m", "--listen", "127.0.0.1:0"];
    let engine = fleet.process("mock-engine", &arguments, &environment).listening().await;
    let log = engine.log();
    assert!(log.contains("TIDEGATE_BOGUS") && !log.contains("TIDEGATE_PORT"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn help_and_version_are_no_errors() {
    let fleet = Fleet::new();
    for (arguments, part) in [
        (vec!["--help"], "tidegate demo"),
        (vec!["--version"], env!("CARGO_PKG_VERSION")),
        (vec!["worker", "--help"], "TIDEGATE_ENGINE_REQUEST_LIMIT"),
        (vec!["thresholds", "set", "--help"], "FIELD=VALUE"),
    ] {
        let (code, text) = finished(fleet.process("help", &arguments, &[])).await;
        assert_eq!(code, 0, "{text}");
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_defaults_are_a_settings_file() {
    let fleet = Fleet::new();
    let (code, text) = finished(fleet.process("defaults", &["defaults"], &[])).await;
    assert_eq!(code, 0);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    std::fs::write(&path, &text).unwrap();
    let config = path.display().to_string();
    let arguments = ["mock-engine", "--config", &config, "--model", "m", "--listen", "127.0.0.1:0"];
    fleet.process("mock-engine", &arguments, &[]).listening().await;
    assert!(refused(&["mock-engine", "--config", &config], &[]).await.contains("--model is required"));
}
