//! Lua and Rust say the same: keys, fields, numbers and reply codes are compared as they stand in the sources.

use std::collections::{BTreeMap, BTreeSet};

use tidegate::core::thresholds::{Field, MAX_INTEGER, RouterMode};
use tidegate::keys;

use super::{File, none, sources, tree};

fn lua() -> Vec<File> {
    tree(&["lua"]).into_iter().filter(|f| f.path.ends_with(".lua")).collect()
}

/// `M.A, M.B = 1, 2` of capital letters.
fn lua_numbers(file: &File) -> Vec<(String, i64)> {
    let lines = file.code().filter_map(|(_, line)| line.strip_prefix("M.")?.split_once(" = "));
    let pairs = lines.flat_map(|(names, values)| {
        let values: Vec<_> = values.split(", ").map(|v| v.parse().ok()).collect();
        names.split(", ").map(|n| n.trim_start_matches("M.").to_owned()).zip(values).collect::<Vec<_>>()
    });
    pairs
        .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .filter_map(|(n, v)| Some((n, v?)))
        .collect()
}

/// `const A: i64 = 1;` of the core.
fn rust_numbers() -> BTreeMap<String, BTreeSet<i64>> {
    let mut out: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    for file in sources().iter().filter(|f| f.path.starts_with("src/core/")) {
        for (_, line) in file.code() {
            let Some((name, value)) = line.split_once("const ").and_then(|(_, rest)| rest.split_once(": ")) else {
                continue;
            };
            let Some(value) = value.split_once("= ").map(|(_, v)| v.trim_end_matches(';').replace('_', "")) else {
                continue;
            };
            if let Ok(value) = value.parse() {
                out.entry(name.to_owned()).or_default().insert(value);
            }
        }
    }
    let largest = i64::try_from(MAX_INTEGER).expect("2^53 - 1");
    for name in ["MAX_WHOLE", "MOST"] {
        out.entry(name.to_owned()).or_default().insert(largest);
    }
    out
}

#[test]
fn numbers_of_the_scripts_are_those_of_the_model() {
    let rust = rust_numbers();
    let mut seen = 0;
    let mut offences = Vec::new();
    for file in lua() {
        for (name, value) in lua_numbers(&file) {
            seen += 1;
            if rust.get(&name) != Some(&BTreeSet::from([value])) {
                offences.push(format!("{}: {name} = {value}, but src/core says {:?}", file.path, rust.get(&name)));
            }
        }
    }
    assert!(seen >= 8, "only {seen} numbers found in lua/");
    none(&offences);
}

/// `name = KEYS[i]`, in order.
#[test]
fn keys_stand_in_the_same_order() {
    let text = File::read("lua/include/shard.lua").text;
    let mut names = BTreeMap::new();
    for part in text.split(['{', ',', '}']) {
        if let Some((name, index)) = part.trim().split_once(" = KEYS[") {
            let index: usize = index.trim_end_matches(']').parse().expect("an index");
            names.insert(index, name.to_owned());
        }
    }
    // `config:applied` is `applied` there.
    let rust: Vec<_> = keys::SHARD.iter().map(|key| key.rsplit(':').next().unwrap_or(key).to_owned()).collect();
    assert_eq!(names.into_values().collect::<Vec<_>>(), rust);
}

/// The words in single quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn configuration_fields_and_router_modes_are_the_same() {
    let applied = File::read("lua/include/applied.lua").text;
    let list = applied.split("M.FIELDS = {").nth(1).and_then(|t| t.split('}').next()).expect("FIELDS");
    let rust: Vec<_> = Field::ALL.iter().map(|f| f.name().to_owned()).collect();
    assert_eq!(quoted(list), rust);

    let check = File::read("lua/include/check.lua").text;
    let list = check.split("router_mode = {").nth(1).and_then(|t| t.split('}').next()).expect("router_mode");
    let modes: Vec<_> = quoted(list).into_iter().skip(1).collect();
    let rust: Vec<_> = RouterMode::ALL.iter().map(|m| m.name().to_owned()).collect();
    assert_eq!(modes, rust);
}

/// A script's reply codes: the first word of what it returns.
fn codes(file: &File) -> BTreeSet<String> {
    let lines = file.code().filter_map(|(_, line)| line.split_once("return { '"));
    lines.filter_map(|(_, rest)| rest.split_once('\'').map(|(code, _)| code.to_owned())).collect()
}

#[test]
fn every_reply_code_is_read() {
    let rust: String = sources().into_iter().filter(|f| f.path.starts_with("src/scripts")).map(|f| f.text).collect();
    let mut offences = Vec::new();
    let mut seen = BTreeSet::new();
    for file in lua() {
        for code in codes(&file) {
            if !rust.contains(&format!("\"{code}\"")) {
                offences.push(format!("{}: answers '{code}', which src/scripts does not read", file.path));
            }
            seen.insert(code);
        }
    }
    assert!(seen.len() >= 8, "only {seen:?} found in lua/");
    none(&offences);
}

/// The words that the typed calls match on: `"ok" => …`, `"register" | "epoch" => …`.
#[test]
fn every_code_that_is_read_is_answered() {
    let lua: String = lua().into_iter().map(|f| f.text).collect();
    let mut offences = Vec::new();
    for file in sources().iter().filter(|f| f.path.starts_with("src/scripts")) {
        for (number, line) in file.code() {
            let Some((pattern, _)) = line.split_once("=>").filter(|(p, _)| p.trim_start().starts_with('"')) else {
                continue;
            };
            for code in pattern.split('"').skip(1).step_by(2) {
                if !lua.contains(&format!("'{code}'")) {
                    offences.push(format!("{}:{number}: reads '{code}', which no script answers", file.path));
                }
            }
        }
    }
    none(&offences);
}
