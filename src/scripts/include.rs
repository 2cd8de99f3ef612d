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
    "clamp",
    "clock",
    "config",
    "draw",
    "epoch",
    "expire",
    "expired",
    "fence",
    "gate",
    "heal",
    "journal",
    "lease",
    "mark",
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
    "skips",
    "stats",
    "types",
);

/// In tests, time is what this says instead of `include/clock.lua`: a key beside the script's own.
const TEST_CLOCK: &str = "local now = tonumber(redis.call('GET', (KEYS[17] or KEYS[1]) .. ':clock'))\n";

/// Puts a script together: what it `@include`s; what those need `@rarely`, defined when one of its functions is first
/// called (most calls are spared that cost); then the script's own text.
pub(super) fn script(name: &'static str, source: &str) -> Script {
    let mut done = Vec::new();
    let mut often = String::with_capacity(24 * 1024);
    append(source, &mut done, &mut often);
    let own = own_lines(source);
    often.truncate(often.len() - own.len());

    let mut rarely = String::new();
    loop {
        let wanted: Vec<String> = done
            .iter()
            .filter_map(|name| body(name))
            .chain([source])
            .flat_map(|text| named(text, RARELY))
            .filter(|name| !done.contains(name))
            .collect();
        if wanted.is_empty() {
            break;
        }
        for name in wanted {
            include(&name, &mut done, &mut rarely);
        }
    }

    let mut text = String::with_capacity(often.len() + rarely.len() + own.len() + 512);
    if let Some(line) = source.lines().next().filter(|line| line.starts_with("#!")) {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str(&often);
    if !rarely.is_empty() {
        text.push_str(RARELY_HEAD);
        text.push_str(&rarely);
        text.push_str(RARELY_TAIL);
    }
    text.push_str(&own);
    let sha = redis::Script::new(&text).get_hash().to_owned();
    Script { name, text, sha }
}

const OFTEN: &str = "--- @include \"";
const RARELY: &str = "--- @rarely \"";
const RARELY_HEAD: &str = "local function rarely()\n";
const RARELY_TAIL: &str = "end
setmetatable(M, {
  __index = function(_, name)
    setmetatable(M, nil)
    rarely()
    return M[name]
  end,
})
";

/// The names in a text's lines of one kind.
fn named(text: &str, kind: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_suffix('"')).map(str::to_owned).collect()
}

fn body(name: &str) -> Option<&'static str> {
    INCLUDES.iter().find(|(known, _)| *known == name).map(|(_, body)| *body)
}

/// A text without the lines that are for this loader.
fn own_lines(text: &str) -> String {
    let keep = |line: &&str| !line.starts_with(OFTEN) && !line.starts_with(RARELY) && !line.starts_with("#!");
    text.lines().filter(keep).flat_map(|line| [line, "\n"]).collect()
}

fn append(source: &str, done: &mut Vec<String>, text: &mut String) {
    for name in named(source, OFTEN) {
        include(&name, done, text);
    }
    text.push_str(&own_lines(source));
}

fn include(name: &str, done: &mut Vec<String>, text: &mut String) {
    if done.iter().any(|known| known == name) {
        return;
    }
    done.push(name.to_owned());
    match body(name) {
        Some(body) => append(body, done, text),
        // A line that does not compile, and says why.
        None => text.push_str(&format!("error('no include {name}')(\n")),
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
            assert!(!script.text.contains("\n--- @"), "{}", script.name);
            assert!(!script.text.contains("no include"), "{}", script.name);
            assert!(script.text.starts_with("#!lua"), "{}", script.name);
            assert_eq!(script.text.matches("local now =").count(), 1, "{}", script.name);
            let test = with_test_clock(script);
            assert!(test.text.contains(":clock'") && !test.text.contains("'TIME'"), "{}", script.name);
        }
    }
}
