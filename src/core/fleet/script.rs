//! One run of an operation: time, statistics, and how it ends (`lua/include/run.lua`, `prologue.lua`, `epoch.lua`).

use super::gate::{Late, Registry};
use super::shard::{Key, Shard, WorkerKey, WrongType};
use super::stats::Stats;
use super::zset::double;
use crate::core::thresholds::{Config, Field};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const HEAL_MS: i64 = 4_000;
pub(super) const GRACE_MS: i64 = 4_000;
pub(super) const FRONTEND_TTL_MS: i64 = 10_000;
const GAP_MS: i64 = 2_500;
const WORKER_TTL_MS: i64 = 5_000;
const SKIP_MS: i64 = 1_000;

/// Why an operation ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The state contradicts itself: a new epoch is to begin.
    Broken(String),
    /// A key holds something else.
    WrongType,
    /// A new epoch has begun; so long it heals, in milliseconds.
    Epoch(u64),
}

impl From<WrongType> for Stop {
    fn from(_: WrongType) -> Self {
        Self::WrongType
    }
}

pub(super) type Step<T> = Result<T, Stop>;

pub(super) fn broken<T>(why: impl Into<String>) -> Step<T> {
    Err(Stop::Broken(why.into()))
}

/// What a new epoch needs to know of the caller.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    /// It remembers an earlier epoch, so others may hold leases too: decisions wait.
    pub(super) mem: bool,
    /// The highest revision it has seen.
    pub(super) seen: u64,
    /// For the name of the epoch.
    pub(super) nonce: String,
}

/// The configuration in force: texts and values.
#[derive(Debug, Clone, Default)]
pub(super) struct InForce {
    pub(super) texts: BTreeMap<Field, String>,
    pub(super) config: Config,
}

/// The keys that an operation names beside those of every operation.
#[derive(Debug, Clone, Default)]
pub(super) struct Further {
    pub(super) workers: Vec<String>,
    pub(super) leases: Vec<String>,
}

/// One run of an operation.
#[derive(Debug)]
pub(super) struct Script<'a> {
    pub(super) d: &'a mut Shard,
    pub(super) now: i64,
    pub(super) s: Stats,
    pub(super) stored: Stats,
    pub(super) origin: Origin,
    pub(super) in_force: Option<InForce>,
    /// Workers whose count moved and that are to be placed.
    pub(super) touched: BTreeSet<String>,
    /// What was written of that which a script writes at its end only.
    pub(super) late: BTreeSet<Late>,
}

impl<'a> Script<'a> {
    /// Runs `main`. State that contradicts itself ends in a new epoch from wherever it is found: then the answer is for
    /// how long that epoch heals, in milliseconds.
    pub(super) fn run<T>(
        d: &'a mut Shard,
        now_ms: u64,
        origin: Origin,
        further: &Further,
        main: impl FnOnce(&mut Self) -> Step<T>,
    ) -> Result<T, u64> {
        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let (s, stored) = (Stats::default(), Stats::default());
        let mut script =
            Self { d, now, s, stored, origin, in_force: None, touched: BTreeSet::new(), late: BTreeSet::new() };
        script.expire_hashes();
        let done = main(&mut script);
        let done = match done {
            Ok(reply) => script.flush().and_then(|()| script.save_stats(false)).map(|()| reply),
            Err(Stop::Epoch(healing_ms)) => return Err(healing_ms),
            Err(stop) => Err(stop),
        };
        let why = match done {
            Ok(reply) => return Ok(reply),
            Err(Stop::Broken(why)) => why,
            Err(Stop::WrongType | Stop::Epoch(_)) => "wrong type".to_owned(),
        };
        script.drop_wrong_types(further);
        if why == "wrong type" {
            let _ = script.load_stats();
        }
        // All keys are of their types now.
        Err(script.new_epoch(&why).unwrap_or(0))
    }

    /// `PEXPIRE` of `P:worker:<id>`.
    fn expire_hashes(&mut self) {
        let now = self.now;
        self.d.worker.retain(|_, key| key.expires_ms.is_none_or(|t| now < t));
    }

    /// What a script writes at its end only.
    fn flush(&self) -> Step<()> {
        let d = &self.d;
        let wrong = |what: &Late| match what {
            Late::Gate => d.gate.is_wrong(),
            Late::Inflight => d.inflight.is_wrong(),
            Late::Reserved => d.reserved.is_wrong(),
            Late::Route => d.route.is_wrong(),
            Late::Eligible => d.eligible.is_wrong(),
        };
        if self.late.iter().any(wrong) { Err(Stop::WrongType) } else { Ok(()) }
    }

    /// Drops what is not of its type (somebody wrote over it). `P:config` is the operator's: it is never touched.
    fn drop_wrong_types(&mut self, further: &Further) {
        fn mend<T: Default>(key: &mut Key<T>) {
            if key.is_wrong() {
                key.clear();
            }
        }
        let d = &mut *self.d;
        for key in
            [&mut d.applied, &mut d.gate, &mut d.inflight, &mut d.reserved, &mut d.route, &mut d.seq, &mut d.stats]
        {
            mend(key);
        }
        for key in [&mut d.workers, &mut d.eligible, &mut d.skips, &mut d.due, &mut d.frontends] {
            mend(key);
        }
        for key in [&mut d.history, &mut d.load, &mut d.transitions] {
            mend(key);
        }
        mend(&mut d.busy);
        for w in &further.workers {
            d.worker.get_mut(w).into_iter().for_each(|key| mend(&mut key.hash));
        }
        for f in &further.leases {
            d.leases.get_mut(f).into_iter().for_each(mend);
        }
    }

