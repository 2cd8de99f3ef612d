//! Plain reads that operators need: no script, no write.

use redis::Value;
use tokio::time::Instant;

use super::{Backend, CallError, Store};
use crate::core::id::{ModelName, WorkerId};
use crate::keys::ModelKeys;

/// The journals of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// `P:config:history`.
    History,
    /// `P:transitions`.
    Transitions,
    /// `P:load`.
    Load,
}

impl Journal {
    /// The last part of its key.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::History => "config:history",
            Self::Transitions => "transitions",
            Self::Load => "load",
        }
    }
}

/// An entry of a [`Journal`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `<ms>-<n>`.
    pub id: String,
    /// Names and values, in order.
    pub fields: Vec<(String, String)>,
}

impl Store {
    /// All fields of `P:worker:<id>`; empty if there is no such worker.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn worker(&self, model: &ModelName, worker: &WorkerId) -> Result<Vec<(String, String)>, CallError> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.worker(model, worker)),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                let mut command = redis::cmd("HGETALL");
                command.arg(keys.worker(worker));
                read(redis.send(super::redis::slot_of(&keys), &command).await?)
            }
        }
    }

    /// All fields of one of the model's hashes, such as `config` or `seq`.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn hash(&self, model: &ModelName, name: &str) -> Result<Vec<(String, String)>, CallError> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.hash(model, name)),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                let mut command = redis::cmd("HGETALL");
                command.arg(keys.named(name));
                read(redis.send(super::redis::slot_of(&keys), &command).await?)
            }
        }
    }

    /// The newest entries of a journal, newest first.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn journal(&self, model: &ModelName, which: Journal, count: usize) -> Result<Vec<Record>, CallError> {
        match &self.backend {
            Backend::Memory(memory) => Ok(memory.journal(model, which, count)),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                let mut command = redis::cmd("XREVRANGE");
                command.arg(keys.named(which.name())).arg("+").arg("-").arg("COUNT").arg(count);
                let rows: Vec<(String, Vec<(String, String)>)> =
                    read(redis.send(super::redis::slot_of(&keys), &command).await?)?;
                Ok(rows.into_iter().map(|(id, fields)| Record { id, fields }).collect())
            }
        }
    }

    /// A read-only command on a model's keys, for checks that read state as it is.
    ///
    /// # Errors
    /// See [`CallError`]; the in-process store has no commands.
    pub async fn command(&self, model: &ModelName, command: &redis::Cmd) -> Result<Value, CallError> {
        match &self.backend {
            Backend::Memory(_) => Err(CallError::NotSent("the in-process store knows no Redis commands".into())),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                redis.send(super::redis::slot_of(&keys), command).await
            }
        }
    }

    /// Several read-only commands on a model's keys, answered as of one moment; `commands` must be `atomic()`.
    ///
    /// # Errors
    /// See [`Store::command`].
    pub async fn together(&self, model: &ModelName, commands: &redis::Pipeline) -> Result<Vec<Value>, CallError> {
        match &self.backend {
            Backend::Memory(_) => Err(CallError::NotSent("the in-process store knows no Redis commands".into())),
            Backend::Redis(redis) => {
                let keys = ModelKeys::new(&self.namespace, model);
                match redis.send(super::redis::slot_of(&keys), commands).await? {
                    Value::Array(answers) => Ok(answers),
                    other => Err(CallError::Unknown(format!("EXEC answered {other:?}"))),
                }
            }
        }
    }

    /// What an operator should change about the servers, one sentence each.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn warnings(&self) -> Result<Vec<String>, CallError> {
        let Backend::Redis(redis) = &self.backend else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for server in redis.connector().primaries().await? {
            let deadline = Instant::now() + redis.timeout();
            let info: String = read(redis.send_to(&server, &redis::cmd("INFO"), deadline).await?)?;
            all.extend(judge(&info).into_iter().map(|w| format!("{}: {w}", server.name)));
        }
        Ok(all)
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, CallError> {
    redis::from_redis_value(value).map_err(|e| CallError::rejected(format!("ERR {e}")))
}

/// Reads `INFO`.
fn judge(info: &str) -> Vec<String> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().split_once(':').filter(|(n, _)| *n == name)).map(|(_, v)| v)
    };
    let mut all = Vec::new();
    let major = |v: &str| v.split('.').next().and_then(|n| n.parse::<u32>().ok());
    if field("valkey_version").is_none()
        && let Some(version) = field("redis_version")
        && major(version).is_some_and(|n| n < 7)
    {
        all.push(format!("Redis {version} is too old; 7.0 or later is needed"));
    }
    if let Some(policy) = field("maxmemory_policy")
        && policy != "noeviction"
    {
        all.push(format!("maxmemory-policy is {policy}: state may be evicted; set it to noeviction"));
    }
    let replicas = field("connected_slaves").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    // The field is there only if min-replicas-to-write is set.
    if replicas > 0 && field("min_slaves_good_slaves").is_none() {
        all.push(format!(
            "{replicas} replicas, but min-replicas-to-write is 0: a primary that is cut off goes on taking writes that \
             a failover loses"
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn warnings_name_what_to_change() {
        let good = "redis_version:7.0.15\r\nmaxmemory_policy:noeviction\r\nconnected_slaves:0\r\n";
        assert_eq!(judge(good), Vec::<String>::new());
        let guarded =
            "redis_version:7.2.4\r\nvalkey_version:8.1.0\r\nconnected_slaves:2\r\nmin_slaves_good_slaves:2\r\n";
        assert_eq!(judge(guarded), Vec::<String>::new());
        let bad = "redis_version:6.2.1\r\nmaxmemory_policy:allkeys-lru\r\nconnected_slaves:1\r\n";
        let said = judge(bad).join("\n");
        assert!(said.contains("6.2.1") && said.contains("allkeys-lru") && said.contains("min-replicas"), "{said}");
    }
}
