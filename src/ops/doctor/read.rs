//! Reads a model's state for the checks, in pages; each page as of one moment.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Cmd, FromRedisValue, Pipeline, Value};

use crate::core::id::{FrontendId, ModelName, WorkerId};
use crate::core::invariants::{
    Books, Key, Owners, Shared, Violation, WorkerState, check_books, check_owners, check_worker,
};
use crate::core::stored::{Fields, Seq, number};
use crate::keys::{ModelKeys, SHARD};
use crate::ops::Error;
use crate::store::{CallError, Store};

/// Workers of a page, and most keys of one repair.
pub(super) const PAGE: usize = 256;

/// More leases than this are not read in one step, so not compared with the counters: it would hold up decisions.
const MOST_LEASES: u64 = 100_000;

/// How late a sweep may be: a heartbeat, its budget, and the sweep's own call.
const LAG_MS: u64 = 3_000;

/// How much there was to look at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) workers: usize,
    pub(super) frontends: usize,
    pub(super) leases: u64,
    pub(super) keys: usize,
}

impl Seen {
    /// What was too much.
    pub(super) fn left_out(&self) -> Option<String> {
        let many = self.leases > MOST_LEASES;
        many.then(|| format!("invariant 1, since {} leases are too many to be read in one step", self.leases))
    }
}

/// One look.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) seen: Seen,
    pub(super) violations: Vec<Violation>,
}

/// Looks at everything once.
pub(super) async fn look(store: &Store, model: &ModelName) -> Result<Look, Error> {
    let reader = Reader { store, model, keys: ModelKeys::new(store.namespace(), model) };
    match reader.look().await {
        Ok(look) => Ok(look),
        // The next script that meets it heals it; until then nothing else can be read.
        Err(CallError::Rejected { message, .. }) if message.starts_with("WRONGTYPE") => {
            let subject = String::new();
            let message = format!("a key is of another type than it should be: {message}");
            let wrong = Violation { invariant: 4, rule: "type of a key", subject, message };
            Ok(Look { seen: Seen { keys: 1, ..Seen::default() }, violations: vec![wrong] })
        }
        Err(why) => Err(Error::redis(store)(why)),
    }
}

struct Reader<'a> {
    store: &'a Store,
    model: &'a ModelName,
    keys: ModelKeys,
}