    /// Every operation's first act. Redis was away, or its clock went back: nobody is judged by that time. For 4 s
    /// nobody is reaped and nothing goes stale, and no stored time lies further ahead than it could.
    /// `hears`: the call is a sign that the fleet is alive.
    pub(super) fn prologue(&mut self, hears: bool) -> Step<()> {
        if !self.load_stats()? {
            return Err(Stop::Epoch(self.new_epoch("no stats")?));
        }
        let now = self.now;
        let heard = self.s.heard;
        let gap = match (heard, self.s.grace_until) {
            (Some(heard), Some(_)) => now - heard > GAP_MS || now < heard,
            _ => true,
        };
        if gap {
            self.clamp()?;
            let healing = self.s.healing_until.unwrap_or(0);
            self.s.healing_until = Some(match heard {
                None => healing.min(now + HEAL_MS),
                // Healing begins anew if it was not over when anybody was last heard.
                Some(heard) if heard < healing => now + HEAL_MS,
                Some(_) => 0,
            });
            self.s.grace_until = Some(now + GRACE_MS);
            self.s.away_ms = (now - heard.unwrap_or(now)).max(0);
        }
        self.s.healing_until = Some(self.s.healing_until.unwrap_or(0));
        self.s.born = Some(self.s.born.unwrap_or(now));
        if gap || hears {
            self.s.heard = Some(now);
        }
        Ok(())
    }

    fn clamp(&mut self) -> Step<()> {
        let now = self.now;
        self.d.workers.write()?.no_later(now + WORKER_TTL_MS);
        self.d.frontends.write()?.no_later(now + FRONTEND_TTL_MS);
        self.d.skips.write()?.no_later(now + SKIP_MS);
        self.d.due.write()?.no_later(now);
        self.s.born = Some(self.s.born.unwrap_or(now).min(now));
        Ok(())
    }

    /// Starts a new epoch: "as after FLUSHALL". All that can be said again by those who know it is dropped; what is
    /// kept are the operator's configuration, the workers' own hashes, the frontends and their lease hashes (a hash
    /// counts only if its `P:seq` field names the current epoch). Returns for how long it heals, in milliseconds.
    pub(super) fn new_epoch(&mut self, why: &str) -> Step<u64> {
        let now = self.now;
        let seen = i64::try_from(self.origin.seen).unwrap_or(i64::MAX - 1);
        let revision = (now * 1_000).max(self.s.revision.unwrap_or(0) + 1).max(seen + 1);
        for key in [&mut self.d.workers, &mut self.d.eligible, &mut self.d.skips, &mut self.d.due] {
            key.clear();
        }
        for key in [&mut self.d.gate, &mut self.d.inflight, &mut self.d.reserved, &mut self.d.route] {
            key.clear();
        }
        self.d.busy.clear();
        self.s.epoch = Some(format!("{now}-{}", self.origin.nonce));
        self.s.revision = Some(revision);
        self.s.born = Some(now);
        self.s.heard = Some(now);
        self.s.healing_until = Some(if self.origin.mem { now + HEAL_MS } else { 0 });
        self.s.grace_until = Some(now + GRACE_MS);
        self.s.away_ms = 0;
        self.s.inflight_total = Some(0);
        self.s.live = Some(0);
        self.s.live_busy = Some(0);
        self.s.fleet_version += 1;
        self.save_stats(true)?;
        self.match_registries()?;
        self.transition("epoch", &self.epoch(), why);
        Ok(if self.origin.mem { super::stats::unsigned(HEAL_MS) } else { 0 })
    }

    /// Exactly the same members in `P:frontends` and `P:seq`, so that a lost half cannot fire again.
    fn match_registries(&mut self) -> Step<()> {
        let alive = double(self.now + FRONTEND_TTL_MS);
        let named: Vec<String> = self.d.seq.read()?.keys().cloned().collect();
        for f in named {
            if self.d.frontends.read()?.score(&f).is_none() {
                self.d.frontends.write()?.insert(&f, alive);
            }
        }
        let known: Vec<(String, f64)> = self.d.frontends.read()?.iter().map(|(f, t)| (f.to_owned(), t)).collect();
        for (f, t) in known {
            if self.registered(&f)?.is_none() {
                self.d.seq.write()?.insert(f.clone(), Registry::none().to_string());
            }
            if t > alive || t < 0.0 {
                self.d.frontends.write()?.insert(&f, alive);
            }
        }
        Ok(())
    }

    /// One line of what happened.
    pub(super) fn transition(&mut self, kind: &str, who: &str, why: &str) {
        let revision = self.revision().to_string();
        let entry = [("kind", kind), ("who", who), ("why", why), ("revision", &revision)];
        let entry = entry.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        self.d.transitions.append(self.now, 10_000, entry);
    }

    /// The configuration in force, read once.
    pub(super) fn in_force(&mut self) -> Step<&InForce> {
        if self.in_force.is_none() {
            let applied = self.d.applied.read()?;
            let texts: BTreeMap<Field, String> =
                Field::ALL.into_iter().filter_map(|f| Some((f, applied.get(f.name())?.clone()))).collect();
            let config = Config::of(texts.iter().map(|(f, t)| (f.name(), t.as_str())));
            self.in_force = Some(InForce { texts, config });
        }
        Ok(self.in_force.get_or_insert_default())
    }

    pub(super) fn config(&mut self) -> Step<Config> {
        Ok(self.in_force()?.config)
    }

    /// `P:worker:<id>`, for writing; made if it is missing.
    pub(super) fn worker_key(&mut self, w: &str) -> &mut WorkerKey {
        self.d.worker.entry(w.to_owned()).or_default()
    }
}

/// Cuts a text at 200 bytes, as Lua does: in bytes. What is no whole character behind the cut is dropped.
pub(super) fn cut(text: &str) -> String {
    let end = (0..=text.len().min(200)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}
