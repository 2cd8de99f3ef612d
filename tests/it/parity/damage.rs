//! Harm to the state, done to both parties alike.

use std::collections::BTreeSet;

use tidegate::core::fleet::shard::{Held, Key};
use tidegate::keys::SHARD;

use super::fleet::Parties;
use super::real::kind_of;
use super::steps::Damage;

/// Texts that fields are overwritten with.
const TEXTS: [&str; 10] = ["-5", "0", "7", "abc", "", "1.5", "x|y|z", "none|0|0", "99999999999999999999", "1e3"];
/// Scores that members are overwritten with, as distances from now.
const SCORES: [i64; 6] = [-60_000, -1, 0, 1, 3_000, 90_000_000];

impl Parties<'_> {
    pub(super) fn damage(&mut self, damage: &Damage) -> Result<(), String> {
        let dump = self.model.dump();
        let names: Vec<String> = dump.keys().cloned().collect();
        let pick = |k: u8| names.get(usize::from(k) % names.len().max(1)).cloned();
        match *damage {
            Damage::Del(k) => {
                let Some(name) = pick(k) else { return Ok(()) };
                self.say(format_args!("DEL {name}"));
                self.real.command(&["DEL", &self.real.key(&name)]);
                self.clear(&name);
            }
            Damage::Spoil(k) => {
                let all: Vec<String> = SHARD.iter().map(|s| (*s).to_owned()).chain(names).collect();
                let Some(name) = all.get(usize::from(k) % all.len()) else { return Ok(()) };
                self.say(format_args!("SET {name} spoilt"));
                self.real.command(&["SET", &self.real.key(name), "spoilt"]);
                self.spoil(name);
            }
            Damage::Remove(k, i) => {
                let Some(name) = pick(k) else { return Ok(()) };
                let Some(which) = member(&dump[&name], i) else { return Ok(()) };
                self.say(format_args!("remove {which} from {name}"));
                let command = match kind_of(&name) {
                    "hash" => "HDEL",
                    "zset" => "ZREM",
                    "set" => "SREM",
                    _ => return Ok(()),
                };
                self.real.command(&[command, &self.real.key(&name), &which]);
                self.remove(&name, &which);
            }
            Damage::Write(k, i, v) => {
                let Some(name) = pick(k) else { return Ok(()) };
                let Some(which) = member(&dump[&name], i) else { return Ok(()) };
                let key = self.real.key(&name);
                match kind_of(&name) {
                    "hash" => {
                        let text = TEXTS[usize::from(v) % TEXTS.len()];
                        self.say(format_args!("HSET {name} {which} {text:?}"));
                        self.real.command(&["HSET", &key, &which, text]);
                        self.hash(&name, |hash| drop(hash.insert(which.clone(), text.to_owned())));
                    }
                    "zset" => {
                        let at = self.now.saturating_add_signed(SCORES[usize::from(v) % SCORES.len()]);
                        self.say(format_args!("ZADD {name} {at} {which}"));
                        self.real.command(&["ZADD", &key, &at.to_string(), &which]);
                        self.zset(&name, |zset| zset.insert(&which, at as f64));
                    }
                    _ => {}
                }
            }
        }
        self.same_state()
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

    fn remove(&mut self, name: &str, which: &str) {
        match kind_of(name) {
            "hash" => self.hash(name, |hash| drop(hash.remove(which))),
            "zset" => self.zset(name, |zset| zset.remove(which)),
            _ => drop(self.model.shard.busy.write().expect("a set").remove(which)),
        }
    }

    fn clear(&mut self, name: &str) {
        self.change(name, |key| key.clear());
    }

    fn spoil(&mut self, name: &str) {
        self.change(name, |key| key.spoil());
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
