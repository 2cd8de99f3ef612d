//! What a call that was not carried out came to, and how a server's words are read.

use redis::{RedisError, Value};

/// Why there is no reply.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nobody knows whether it ran: time-out, or a connection that broke.
    #[error("outcome unknown: {0}")]
    Unknown(String),
    /// The server answered an error: not applied.
    #[error("refused by the server: {message}")]
    Rejected {
        /// Which kind.
        kind: ServerError,
        /// The server's words.
        message: String,
    },
    /// It was never sent: no connection, or the breaker is open.
    #[error("not sent: {0}")]
    NotSent(String),
}

/// Errors that a server answers, by what they ask of us (design section 3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerError {
    /// `READONLY`: not the primary any more; find the new one.
    ReadOnly,
    /// `MOVED`, `ASK`: the slot lives elsewhere, or is on its way there.
    Moved,
    /// `TRYAGAIN`, `CLUSTERDOWN`, `MASTERDOWN`, `LOADING`, `BUSY`, `NOREPLICAS`, max clients: passes by itself.
    State,
    /// `OOM`, `MISCONF`: no new state is taken.
    Memory,
    /// `NOAUTH`, `WRONGPASS`, `NOPERM`: an operator has to act.
    Auth,
    /// `NOSCRIPT`: the next call of this script on the connection carries its text.
    NoScript,
    /// Anything else a script or command answered.
    Other,
}

impl ServerError {
    /// Reads an error line, `CODE words`.
    #[must_use]
    pub fn parse(line: &str) -> Self {
        match line.split_ascii_whitespace().next().unwrap_or("") {
            "READONLY" => Self::ReadOnly,
            "MOVED" | "ASK" => Self::Moved,
            "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" | "BUSY" | "NOREPLICAS" => Self::State,
            "OOM" | "MISCONF" => Self::Memory,
            "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::Auth,
            "NOSCRIPT" => Self::NoScript,
            _ if line.contains("max number of clients") => Self::State,
            _ => Self::Other,
        }
    }

    /// It says something of the node, not of the call: counts towards its breaker.
    #[must_use]
    pub fn is_of_the_node(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Moved | Self::State)
    }
}

impl CallError {
    pub(super) fn rejected(message: String) -> Self {
        Self::Rejected { kind: ServerError::parse(&message), message }
    }

    /// Whether the node is in trouble, as far as this tells.
    #[must_use]
    pub fn is_of_the_node(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::NotSent(_) => true,
            Self::Rejected { kind, .. } => kind.is_of_the_node(),
        }
    }

    /// The error of a command that was handed to a connection.
    pub(super) fn of_command(error: &RedisError) -> Self {
        match server_words(error) {
            Some(words) => Self::rejected(words),
            None => Self::Unknown(error.to_string()),
        }
    }

    /// The error of a connection that was not made.
    pub(super) fn of_connect(node: &str, error: &RedisError) -> Self {
        Self::NotSent(format!("{node}: {error}"))
    }
}

/// A server's answer as it was sent, if it is one.
fn server_words(error: &RedisError) -> Option<String> {
    let code = error.code()?;
    Some(match error.detail() {
        Some(detail) => format!("{code} {detail}"),
        None => code.to_owned(),
    })
}

/// Error answers arrive as values too.
pub(super) fn answered(value: Result<Value, RedisError>) -> Result<Value, CallError> {
    match value {
        Ok(Value::ServerError(e)) => {
            Err(CallError::rejected(format!("{} {}", e.code(), e.details().unwrap_or("")).trim_end().to_owned()))
        }
        Ok(value) => Ok(value),
        Err(e) => Err(CallError::of_command(&e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_the_design_has_its_kind() {
        for (line, kind) in [
            ("READONLY You can't write against a read only replica.", ServerError::ReadOnly),
            ("MOVED 3999 127.0.0.1:6381", ServerError::Moved),
            ("ASK 3999 127.0.0.1:6381", ServerError::Moved),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ServerError::State),
            ("CLUSTERDOWN Hash slot not served", ServerError::State),
            ("MASTERDOWN Link with MASTER is down", ServerError::State),
            ("LOADING Redis is loading the dataset in memory", ServerError::State),
            ("BUSY Redis is busy running a script.", ServerError::State),
            ("NOREPLICAS Not enough good replicas to write.", ServerError::State),
            ("ERR max number of clients reached", ServerError::State),
            ("OOM command not allowed when used memory > 'maxmemory'.", ServerError::Memory),
            ("NOPERM this user has no permissions", ServerError::Auth),
            ("NOAUTH Authentication required.", ServerError::Auth),
            ("WRONGPASS invalid username-password pair", ServerError::Auth),
            ("NOSCRIPT No matching script.", ServerError::NoScript),
            ("WRONGTYPE Operation against a key", ServerError::Other),
            ("ERR user_script:1: boom", ServerError::Other),
            ("", ServerError::Other),
        ] {
            assert_eq!(ServerError::parse(line), kind, "{line}");
        }
    }
}
