//! The `tidegate` binary: reads the settings, sets up log and runtime, runs one command.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;

use tidegate::cli::resolve::{Job, Plan, plan};
use tidegate::cli::{Cli, help};
use tidegate::config::redis::RedisSettings;
use tidegate::shutdown::Shutdown;
use tidegate::store::Store;
use tidegate::{demo, frontend, mock_engine, ops, telemetry, worker};

/// Settings that are refused end the process with this code, before a port opens.
const REFUSED: u8 = 2;

fn main() -> ExitCode {
    let plan = match read() {
        Ok(plan) => plan,
        Err(code) => return code,
    };
    telemetry::init(&plan.log);
    for line in &plan.notes.warnings {
        tracing::warn!("{line}");
    }
    for line in &plan.notes.infos {
        tracing::info!("{line}");
    }
    let done = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime");
    match done.and_then(|runtime| runtime.block_on(run(plan.job))) {
        Ok(code) => code,
        Err(why) => complain(&format!("{why:#}"), 1),
    }
}

/// The settings of this process, or the code with which it ends.
fn read() -> Result<Plan, ExitCode> {
    let matches = help::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = matches.map_err(|shown| {
        // Help and version go to standard output; a reader that has gone is no concern.
        let _closed = shown.print();
        ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(REFUSED))
    })?;
    plan(&cli, std::env::vars_os().collect()).map_err(|refused| complain(&refused.to_string(), REFUSED))
}

fn complain(message: &str, code: u8) -> ExitCode {
    let _closed = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(code)
}

async fn run(job: Job) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let Shutdown { drain, now } = shutdown;
    let work = async {
        match job {
            Job::Frontend(settings, redis) => frontend::run(*settings, store(redis), drain).await?,
            Job::Worker(settings, redis) => worker::run(*settings, store(redis), drain).await?,
            Job::MockEngine(settings) => mock_engine::run(settings, drain).await?,
            Job::Demo(settings) => demo::run(settings, drain, &mut io::stdout()).await?,
            Job::Status(settings, redis) => {
                quiet(ops::status::run(settings, &store(redis), &mut io::stdout(), drain).await)?;
            }
            Job::Thresholds(settings, redis) => {
                quiet(ops::thresholds::run(settings, &store(redis), &mut io::stdout()).await)?;
            }
            Job::Doctor(settings, redis) => {
                let sound = ops::doctor::run(settings, &store(redis), &mut io::stdout()).await;
                return Ok(if quiet(sound)?.unwrap_or(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        done = work => done,
        () = now.cancelled() => Ok(ExitCode::FAILURE),
    }
}

/// A reader that has gone (`tidegate status | head`) is no error.
fn quiet<T>(done: Result<T, ops::Error>) -> Result<Option<T>, ops::Error> {
    match done {
        Err(why) if why.is_closed_pipe() => Ok(None),
        done => done.map(Some),
    }
}

fn store(redis: RedisSettings) -> Store {
    let RedisSettings { url, namespace, timeout, pool_size } = redis;
    Store::redis(url, namespace, timeout, pool_size)
}
