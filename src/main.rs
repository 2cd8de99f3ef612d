//! The `tidegate` binary: reads the settings, sets up log and runtime, runs one command.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::FromArgMatches;

use tidegate::cli::resolve::{Job, Operator, Plan, Server, plan};
use tidegate::cli::{Cli, help};
use tidegate::config::redis::RedisSettings;
use tidegate::shutdown::{Shutdown, interrupted};
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
        if let Some(line) = help::unknown_flag(&shown, std::env::args_os().filter_map(|word| word.into_string().ok())) {
            let _closed = writeln!(io::stderr(), "{line}");
        }
        ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(REFUSED))
    })?;
    plan(&cli, std::env::vars_os().collect()).map_err(|refused| complain(&refused.to_string(), REFUSED))
}

fn complain(message: &str, code: u8) -> ExitCode {
    let _closed = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(code)
}

async fn run(job: Job) -> anyhow::Result<ExitCode> {
    match job {
        Job::Serve(server) => serve(server).await,
        Job::Print(text) => {
            // A reader that has gone is no error.
            let _closed = io::stdout().write_all(text.as_bytes());
            Ok(ExitCode::SUCCESS)
        }
        Job::Operate(operator, redis) => tokio::select! {
            done = operate(operator, store(redis)) => done,
            // How `status --watch` ends.
            signal = interrupted() => signal.context("cannot listen for signals").map(|()| ExitCode::SUCCESS),
        },
    }
}

async fn serve(server: Server) -> anyhow::Result<ExitCode> {
    let Shutdown { drain, now } = Shutdown::on_signals().context("cannot listen for signals")?;
    let work = async {
        match server {
            Server::Frontend(settings, redis) => frontend::run(*settings, told(redis), drain).await?,
            Server::Worker(settings, redis) => worker::run(*settings, told(redis), drain).await?,
            Server::MockEngine(settings) => mock_engine::run(settings, drain).await?,
            Server::Demo(settings) => demo::run(settings, drain, &mut io::stdout()).await?,
        }
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        done = work => done,
        () = now.cancelled() => Ok(ExitCode::FAILURE),
    }
}

async fn operate(operator: Operator, store: Store) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout();
    let sound = match operator {
        Operator::Status(settings) => ops::status::run(settings, &store, out).await.map(|()| true),
        Operator::Thresholds(settings) => ops::thresholds::run(settings, &store, out).await.map(|()| true),
        Operator::Doctor(settings) => ops::doctor::run(settings, &store, out).await,
    };
    match sound {
        Ok(false) => Ok(ExitCode::FAILURE),
        // A reader that has gone (`tidegate status | head`) is no error.
        Err(why) if !why.is_closed_pipe() => Err(why.into()),
        Ok(true) | Err(_) => Ok(ExitCode::SUCCESS),
    }
}

/// As [`store`], and says so in the log. Nothing is connected yet: a Redis that is not there shows in `/ready`.
fn told(redis: RedisSettings) -> Store {
    tracing::info!("Redis is {}, with {} ms for a call", redis.url, redis.timeout.as_millis());
    store(redis)
}

fn store(redis: RedisSettings) -> Store {
    let RedisSettings { url, namespace, timeout, pool_size } = redis;
    Store::redis(url, namespace, timeout, pool_size)
}
