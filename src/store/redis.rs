//! The Redis backend: pooled, bounded calls for all that is not a committer.

use std::time::Duration;

use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, Server, slot};
use super::error::{self, CallError, ServerError};
use crate::config::redis_url::RedisUrl;
use crate::keys::ModelKeys;
use crate::scripts::Invocation;

/// A Redis of any topology.
pub(super) struct Redis {
    connector: Connector,
    timeout: Duration,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").field("url", &self.connector.url().to_string()).finish_non_exhaustive()
    }
}

/// The slot of a model's keys.
pub(super) fn slot_of(keys: &ModelKeys) -> u16 {
    keys.shard().first().map_or(0, |key| slot(key))
}

/// A script call, by its text or by its hash.
pub(super) fn command(invocation: &Invocation, text: bool) -> Cmd {
    let Invocation { script, keys, args } = invocation;
    let mut command = redis::cmd(if text { "EVAL" } else { "EVALSHA" });
    command.arg(if text { &script.text } else { &script.sha }).arg(keys.len()).arg(keys).arg(args);
    command
}

impl Redis {
    pub(super) fn new(url: RedisUrl, timeout: Duration, pool_size: usize) -> Self {
        Self { connector: Connector::new(url, timeout, pool_size), timeout }
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Runs a script on a pooled connection: EVALSHA, then EVAL if the server does not know it.
    pub(super) async fn run(&self, slot: u16, invocation: &Invocation) -> Result<Value, CallError> {
        match self.send(slot, &command(invocation, false)).await {
            Err(CallError::Rejected { kind: ServerError::NoScript, .. }) => {
                self.send(slot, &command(invocation, true)).await
            }
            answer => answer,
        }
    }

    /// Sends a command, or several as one transaction, to the server of a slot.
    pub(super) async fn send<'a>(&self, slot: u16, request: impl Into<Request<'a>>) -> Result<Value, CallError> {
        let deadline = Instant::now() + self.timeout;
        let Ok(server) = timeout_at(deadline, self.connector.server(slot)).await else {
            self.connector.forget();
            return Err(CallError::NotSent(format!("{}: not found in time", self.connector.url())));
        };
        let server = server?;
        self.send_to(&server, request, deadline).await
    }

    /// Sends it to a server, within its breaker and its budget.
    pub(super) async fn send_to<'a>(
        &self,
        server: &Server,
        request: impl Into<Request<'a>>,
        deadline: Instant,
    ) -> Result<Value, CallError> {
        if !self.connector.allows(server) {
            return Err(CallError::NotSent(format!("{}: it did not answer lately", server.name)));
        }
        let outcome = bounded(server, &request.into(), deadline).await;
        self.connector.note(server, &outcome);
        outcome
    }
}

/// What is sent in one go and answered by one value.
pub(super) enum Request<'a> {
    /// A command.
    One(&'a Cmd),
    /// MULTI, these commands, EXEC; the answer is the list of theirs.
    Together(&'a Pipeline),
}

impl<'a> From<&'a Cmd> for Request<'a> {
    fn from(command: &'a Cmd) -> Self {
        Self::One(command)
    }
}

impl<'a> From<&'a Pipeline> for Request<'a> {
    fn from(commands: &'a Pipeline) -> Self {
        Self::Together(commands)
    }
}

impl Request<'_> {
    async fn ask(&self, conn: &mut deadpool_redis::Connection) -> RedisResult<Value> {
        match self {
            Self::One(command) => conn.send_packed_command(command).await,
            Self::Together(commands) => {
                let exec = commands.cmd_iter().count() + 1;
                let answers = conn.send_packed_commands(commands, exec, 1).await?;
                Ok(answers.into_iter().next().unwrap_or(Value::Nil))
            }
        }
    }
}

async fn bounded(server: &Server, request: &Request<'_>, deadline: Instant) -> Result<Value, CallError> {
    let late = || format!("{}: no answer in time", server.name);
    let conn = timeout_at(deadline, server.pooled()).await;
    let mut conn = conn.unwrap_or_else(|_| Err(CallError::NotSent(late())))?;
    let answer = match timeout_at(deadline, request.ask(&mut conn)).await {
        Ok(answer) => error::answered(answer),
        Err(_) => Err(CallError::Unknown(late())),
    };
    if answer.as_ref().is_err_and(CallError::is_of_the_node) {
        // Not back into the pool: the next user must not meet a late answer, or a node that is not primary.
        drop(deadpool_redis::Connection::take(conn));
    }
    answer
}
