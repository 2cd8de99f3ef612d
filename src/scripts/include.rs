//! Resolves `--- @include "name"` lines of the Lua scripts.

use super::Script;
use crate::keys::ModelKeys;

macro_rules! includes {
    ($($name:literal),* $(,)?) => {
        const INCLUDES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../lua/include/", $name, ".lua")))),*];
    };
}

includes!(
    "alive",
    "applied",
    "broken",
    "busy",
    "cache",
    "check",
    "clock",
    "config",
    "epoch",
    "expire",
    "fence",
    "gate",
    "journal",
    "lease",
    "num",
    "older",
    "pick",
    "place",
    "prologue",
    "recompute",
    "refuse",
    "registration",
    "run",
    "seq",
    "shard",
    "skip",
    "stats",
);

/// In tests, time is what this says instead of `include/clock.lua`: a key beside the script's own.
const TEST_CLOCK: &str = "local now = tonumber(redis.call('GET', (KEYS[17] or KEYS[1]) .. ':clock'))\n";

/// Puts a script together.
///
/// # Panics
/// If a file of the tree includes one that is not in the table; a test loads them all.
pub(super) fn script(name: &'static str, source: &str) -> Script {
    let mut done = Vec::new();
    let mut text = String::with_capacity(16 * 1024);
    let shebang = source.lines().next().filter(|line| line.starts_with("#!"));
    if let Some(line) = shebang {
        text.push_str(line);
        text.push('\n');
    }
    append(source, &mut done, &mut text);
    let sha = redis::Script::new(&text).get_hash().to_owned();
    Script { name, text, sha }
}

fn append(source: &str, done: &mut Vec<String>, text: &mut String) {
    let included = |line: &str| line.strip_prefix("--- @include \"")?.strip_suffix('"').map(str::to_owned);
    for name in source.lines().filter_map(included) {
        if done.contains(&name) {
            continue;
        }
        done.push(name.clone());
        let body = INCLUDES.iter().find(|(known, _)| *known == name).map(|(_, body)| *body);
        // An unknown include leaves a line that does not compile, and says why.
        let missing = format!("error('no include {name}')(\n");
        append(body.unwrap_or(&missing), done, text);
    }
    for line in source.lines().filter(|line| included(line).is_none() && !line.starts_with("#!")) {
        text.push_str(line);
        text.push('\n');
    }
}

/// The same script, with its time taken from [`clock_key`] (for tests with simulated time).
#[must_use]
pub fn with_test_clock(script: &Script) -> Script {
    let clock = INCLUDES.iter().find(|(name, _)| *name == "clock").map_or("", |(_, body)| *body);
    let text = script.text.replace(clock, TEST_CLOCK);
    let sha = redis::Script::new(&text).get_hash().to_owned();
    Script { name: script.name, text, sha }
}

/// Where [`with_test_clock`] reads a model's time, in milliseconds.
#[must_use]
pub fn clock_key(keys: &ModelKeys) -> String {
    keys.named("stats:clock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_is_whole() {
        for script in super::super::all() {
            assert!(!script.text.contains("@include"), "{}", script.name);
            assert!(!script.text.contains("no include"), "{}", script.name);
            assert!(script.text.starts_with("#!lua"), "{}", script.name);
            assert_eq!(script.text.matches("local now =").count(), 1, "{}", script.name);
            let test = with_test_clock(script);
            assert!(test.text.contains(":clock'") && !test.text.contains("'TIME'"), "{}", script.name);
        }
    }
}
