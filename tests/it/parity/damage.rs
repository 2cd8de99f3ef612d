//! Harm to the state, done to both parties alike.

use std::collections::BTreeSet;

use tidegate::core::fleet::shard::{Held, Key};
use tidegate::keys::SHARD;

use super::both::Both;
use super::real::kind_of;
use super::steps::Damage;

/// Texts that fields are overwritten with.
const TEXTS: [&str; 10] = ["-5", "0", "7", "abc", "", "1.5", "x|y|z", "none|0|0", "99999999999999999999", "1e3"];
/// Scores that members are overwritten with, as distances from now.
const SCORES: [i64; 6] = [-60_000, -1, 0, 1, 3_000, 90_000_000];

impl Both<'_> {
    /// Does harm; says what was done.
    pub(crate) fn damage(&mut self, damage: &Damage, now_ms: u64) -> Option<String> {
        let dump = self.model.dump();
        let names: Vec<&String> = dump.keys().collect();
        let pick = |k: u8| names.get(usize::from(k) % names.len().max(1)).map(|name| (*name).clone());
        match *damage {
            Damage::Del(k) => Some(self.delete(&pick(k)?)),
            Damage::Spoil(k) => {
                let all: Vec<&str> = SHARD.into_iter().chain(names.iter().map(|name| name.as_str())).collect();
                let name = (*all.get(usize::from(k) % all.len())?).to_owned();
                self.on_redis(&["SET"], &name, &["spoilt"]);
                self.change(&name, |key| key.spoil());
                Some(format!("SET {name} spoilt"))
            }
            Damage::Remove(k, i) => {
                let name = pick(k)?;
                let which = member(&dump[&name], i)?;
                self.remove(&name, &which);
                Some(format!("remove {which} from {name}"))
            }
            Damage::Write(k, i, v) => {
                let name = pick(k)?;
                let which = member(&dump[&name], i)?;
                match kind_of(&name) {
                    "hash" => {
                        let text = TEXTS[usize::from(v) % TEXTS.len()];
                        self.on_redis(&["HSET"], &name, &[&which, text]);
                        self.hash(&name, |hash| drop(hash.insert(which.clone(), text.to_owned())));
                        Some(format!("HSET {name} {which} {text:?}"))
                    }
                    "zset" => {
                        let at = now_ms.saturating_add_signed(SCORES[usize::from(v) % SCORES.len()]);
                        self.on_redis(&["ZADD"], &name, &[&at.to_string(), &which]);
                        self.zset(&name, |zset| zset.insert(&which, at as f64));
                        Some(format!("ZADD {name} {at} {which}"))
                    }
                    _ => None,
                }
            }
        }
    }

    /// `DEL` of a key by its name behind `P:`.
    pub(crate) fn delete(&mut self, name: &str) -> String {
        self.on_redis(&["DEL"], name, &[]);
        self.change(name, |key| key.clear());
        format!("DEL {name}")
    }

    /// A field or member goes.
    pub(crate) fn remove(&mut self, name: &str, which: &str) {
        let command = match kind_of(name) {
            "hash" => "HDEL",
            "zset" => "ZREM",
            _ => "SREM",
        };
        self.on_redis(&[command], name, &[which]);
        match kind_of(name) {
            "hash" => self.hash(name, |hash| drop(hash.remove(which))),
            "zset" => self.zset(name, |zset| zset.remove(which)),
            _ => drop(self.model.shard.busy.write().expect("a set").remove(which)),
        }
    }

    /// `HSET` or `HDEL` of a field of `P:config`, if that is a hash.
    pub(crate) fn configure_by_hand(&mut self, field: &str, value: Option<&str>) {
        let Ok(config) = self.model.shard.config.write() else { return };
        match value {
            Some(value) => {
                config.insert(field.to_owned(), value.to_owned());
                self.on_redis(&["HSET"], "config", &[field, value]);
            }
            None => {
                config.remove(field);
                self.on_redis(&["HDEL"], "config", &[field]);
            }
        }
    }

    fn on_redis(&self, command: &[&str], name: &str, rest: &[&str]) {
        if let Some(real) = &self.real {
            let key = real.key(name);
            let words: Vec<&str> = command.iter().copied().chain([key.as_str()]).chain(rest.iter().copied()).collect();
            real.command(&words);
        }
    }

    fn hash(&mut self, name: &str, change: impl FnOnce(&mut tidegate::core::fleet::shard::Hash)) {
        let key = self.hash_key(name);
        change(key.write().expect("a hash"));
    }

    fn hash_key(&mut self, name: &str) -> &mut Key<tidegate::core::fleet::shard::Hash> {
        let d = &mut self.model.shard;
        match name {
            "config" => &mut d.config,
            "config:applied" => &mut d.applied,
            "gate" => &mut d.gate,
            "inflight" => &mut d.inflight,
            "reserved" => &mut d.reserved,
            "route" => &mut d.route,
            "seq" => &mut d.seq,
            "stats" => &mut d.stats,
            _ => match name.split_once(':') {
                Some(("worker", w)) => &mut d.worker.entry(w.to_owned()).or_default().hash,
                Some(("leases", f)) => d.leases.entry(f.to_owned()).or_default(),
                _ => panic!("no hash {name}"),
            },
        }
    }

    fn zset(&mut self, name: &str, change: impl FnOnce(&mut tidegate::core::fleet::zset::Zset)) {
        let d = &mut self.model.shard;
        let key = match name {
            "workers" => &mut d.workers,
            "eligible" => &mut d.eligible,
            "skips" => &mut d.skips,
            "due" => &mut d.due,
            "frontends" => &mut d.frontends,
            _ => panic!("no sorted set {name}"),
        };
        change(key.write().expect("a sorted set"));
    }

    fn change(&mut self, name: &str, change: impl FnOnce(&mut dyn AnyKey)) {
        let d = &mut self.model.shard;
        match name {
            "workers" => change(&mut d.workers),
            "eligible" => change(&mut d.eligible),
            "skips" => change(&mut d.skips),
            "due" => change(&mut d.due),
            "frontends" => change(&mut d.frontends),
            "busy" => change(&mut d.busy),
            "config:history" => change(&mut d.history),
            "load" => change(&mut d.load),
            "transitions" => change(&mut d.transitions),
            _ => change(self.hash_key(name)),
        }
    }
}

/// A key of any type.
trait AnyKey {
    fn clear(&mut self);
    fn spoil(&mut self);
}

impl<T: Default> AnyKey for Key<T> {
    fn clear(&mut self) {
        Self::clear(self);
    }

    fn spoil(&mut self) {
        Self::spoil(self);
    }
}

/// The `i`th field or member, round and round.
fn member(held: &Held, i: u8) -> Option<String> {
    let all: BTreeSet<&String> = match held {
        Held::Hash(hash) => hash.keys().collect(),
        Held::Zset(scores) => scores.keys().collect(),
        Held::Set(members) => members.iter().collect(),
        Held::Stream(_) | Held::Other => return None,
    };
    let n = usize::from(i) % all.len().max(1);
    all.into_iter().nth(n).cloned()
}