impl Reader<'_> {
    async fn look(&self) -> Result<Look, CallError> {
        let mut look = Look::default();
        let (shared, books, names) = self.books(&mut look).await?;
        look.seen.workers = books.gate.len();
        look.seen.frontends = books.seq.len();
        for page in names.workers.iter().cloned().collect::<Vec<_>>().chunks(PAGE) {
            self.page(page, shared.lag_ms, &mut look).await?;
        }
        let keys = self.all_keys().await?;
        look.seen.keys = keys.len();
        let owners = Owners {
            keys,
            shard: SHARD.iter().map(|name| (*name).to_owned()).collect(),
            workers: names.workers,
            frontends: names.frontends,
        };
        look.violations.extend(check_owners(&owners));
        Ok(look)
    }

    /// Several commands on the model's own keys, answered as of one moment, behind the time and the statistics.
    async fn together(&self, commands: Vec<Cmd>) -> Result<(Shared, Answers), CallError> {
        let mut pipeline = Pipeline::new();
        pipeline.atomic().add_command(redis::cmd("TIME"));
        for name in ["stats", "config:applied"] {
            pipeline.add_command(self.on("HGETALL", name));
        }
        for command in commands {
            pipeline.add_command(command);
        }
        let mut answers = Answers(self.store.together(self.model, &pipeline).await?.into_iter());
        let (seconds, micros): (u64, u64) = answers.next()?;
        let now_ms = seconds * 1_000 + micros / 1_000;
        let shared = Shared { now_ms, lag_ms: LAG_MS, stats: answers.next()?, applied: answers.next()? };
        Ok((shared, answers))
    }

    fn on(&self, command: &str, name: &str) -> Cmd {
        let mut cmd = redis::cmd(command);
        cmd.arg(self.keys.named(name));
        cmd
    }

    fn scores(&self, name: &str) -> Cmd {
        let mut cmd = self.on("ZRANGE", name);
        cmd.arg(0).arg(-1).arg("WITHSCORES");
        cmd
    }

    /// The counters with all leases, checked; and every name that the model's keys know.
    async fn books(&self, look: &mut Look) -> Result<(Shared, Books, Names), CallError> {
        let (_, mut answers) = self.together(vec![self.scores("frontends"), self.on("HGETALL", "seq")]).await?;
        let (alive, seq): (Vec<(String, String)>, Fields) = (answers.next()?, answers.next()?);
        let leases = seq.values().filter_map(|text| Seq::read(text)).map(|seq| seq.leases).sum();
        let holders: BTreeSet<String> = alive.into_iter().map(|(name, _)| name).chain(seq.into_keys()).collect();
        look.seen.leases = leases;
        let holders: Vec<FrontendId> = holders.iter().filter_map(|name| FrontendId::parse(name).ok()).collect();
        let countable = leases <= MOST_LEASES;

        let mut commands = vec![self.on("HGETALL", "gate"), self.on("HGETALL", "inflight"), self.scores("frontends")];
        commands.extend([self.on("HGETALL", "seq"), self.scores("workers"), self.scores("eligible")]);
        commands.push(self.on("SMEMBERS", "busy"));
        for holder in holders.iter().filter(|_| countable) {
            commands.push(redis::cmd("HGETALL"));
            if let Some(command) = commands.last_mut() {
                command.arg(self.keys.leases(holder));
            }
        }
        let (mut shared, mut answers) = self.together(commands).await?;
        let (gate, inflight): (Fields, Fields) = (answers.next()?, answers.next()?);
        let (frontends, seq): (Vec<(String, String)>, Fields) = (answers.next()?, answers.next()?);
        let members: [Vec<(String, String)>; 2] = [answers.next()?, answers.next()?];
        let busy: Vec<String> = answers.next()?;
        let mut held = BTreeMap::new();
        for holder in holders.iter().filter(|_| countable) {
            held.insert(holder.to_string(), answers.next()?);
        }
        let frontends: BTreeMap<String, u64> =
            frontends.into_iter().filter_map(|(name, score)| Some((name, number(&score)?))).collect();
        if !frontends.values().any(|until| *until >= shared.now_ms) {
            shared.lag_ms = Shared::NEVER;
        }
        let listed = members.into_iter().flatten().map(|(name, _)| name).chain(busy);
        let names = Names {
            workers: gate.keys().chain(inflight.keys()).cloned().chain(listed).collect(),
            frontends: frontends.keys().chain(seq.keys()).cloned().collect(),
        };
        let books = Books { gate, inflight, frontends, seq, leases: held };
        if countable {
            look.violations.extend(check_books(&shared, &books));
        }
        Ok((shared, books, names))
    }

    /// Checks a page of workers.
    async fn page(&self, names: &[String], lag_ms: u64, look: &mut Look) -> Result<(), CallError> {
        let of = |command: &str, name: &str| {
            let mut cmd = self.on(command, name);
            cmd.arg(names);
            cmd
        };
        let mut commands = vec![of("HMGET", "gate"), of("HMGET", "inflight"), of("ZMSCORE", "workers")];
        commands.extend([of("ZMSCORE", "skips"), of("SMISMEMBER", "busy"), of("ZMSCORE", "eligible")]);
        for name in names {
            let mut hash = redis::cmd("HGETALL");
            // A name that is none has no hash; a key must stand there all the same.
            hash.arg(WorkerId::parse(name).map_or_else(|_| self.keys.named("worker:"), |id| self.keys.worker(&id)));
            commands.push(hash);
        }
        let (mut shared, mut answers) = self.together(commands).await?;
        shared.lag_ms = lag_ms;
        let (gates, counts): (Vec<Option<String>>, Vec<Option<String>>) = (answers.next()?, answers.next()?);
        let (alive, skips): (Vec<Option<String>>, Vec<Option<String>>) = (answers.next()?, answers.next()?);
        let (busy, eligible): (Vec<bool>, Vec<Option<String>>) = (answers.next()?, answers.next()?);
        let time = |times: &[Option<String>], i: usize| times.get(i).cloned().flatten().and_then(|text| number(&text));
        for (i, name) in names.iter().enumerate() {
            let state = WorkerState {
                gate: gates.get(i).cloned().flatten(),
                inflight: counts.get(i).cloned().flatten(),
                alive_until: time(&alive, i),
                skipped_until: time(&skips, i),
                busy: busy.get(i).copied().unwrap_or(false),
                eligible: eligible.get(i).is_some_and(Option::is_some),
                hash: answers.next()?,
            };
            look.violations.extend(check_worker(&shared, name, &state));
        }
        Ok(())
    }

    /// Every key of the model.
    async fn all_keys(&self) -> Result<Vec<Key>, CallError> {
        let prefix = self.keys.named("");
        let pattern: String = escape(&prefix) + "*";
        let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let (next, keys): (String, Vec<String>) = read(self.store.command(self.model, &scan).await?)?;
            found.extend(keys);
            if next == "0" {
                break;
            }
            cursor = next;
        }
        let found: Vec<String> = found.into_iter().collect();
        let mut keys = Vec::new();
        for part in found.chunks(PAGE) {
            let mut pipeline = Pipeline::new();
            pipeline.atomic();
            for key in part {
                pipeline.cmd("PTTL").arg(key);
            }
            let ttls = self.store.together(self.model, &pipeline).await?;
            for (key, ttl) in part.iter().zip(ttls) {
                // -1: no TTL; -2: it has gone meanwhile.
                let has_ttl = read::<i64>(ttl)? != -1;
                keys.push(Key { name: key.strip_prefix(&prefix).unwrap_or(key).to_owned(), has_ttl });
            }
        }
        Ok(keys)
    }
}

/// The names that a model's keys know.
struct Names {
    workers: BTreeSet<String>,
    frontends: BTreeSet<String>,
}

/// Answers in the order of the commands.
struct Answers(std::vec::IntoIter<Value>);

impl Answers {
    fn next<T: FromRedisValue>(&mut self) -> Result<T, CallError> {
        read(self.0.next().unwrap_or(Value::Nil))
    }
}

fn read<T: FromRedisValue>(value: Value) -> Result<T, CallError> {
    if let Value::ServerError(error) = &value {
        let message = format!("{} {}", error.code(), error.details().unwrap_or(""));
        return Err(CallError::Rejected { kind: crate::store::ServerError::parse(&message), message });
    }
    redis::from_redis_value(value).map_err(|why| CallError::Unknown(why.to_string()))
}

/// As a pattern that matches itself only.
fn escape(text: &str) -> String {
    let special = |c: char| matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn patterns_match_themselves() {
        assert_eq!(escape(r"t:{a*[b]-?\}:"), r"t:{a\*\[b\]\-\?\\}:");
    }
}
