//! The help: defaults and environment variables are written into it from the built-in settings, so that they cannot
//! differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use crate::config::{Resolved, Schema};

use super::Cli;

/// Below the help of `tidegate` itself.
pub const AFTER: &str = "\
Every flag can also stand in a file (--config FILE) or in the environment (TIDEGATE_ and the flag in capitals, with _
for -). Flags win over the environment, the environment over the file. `tidegate defaults` prints such a file.

Try `tidegate demo` first. A fleet by hand:
  tidegate mock-engine --listen 127.0.0.1:9101 --model llama
  tidegate worker --model llama --worker-id w1 --engine-url http://127.0.0.1:9101 --engine-request-limit 4
  tidegate frontend --http-listen 127.0.0.1:8000 --active-decode-blocks-threshold 0.85
  tidegate status";

/// Flags that are not settings: what the user wants done now.
const NO_SETTINGS: [&str; 4] = ["help", "version", "config", "repair"];

fn is_setting(arg: &Arg) -> bool {
    arg.get_long().is_some() && !NO_SETTINGS.contains(&arg.get_id().as_str())
}

/// Section names are command names with `_` for `-`.
fn section(command: &Command) -> String {
    command.get_name().replace('-', "_")
}

/// Every command's settings, as the flags declare them.
#[must_use]
pub fn schema(command: &str) -> Schema {
    static KEYS: OnceLock<BTreeMap<String, BTreeSet<String>>> = OnceLock::new();
    Schema { command: command.to_owned(), keys: KEYS.get_or_init(keys).clone() }
}

fn keys() -> BTreeMap<String, BTreeSet<String>> {
    let root = Cli::command();
    let own = |command: &Command| -> BTreeSet<String> {
        command.get_arguments().filter(|arg| is_setting(arg)).map(|arg| arg.get_id().to_string()).collect()
    };
    let global = own(&root);
    root.get_subcommands().map(|sub| (section(sub), &own(sub) | &global)).collect()
}

/// The command line with the defaults and variables written into its help.
#[must_use]
pub fn command() -> Command {
    let general = crate::config::defaults(&schema("status"));
    Cli::command().mut_args(|arg| annotate(arg, general.as_ref())).mut_subcommands(|sub| {
        let defaults = crate::config::defaults(&schema(&section(&sub)));
        sub.mut_args(|arg| annotate(arg, defaults.as_ref()))
    })
}

/// What an unknown flag was given as: clap names the flag, the design asks for its value too.
#[must_use]
pub fn unknown_flag(error: &clap::Error, arguments: impl IntoIterator<Item = String>) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let mut arguments = arguments.into_iter().skip_while(|word| !word.starts_with(flag.as_str()));
    let word = arguments.next().filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let value = arguments.next().filter(|next| !word.contains('=') && !next.starts_with('-'));
    Some(format!("the unknown flag was given as: {word} {}", value.unwrap_or_default()))
}

/// The short help names the default, the long one the variable too.
fn annotate(arg: Arg, defaults: Option<&Resolved>) -> Arg {
    let known = is_setting(&arg) || arg.get_id() == "config";
    let Some(help) = arg.get_help().map(ToString::to_string).filter(|_| known) else { return arg };
    let default = defaults.and_then(|all| all.setting(arg.get_id().as_str()).ok().flatten());
    let default = default.filter(|default| default.text != "false");
    let default = default.map_or_else(String::new, |default| format!(" [default: {}]", default.text));
    let variable = format!(" [env: TIDEGATE_{}]", arg.get_id().as_str().to_uppercase());
    let long = match arg.get_long_help() {
        Some(long) => format!("{long}\n\n{}", format!("{default}{variable}").trim_start()),
        None => format!("{help}{default}{variable}"),
    };
    arg.help(format!("{help}{default}")).long_help(long)
}
