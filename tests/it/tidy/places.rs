//! Things that are said in one place only: key names, script text, statuses, writes to Redis.

use tidegate::keys;

use super::{File, none, sources};

fn outside(files: Vec<File>, homes: &[&str]) -> Vec<File> {
    files.into_iter().filter(|f| !homes.iter().any(|home| f.path.starts_with(home))).collect()
}

/// A literal that ends a key: `…}:config"`, `"{prefix}:leases:{id}"`.
fn formats_a_key(file: &File) -> Vec<String> {
    let own = ["worker:", "leases:", "models", "meta"];
    let ends: Vec<String> = keys::SHARD.iter().chain(&own).map(|name| format!("}}:{name}")).collect();
    let lines =
        file.code().filter(|(_, line)| line.contains(":{{") || ends.iter().any(|end| line.contains(end.as_str())));
    lines.map(|(number, _)| format!("{}:{number}: formats a key; that is for src/keys.rs", file.path)).collect()
}

#[test]
fn only_keys_rs_formats_a_key() {
    none(&outside(sources(), &["src/keys.rs"]).iter().flat_map(formats_a_key).collect::<Vec<_>>());
    let bad =
        File::made("src/x.rs", "let k = format!(\"{ns}:{{{model}}}:stats\");\nlet l = format!(\"{p}:leases:{f}\");\n");
    assert_eq!(formats_a_key(&bad).len(), 2);
}

fn knows_a_script(file: &File) -> Vec<String> {
    let words = [".lua\"", "redis.call", "Script::new"];
    let lines = file.code().filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    lines.map(|(number, _)| format!("{}:{number}: knows a script; that is for src/scripts.rs", file.path)).collect()
}

#[test]
fn only_scripts_rs_knows_script_text() {
    none(&outside(sources(), &["src/scripts"]).iter().flat_map(knows_a_script).collect::<Vec<_>>());
    assert_eq!(knows_a_script(&File::made("src/x.rs", "include_str!(\"../lua/decide.lua\")\n")).len(), 1);
}

fn picks_a_status(file: &File) -> Vec<String> {
    let number = |line: &str, n: &str| {
        let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != '.');
        line.match_indices(n)
            .any(|(i, _)| edge(line[..i].chars().next_back()) && edge(line[i + n.len()..].chars().next()))
    };
    let chosen = |line: &str| line.contains("SERVICE_UNAVAILABLE") || number(line, "503") || number(line, "529");
    let lines = file.code().filter(|(_, line)| chosen(line));
    lines.map(|(n, _)| format!("{}:{n}: names 503 or 529; that is for src/core/refusal.rs", file.path)).collect()
}

/// Who may say these numbers, and why: none of them chooses the status of a refusal.
const SAY_A_STATUS: &[(&str, &str)] = &[
    ("src/core/refusal", "the table"),
    ("src/mock_engine", "stands for somebody else's program"),
    ("src/demo", "counts what it sees, as a client would"),
    ("src/frontend/answer.rs", "adds Retry-After to every 503"),
    ("src/frontend/attempt.rs", "reads what an engine answered"),
    ("src/frontend/pages.rs", "/ready and /health"),
    ("src/frontend/record.rs", "sorts answers for the metrics"),
    ("src/worker/serve.rs", "/ready"),
];

#[test]
fn only_refusal_rs_picks_529_and_503() {
    let homes: Vec<&str> = SAY_A_STATUS.iter().map(|(home, _)| *home).collect();
    none(&outside(sources(), &homes).iter().flat_map(picks_a_status).collect::<Vec<_>>());
    let bad = File::made("src/x.rs", "let s = 529;\nStatusCode::SERVICE_UNAVAILABLE\nlet ms = 5030;\n");
    assert_eq!(picks_a_status(&bad).len(), 2);
}

/// Commands that change nothing. All that does stands in a script.
const READS: &[&str] = &[
    "ASKING",
    "AUTH",
    "CLIENT",
    "CLUSTER",
    "CONFIG",
    "DBSIZE",
    "EXISTS",
    "GET",
    "HELLO",
    "HEXISTS",
    "HGET",
    "HGETALL",
    "HKEYS",
    "HLEN",
    "HMGET",
    "HSCAN",
    "HVALS",
    "INFO",
    "PING",
    "QUIT",
    "READONLY",
    "ROLE",
    "SCAN",
    "SCARD",
    "SELECT",
    "SENTINEL",
    "SISMEMBER",
    "SMEMBERS",
    "SSCAN",
    "TIME",
    "TTL",
    "PTTL",
    "TYPE",
    "XINFO",
    "XLEN",
    "XRANGE",
    "XREAD",
    "XREVRANGE",
    "ZCARD",
    "ZRANGE",
    "ZRANGEBYSCORE",
    "ZSCAN",
    "ZSCORE",
];

fn writes(file: &File) -> Vec<String> {
    let mut out = Vec::new();
    for (number, line) in file.code() {
        if line.contains("AsyncCommands") || line.contains("redis::Commands") || line.contains("AsyncTypedCommands") {
            out.push(format!("{}:{number}: a trait that can write to Redis", file.path));
        }
        for part in line.split("cmd(\"").skip(1) {
            let name: String = part.chars().take_while(char::is_ascii_uppercase).collect();
            if !READS.contains(&name.as_str()) {
                out.push(format!("{}:{number}: {name}: no Redis write outside a script", file.path));
            }
        }
    }
    out
}

#[test]
fn no_redis_write_outside_a_script() {
    none(&outside(sources(), &["src/scripts"]).iter().flat_map(writes).collect::<Vec<_>>());
    let bad = File::made("src/x.rs", "use redis::AsyncCommands;\nredis::cmd(\"HSET\")\nredis::cmd(\"HGETALL\")\n");
    assert_eq!(writes(&bad).len(), 2);
}
