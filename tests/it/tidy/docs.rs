//! What the documents promise is what is there.

use std::process::Command;

use tidegate::keys;

use super::{File, none, tree};

const COMMANDS: [&str; 7] = ["frontend", "worker", "mock-engine", "demo", "status", "thresholds", "doctor"];

/// The long flags of a command, from its own help.
fn flags(command: &str) -> Vec<String> {
    let help =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args([command, "--help"]).output().expect("the binary runs");
    let help = String::from_utf8(help.stdout).expect("help is text");
    let flags = help.lines().filter_map(|line| {
        let name = line.trim_start().rsplit_once("--").filter(|(before, _)| before.len() <= 4)?.1;
        Some(name.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect())
    });
    flags.filter(|f| f != "help" && f != "config").collect()
}

/// The keys of the whole file and of one section.
fn keys_for<'a>(toml: &'a str, section: &str) -> Vec<&'a str> {
    let mut at = "";
    let mut keys = Vec::new();
    for line in toml.lines() {
        if let Some(name) = line.strip_prefix('[') {
            at = name.trim_end_matches(']');
        } else if let Some((key, _)) = line.split_once(" = ")
            && (at.is_empty() || at == section)
            && !key.starts_with('#')
        {
            keys.push(key);
        }
    }
    keys
}

#[test]
fn every_flag_is_in_default_toml_and_in_the_readme() {
    let toml = File::read("src/config/default.toml").text;
    let readme = File::read("README.md").text;
    let mut offences = Vec::new();
    for command in COMMANDS {
        let flags = flags(command);
        assert!(flags.len() >= 4, "{command} --help was not understood: {flags:?}");
        let known = keys_for(&toml, &command.replace('-', "_"));
        for flag in flags {
            // What changes the state must be asked for each time.
            if flag != "repair" && !known.contains(&flag.replace('-', "_").as_str()) {
                offences.push(format!("src/config/default.toml: no key for `tidegate {command} --{flag}`"));
            }
            if !readme.contains(&format!("`--{flag}`")) {
                offences.push(format!("README.md: does not tell of `tidegate {command} --{flag}`"));
            }
        }
    }
    none(&offences);
}

#[test]
fn every_key_is_in_the_readme() {
    let readme = File::read("README.md").text;
    let untold = keys::SHARD.iter().filter(|key| !readme.contains(&format!("| `{key}` |")));
    none(&untold.map(|key| format!("README.md: does not tell of the key `{key}`")).collect::<Vec<_>>());
}

/// The names in quotes that begin like a metric.
fn metrics(file: &File) -> Vec<String> {
    let literals = file.code().flat_map(|(_, line)| line.split('"').skip(1).step_by(2));
    let names = literals.filter(|name| name.starts_with("tidegate_") || name.starts_with("dynamo_"));
    let whole = names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    whole.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_in_the_readme() {
    let readme = File::read("README.md").text;
    let sources = tree(&["src/metrics.rs", "src/metrics"]);
    let untold = sources.iter().flat_map(metrics).filter(|name| !readme.contains(&format!("`{name}`")));
    none(&untold.map(|name| format!("README.md: does not tell of the metric `{name}`")).collect::<Vec<_>>());
}

/// The words for programs in `src/core/refusal.rs`: quoted, with an underscore, and not Anthropic's kinds of error.
#[test]
fn every_reason_is_in_the_readme() {
    let readme = File::read("README.md").text;
    let file = File::read("src/core/refusal.rs");
    let words = file.code().flat_map(|(_, line)| line.split('"').skip(1).step_by(2));
    let kinds = |word: &str| word.ends_with("_error") || word == "request_too_large";
    let reasons =
        words.filter(|w| w.contains('_') && w.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !kinds(w));
    let reasons: Vec<&str> = reasons.collect();
    assert!(reasons.len() > 20, "only {reasons:?} found");
    let untold = reasons.iter().filter(|reason| !readme.contains(&format!("`{reason}`")));
    none(&untold.map(|reason| format!("README.md: does not tell of the reason `{reason}`")).collect::<Vec<_>>());
}

#[test]
fn the_readme_and_the_map_name_files_that_are_there() {
    let mut offences = Vec::new();
    for path in ["README.md", "ARCHITECTURE.md"] {
        let file = File::read(path);
        let quoted = file.text.split('`').skip(1).step_by(2);
        let prefixes = ["src/", "lua/", "tests/", "docker/", "scripts/", "benches/"];
        for name in quoted.filter(|q| prefixes.iter().any(|p| q.starts_with(p))) {
            let name = name.split([' ', '*', '{', '<']).next().unwrap_or(name);
            if !super::root().join(name).exists() {
                offences.push(format!("{path}: `{name}` is not there"));
            }
        }
    }
    none(&offences);
}
