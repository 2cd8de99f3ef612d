//! Who may import whom (design section 12): `main → cli → {frontend, worker, mock_engine, demo, ops} →
//! {store, metrics, config, …} → {scripts, keys} → core`.

use super::{File, none, sources};

/// The layer of a top module, the lowest first; peers of it that it may use besides what is below.
fn layer(module: &str) -> Option<(u8, &'static [&'static str])> {
    Some(match module {
        "core" => (0, &[]),
        "keys" => (1, &[]),
        "scripts" => (1, &["keys"]),
        "error" | "shutdown" | "telemetry" | "redis_server" => (2, &[]),
        "metrics" | "http" => (2, &[]),
        "config" => (2, &["error"]),
        "store" => (2, &["config", "error", "metrics"]),
        "frontend" | "worker" | "mock_engine" => (3, &[]),
        "ops" => (3, &[]),
        "demo" => (3, &["frontend", "worker", "mock_engine"]),
        "cli" => (4, &[]),
        "lib" | "main" => (5, &[]),
        _ => return None,
    })
}

/// `src/store/redis.rs` is of the module `store`.
fn module(path: &str) -> &str {
    let rest = path.strip_prefix("src/").unwrap_or(path);
    rest.split(['/', '.']).next().unwrap_or(rest)
}

fn offences(file: &File) -> Vec<String> {
    let own = module(&file.path);
    let Some((height, peers)) = layer(own) else { return vec![format!("{}: a module of no known layer", file.path)] };
    let mut out = Vec::new();
    for (number, line) in file.code() {
        // `crate::x` anywhere: an import and a full path are the same dependency. The binary says `tidegate::x`.
        for part in line.split("crate::").skip(1).chain(line.split("tidegate::").skip(1)) {
            let used: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let fine = used == own
                || used.chars().next().is_none_or(char::is_uppercase)
                || layer(&used).is_some_and(|(other, _)| other < height || peers.contains(&used.as_str()));
            if !fine && layer(&used).is_some() {
                out.push(format!("{}:{number}: `{own}` may not use `{used}`", file.path));
            }
        }
    }
    out
}

#[test]
fn every_import_points_to_a_lower_layer() {
    none(&sources().iter().flat_map(offences).collect::<Vec<_>>());
}

#[test]
fn an_import_upwards_is_found() {
    let up = File::made("src/core/busy.rs", "use crate::store::Store;\nfn f() { crate::keys::X; }\n");
    assert_eq!(offences(&up).len(), 2);
    let peer = File::made("src/worker/gate.rs", "use crate::frontend::Lease;\n");
    assert_eq!(offences(&peer).len(), 1);
    let down = File::made("src/worker/gate.rs", "use crate::core::id::WorkerId;\n// crate::frontend\n");
    assert!(offences(&down).is_empty());
    assert_eq!(offences(&File::made("src/util.rs", "")).len(), 1);
}

/// What makes a function's answer depend on more than its arguments.
const IMPURE: [&str; 14] = [
    "std::fs",
    "std::net",
    "std::io",
    "std::env",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "tokio",
    "redis::",
    "rand::",
    "now_v7",
    "tracing",
    "async ",
    "static mut",
];

fn impure(file: &File) -> Vec<String> {
    let lines = file.code().flat_map(|(number, line)| {
        let found = IMPURE.iter().filter(move |word| line.contains(*word));
        found.map(move |word| format!("{}:{number}: `{}` in core", file.path, word.trim()))
    });
    lines.collect()
}

#[test]
fn core_has_no_io_clock_randomness_async_or_logging() {
    let core = sources().into_iter().filter(|f| module(&f.path) == "core");
    none(&core.flat_map(|f| impure(&f)).collect::<Vec<_>>());
    assert_eq!(impure(&File::made("src/core/x.rs", "let t = Instant::now();\n// tokio\n")).len(), 1);
}
