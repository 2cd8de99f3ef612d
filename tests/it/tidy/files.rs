//! The shape of the tree: names, sizes, what no file may say.

use std::collections::BTreeSet;

use super::{File, none, sources, tree};

/// Files above the limit, each with its reason.
const LONG: &[(&str, &str)] =
    &[("src/core/op.rs", "every operation on shared state and its reply: one list to read beside lua/")];
/// Lines of a Rust or Lua file.
const LIMIT: usize = 450;

fn everything() -> Vec<File> {
    tree(&[
        "src",
        "lua",
        "tests",
        "benches",
        "docker",
        "scripts",
        ".ci",
        ".github",
        "Makefile",
        "Cargo.toml",
        "clippy.toml",
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
    ])
}

#[test]
fn no_file_is_too_long_to_read() {
    let code = everything().into_iter().filter(|f| f.path.ends_with(".rs") || f.path.ends_with(".lua"));
    let mut offences = Vec::new();
    let mut long = BTreeSet::new();
    for file in code {
        let lines = file.text.lines().count();
        if lines > LIMIT {
            long.insert(file.path.clone());
            if !LONG.iter().any(|(path, _)| *path == file.path) {
                offences.push(format!("{}: {lines} lines; split it, or list it with a reason", file.path));
            }
        }
    }
    let stale = LONG.iter().filter(|(path, _)| !long.contains(*path));
    offences.extend(stale.map(|(path, _)| format!("{path}: listed as long, but it is not")));
    none(&offences);
}

/// A file that no `mod` names is not compiled, and nobody notices.
#[test]
fn every_source_file_is_a_module() {
    let files: Vec<File> = tree(&["src", "tests/it"]).into_iter().filter(|f| f.path.ends_with(".rs")).collect();
    let mut offences = Vec::new();
    for file in &files {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let name = name.trim_end_matches(".rs");
        if name == "mod" {
            offences.push(format!("{}: `name.rs` beside the folder, not `mod.rs`", file.path));
        }
        if matches!(name, "main" | "lib") {
            continue;
        }
        let roots = [format!("{folder}/lib.rs"), format!("{folder}/main.rs"), format!("{folder}.rs")];
        let declared = |parent: &File| {
            let words = parent.text.lines().map(str::trim);
            words.filter(|l| l.ends_with(';')).any(|l| {
                let l = l.trim_end_matches(';');
                l.ends_with(&format!("mod {name}")) && l.rsplit(' ').next() == Some(name)
            })
        };
        if !files.iter().filter(|f| roots.contains(&f.path)).any(declared) {
            offences.push(format!("{}: no `mod {name};` in {}", file.path, roots.join(", ")));
        }
    }
    none(&offences);
}

/// Words that no file may hold. Put together here, so that this file does not hold them either.
fn banned() -> Vec<(String, &'static str)> {
    let hosts = [
        ["registry-", "1."],
        ["registry.", "hub"],
        ["hub.", "docker"],
        ["index.", "docker"],
        ["ghcr", ".io"],
        ["quay", ".io"],
        ["gcr", ".io"],
        ["mcr.", "microsoft"],
        ["public.", "ecr"],
        ["pypi", ".org"],
        ["python", "hosted"],
        ["crates", ".io"],
        ["static.", "rust-lang"],
        ["deb.", "debian"],
        ["registry.", "npmjs"],
    ];
    let notes = [["TO", "DO"], ["FIX", "ME"], ["XX", "X:"]];
    let hosts = hosts.iter().map(|p| (p.concat(), "the host name of a registry"));
    hosts.chain(notes.iter().map(|p| (p.concat(), "a note to oneself"))).collect()
}

fn says(file: &File, banned: &[(String, &'static str)]) -> Vec<String> {
    let lines = file.text.lines().enumerate().flat_map(|(i, line)| {
        let found = banned.iter().filter(move |(word, _)| line.contains(word.as_str()));
        found.map(move |(word, why)| format!("{}:{}: `{word}`: {why}", file.path, i + 1))
    });
    lines.collect()
}

#[test]
fn no_file_names_a_registry_or_holds_a_note_to_oneself() {
    let banned = banned();
    none(&everything().iter().flat_map(|f| says(f, &banned)).collect::<Vec<_>>());
    let bad = File::made("x", &format!("FROM {}{}/library/redis\n", "ghcr", ".io"));
    assert_eq!(says(&bad, &banned).len(), 1);
}

#[test]
fn every_module_says_what_it_is() {
    let silent = sources().into_iter().filter(|f| !f.text.starts_with("//!"));
    none(&silent.map(|f| format!("{}: no `//!` at the top", f.path)).collect::<Vec<_>>());
}
