//! Who is the primary, according to the Sentinels.

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisConnectionInfo, Value};

use super::Connector;
use crate::config::redis_url::Node;
use crate::store::error::{CallError, ServerError};

/// Asks all Sentinels at once and takes the first answer whose node says itself that it is the primary: one that
/// has just been demoted, or a Sentinel that has not heard of it yet, is not believed.
pub(super) async fn primary(c: &Connector, sentinels: &[Node], service: &str) -> Result<Node, CallError> {
    let mut asked: FuturesUnordered<_> = sentinels.iter().map(|s| ask(c, s, service)).collect();
    let mut last = CallError::NotSent(format!("no Sentinel knows {service:?}"));
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(node) => return Ok(node),
            Err(e) => last = e,
        }
    }
    Err(not_sent(last))
}

async fn ask(c: &Connector, sentinel: &Node, service: &str) -> Result<Node, CallError> {
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(service);
    // Most Sentinels have no password, and refuse one they did not ask for.
    let plain = RedisConnectionInfo::default().set_skip_set_lib_name();
    let answer = match c.ask(sentinel, plain, &command).await {
        Err(CallError::Rejected { kind: ServerError::Auth, .. }) => {
            c.ask(sentinel, c.login().set_db(0), &command).await?
        }
        answer => answer?,
    };
    let node =
        address(answer).ok_or_else(|| CallError::NotSent(format!("Sentinel {sentinel} knows no {service:?}")))?;
    let role = c.ask(&node, c.login().set_db(0), &redis::cmd("ROLE")).await?;
    match role {
        Value::Array(parts) if matches!(parts.first(), Some(Value::BulkString(r)) if r == b"master") => Ok(node),
        _ => Err(CallError::NotSent(format!("Sentinel {sentinel} names {node}, which is not a primary"))),
    }
}

fn address(value: Value) -> Option<Node> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter().map(|part| redis::from_redis_value::<String>(part).ok());
    let host = parts.next()??;
    let port = parts.next()??.parse().ok()?;
    Some(Node { host, port })
}

/// Nothing of the call itself has been sent yet.
pub(super) fn not_sent(error: CallError) -> CallError {
    match error {
        CallError::NotSent(_) => error,
        CallError::Unknown(e) | CallError::Rejected { message: e, .. } => CallError::NotSent(e),
    }
}
