//! The Lua: every script tells its contract, and says the same as the Rust.

use std::collections::BTreeSet;

use super::{File, none, tree};

fn lua() -> (Vec<File>, Vec<File>) {
    let all: Vec<File> = tree(&["lua"]).into_iter().filter(|f| f.path.ends_with(".lua")).collect();
    all.into_iter().partition(|f| !f.path.starts_with("lua/include/"))
}

/// The block comment on top, without the shebang.
fn header(text: &str) -> Option<&str> {
    let text = text.strip_prefix("#!lua").and_then(|t| t.split_once('\n')).map_or(text, |(_, rest)| rest);
    text.strip_prefix("--[[")?.split_once("]]").map(|(header, _)| header)
}

/// The numbers n of `WORD[n]`.
fn indices(text: &str, word: &str) -> BTreeSet<usize> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.split(&format!("{word}[")).skip(1).filter_map(|part| digits(part).parse().ok()).collect()
}

/// The highest index that a header explains: `KEYS[1..17]`, `ARGV[3]`, `ARGV[6..]` (no end).
fn explained(header: &str, word: &str) -> Option<usize> {
    let opening = format!("{word}[");
    let ends = header.split(&opening).skip(1).filter_map(|part| {
        let (inside, _) = part.split_once(']')?;
        match inside.split_once("..") {
            Some((_, "")) => Some(usize::MAX),
            Some((_, end)) => end.parse().ok(),
            None => inside.parse().ok(),
        }
    });
    ends.max()
}

fn untold(file: &File) -> Vec<String> {
    let Some(header) = header(&file.text) else { return vec![format!("{}: no --[[ header ]] on top", file.path)] };
    let mut out = Vec::new();
    if !header.contains("returns") {
        out.push(format!("{}: the header does not say what it returns", file.path));
    }
    if !header.contains("KEYS[1") {
        out.push(format!("{}: the header does not name its keys", file.path));
    }
    let body = file.text.replace(header, "");
    for word in ["KEYS", "ARGV"] {
        let used = indices(&body, word).into_iter().max();
        if used > explained(header, word) {
            out.push(format!("{}: uses {word}[{}], which the header does not explain", file.path, used.unwrap_or(0)));
        }
    }
    out
}

#[test]
fn every_script_names_its_keys_arguments_and_reply() {
    let (scripts, _) = lua();
    assert!(scripts.len() >= 12, "the scripts of design section 4 are not all there");
    none(&scripts.iter().flat_map(untold).collect::<Vec<_>>());
    let bad = File::made("lua/x.lua", "#!lua\n--[[ Does.\nKEYS[1..17] all\nARGV[1] a ]]\nreturn ARGV[2]\n");
    assert_eq!(untold(&bad).len(), 2);
}

#[test]
fn every_script_says_what_it_may_do() {
    let (scripts, includes) = lua();
    let bare = scripts.iter().filter(|f| !f.text.starts_with("#!lua"));
    let mut offences: Vec<String> = bare.map(|f| format!("{}: no `#!lua` line", f.path)).collect();
    let silent = includes.iter().filter(|f| !f.text.starts_with("--"));
    offences.extend(silent.map(|f| format!("{}: does not say what it is for", f.path)));
    none(&offences);
}

/// A script that looks at another clock, or builds a key, breaks in a cluster or after a failover.
#[test]
fn one_clock_and_no_key_out_of_thin_air() {
    let (scripts, includes) = lua();
    let mut offences = Vec::new();
    for file in scripts.iter().chain(&includes) {
        for (number, line) in file.code() {
            if line.contains("'TIME'") && file.path != "lua/include/clock.lua" {
                offences.push(format!("{}:{number}: only include/clock.lua asks for the time", file.path));
            }
            if line.contains("math.random") {
                offences.push(format!("{}:{number}: Redis seeds Lua's numbers the same in every call", file.path));
            }
            let call = line.split("redis.call(").skip(1).chain(line.split("redis.pcall(").skip(1));
            for part in call {
                let key = part.split(',').nth(1).unwrap_or("").trim();
                if key.starts_with('\'') {
                    offences.push(format!("{}:{number}: {key}: a key that is not in KEYS", file.path));
                }
            }
        }
    }
    none(&offences);
}

/// An include that no script reaches is dead text.
#[test]
fn every_include_is_used_and_exists() {
    let (scripts, includes) = lua();
    let named: BTreeSet<String> = scripts
        .iter()
        .chain(&includes)
        .flat_map(|f| f.text.lines())
        .filter_map(|line| {
            line.strip_prefix("--- @include \"")
                .or(line.strip_prefix("--- @rarely \""))?
                .strip_suffix('"')
                .map(str::to_owned)
        })
        .collect();
    let there: BTreeSet<String> = includes
        .iter()
        .map(|f| f.path.trim_start_matches("lua/include/").trim_end_matches(".lua").to_owned())
        .collect();
    let unused = there.difference(&named).map(|name| format!("lua/include/{name}.lua: no script includes it"));
    let missing = named.difference(&there).map(|name| format!("lua/include/{name}.lua: included, but not there"));
    none(&unused.chain(missing).collect::<Vec<_>>());
}

/// In every script, as it is sent, each name of the shared table is given a value somewhere.
#[test]
fn no_script_uses_a_function_that_it_does_not_include() {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut offences = Vec::new();
    for script in tidegate::scripts::all() {
        let code = || script.text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let mut given = BTreeSet::new();
        for line in code() {
            if let Some(rest) = line.strip_prefix("function M.") {
                given.insert(word(rest));
            }
            if let Some((names, _)) = line.split_once(" = ") {
                given.extend(names.split(", ").filter_map(|n| n.trim().strip_prefix("M.")).map(word));
            }
        }
        for line in code() {
            for used in line.split("M.").skip(1).map(word) {
                if !given.contains(&used) {
                    offences.push(format!("{}: M.{used} in: {}", script.name, line.trim()));
                }
            }
        }
    }
    none(&offences);
}
