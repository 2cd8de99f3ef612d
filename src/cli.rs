//! The command line (design section 8). What the user typed is text here; [`crate::config`] puts it on top of the other
//! layers, and [`resolve`] turns the result into the typed settings of each command: the one place that interprets it.

pub mod flags;
pub mod help;
pub mod resolve;

use clap::{Parser, Subcommand};

/// Everything that can stand on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    about = "Request admission for LLM inference fleets: many stateless frontends, one shared state in Redis, one answer.",
    after_help = help::AFTER,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub global: flags::Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// HTTP frontend: admits, proxies, refuses. Run as many as you like behind a load balancer
    Frontend(Box<flags::Frontend>),
    /// Sidecar beside one engine: registers it, reports its load, enforces its limits, forwards requests
    Worker(Box<flags::Worker>),
    /// OpenAI-compatible engine without a GPU: KV blocks, prefill and decode timing, vLLM-style /metrics
    MockEngine(flags::MockEngine),
    /// A whole fleet in one command: Redis, 2 frontends, 3 workers, a load that rises past capacity and falls
    Demo(flags::Demo),
    /// Models, workers, why each is busy, counters, thresholds in force
    Status(flags::Status),
    /// Read and change thresholds and routing fields of a model
    Thresholds(flags::Thresholds),
    /// Print the built-in settings: every key of a settings file, with its default
    Defaults,
    /// Check the shared state against its invariants; exit code 1 if one is broken
    Doctor(flags::Doctor),
}

impl Command {
    /// Its section of a settings file.
    #[must_use]
    pub fn section(&self) -> &'static str {
        match self {
            Self::Frontend(_) => "frontend",
            Self::Worker(_) => "worker",
            Self::MockEngine(_) => "mock_engine",
            Self::Demo(_) => "demo",
            Self::Status(_) => "status",
            Self::Thresholds(_) => "thresholds",
            Self::Doctor(_) => "doctor",
            Self::Defaults => "defaults",
        }
    }
}
