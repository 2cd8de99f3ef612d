//! From text to typed settings: the one place where settings are interpreted. A command starts only with settings that
//! have passed through here.

mod frontend;
mod mock_engine;
mod ops;
mod worker;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;

use crate::config::environment::RUST_LOG;
use crate::config::redis::RedisSettings;
use crate::config::redis_url::RedisUrl;
use crate::config::{DEFAULT, Layers, Resolved, SettingsError, parse};
use crate::{demo, frontend as edge, mock_engine as engine, ops as operator, telemetry, worker as sidecar};

use super::{Cli, Command, help};

/// What a process is to do, with all that it needs to know.
#[derive(Debug)]
pub struct Plan {
    /// Its log.
    pub log: telemetry::Settings,
    /// What is to be logged once the log is set up.
    pub notes: Notes,
    /// The command.
    pub job: Job,
}

/// What an operator should know although it stops nothing.
#[derive(Debug, Default)]
pub struct Notes {
    /// Probably not meant so.
    pub warnings: Vec<String>,
    /// As asked for.
    pub infos: Vec<String>,
}

/// Longest time that any setting can name: a day.
const DAY_MS: u64 = 86_400_000;

/// A command with its settings.
#[derive(Debug)]
pub enum Job {
    /// Runs until a signal.
    Serve(Server),
    /// Does its work on this Redis and ends.
    Operate(Operator, RedisSettings),
    /// Prints this and ends.
    Print(&'static str),
}

/// The commands that run until a signal.
#[derive(Debug)]
pub enum Server {
    /// `tidegate frontend`.
    Frontend(Box<edge::Settings>, RedisSettings),
    /// `tidegate worker`.
    Worker(Box<sidecar::Settings>, RedisSettings),
    /// `tidegate mock-engine`.
    MockEngine(engine::Settings),
    /// `tidegate demo`.
    Demo(demo::Settings),
}

/// The operator's commands.
#[derive(Debug)]
pub enum Operator {
    /// `tidegate status`.
    Status(operator::status::Settings),
    /// `tidegate thresholds`.
    Thresholds(operator::thresholds::Settings),
    /// `tidegate doctor`.
    Doctor(operator::doctor::Settings),
}

/// Puts all layers on top of one another and checks the result.
///
/// # Errors
/// See [`SettingsError`].
pub fn plan(cli: &Cli, environment: Vec<(OsString, OsString)>) -> Result<Plan, SettingsError> {
    let schema = help::schema(cli.command.section());
    let mut flags = texts(&cli.global);
    flags.extend(match &cli.command {
        Command::Frontend(flags) => texts(flags),
        Command::Worker(flags) => texts(flags),
        Command::MockEngine(flags) => texts(flags),
        Command::Demo(flags) => texts(flags),
        Command::Status(flags) => texts(flags),
        Command::Thresholds(flags) => texts(flags),
        Command::Doctor(flags) => texts(flags),
        Command::Defaults => BTreeMap::new(),
    });
    let layers = Layers { file: cli.global.config.as_ref().map(PathBuf::from), environment, flags };
    let settings = layers.resolve(&schema)?;
    let mut notes = Notes { warnings: settings.warnings.clone(), infos: Vec::new() };
    let log = log(&settings, &mut notes.warnings)?;
    let redis = || RedisSettings::resolve(&settings);
    let job = match &cli.command {
        Command::Frontend(_) => {
            Job::Serve(Server::Frontend(Box::new(frontend::frontend(&settings, &mut notes)?), redis()?))
        }
        Command::Worker(_) => Job::Serve(Server::Worker(Box::new(worker::sidecar(&settings)?), redis()?)),
        Command::MockEngine(_) => Job::Serve(Server::MockEngine(mock_engine::mock_engine(&settings)?)),
        Command::Demo(_) => Job::Serve(Server::Demo(demo(&settings)?)),
        Command::Status(_) => Job::Operate(Operator::Status(ops::status(&settings)?), redis()?),
        Command::Thresholds(flags) => Job::Operate(Operator::Thresholds(ops::thresholds(&settings, flags)?), redis()?),
        Command::Defaults => Job::Print(DEFAULT),
        Command::Doctor(flags) => Job::Operate(Operator::Doctor(ops::doctor(&settings, flags)?), redis()?),
    };
    Ok(Plan { log, notes, job })
}

/// The flags that were given, as they were given.
fn texts(flags: &impl Serialize) -> BTreeMap<String, String> {
    let Ok(serde_json::Value::Object(all)) = serde_json::to_value(flags) else { return BTreeMap::new() };
    all.into_iter().filter_map(|(key, value)| Some((key, value.as_str()?.to_owned()))).collect()
}

fn demo(settings: &Resolved) -> Result<demo::Settings, SettingsError> {
    Ok(demo::Settings {
        redis_url: settings.optional("redis_url", RedisUrl::parse)?,
        seconds: settings.optional("seconds", parse::seconds(1, DAY_MS / 1_000))?,
    })
}

fn log(settings: &Resolved, warnings: &mut Vec<String>) -> Result<telemetry::Settings, SettingsError> {
    let words = [("text", telemetry::Format::Text), ("json", telemetry::Format::Json)];
    let format = settings.required("log_format", parse::one_of(&words))?;
    let mut filter = settings.optional("log", telemetry::check_filter)?;
    if let (false, Some(text)) = (settings.given("log"), settings.variable(RUST_LOG).filter(|text| !text.is_empty())) {
        match telemetry::check_filter(text) {
            Ok(text) => filter = Some(text),
            Err(reason) => warnings.push(format!("environment variable {RUST_LOG}: {text:?} {reason}; it is ignored")),
        }
    }
    Ok(telemetry::Settings { filter, format })
}

#[cfg(test)]
mod tests;
