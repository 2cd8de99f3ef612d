//! `P:gate`, `P:inflight` and `P:seq`: how their texts are read, and what follows from a change of a gate
//! (`lua/include/gate.lua`, `place.lua`, `expire.lua`, `skip.lua`).

use std::fmt;

use super::script::{Script, Step, broken};
use super::shard::whole;
use super::zset::double;
use crate::core::id::Incarnation;
use crate::core::route::{self, Remembered};

const SKIP_MS: i64 = 1_000;

/// Why a gate is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letter {
    Busy,
    Draining,
    EngineDown,
    Skipped,
    Expired,
}

impl Letter {
    const ALL: [(Self, char); 5] =
        [(Self::Busy, 'b'), (Self::Draining, 'd'), (Self::EngineDown, 'e'), (Self::Skipped, 's'), (Self::Expired, 'x')];

    /// What the journal says when it is set, and when it is cleared.
    const fn transition(self, on: bool) -> Option<&'static str> {
        match (self, on) {
            (Self::Busy, true) => Some("busy"),
            (Self::Busy, false) => Some("free"),
            (Self::Draining, true) => Some("draining"),
            (Self::Draining, false) => Some("resumed"),
            (Self::EngineDown, true) => Some("engine_down"),
            (Self::EngineDown, false) => Some("engine_up"),
            (Self::Skipped, true) => Some("skipped"),
            (Self::Skipped, false) => None,
            (Self::Expired, true) => Some("left"),
            (Self::Expired, false) => Some("joined"),
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of [`Letter`]s; empty = open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Closed(u8);

impl Closed {
    pub(super) const EXPIRED: Self = Self(Letter::Expired.bit());

    pub(super) const fn has(self, letter: Letter) -> bool {
        self.0 & letter.bit() != 0
    }

    pub(super) const fn is_open(self) -> bool {
        self.0 == 0
    }

    const fn with(self, letter: Letter, on: bool) -> Self {
        if on { Self(self.0 | letter.bit()) } else { Self(self.0 & !letter.bit()) }
    }

    /// The letters in order, each at most once.
    fn parse(text: &str) -> Option<Self> {
        let mut closed = Self::default();
        for c in text.chars() {
            let (letter, _) = Letter::ALL.into_iter().find(|(_, l)| *l == c)?;
            if closed.0 >= letter.bit() {
                return None;
            }
            closed = closed.with(letter, true);
        }
        Some(closed)
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Letter::ALL.into_iter().filter(|(l, _)| self.has(*l)).try_for_each(|(_, c)| write!(f, "{c}"))
    }
}

/// A field of `P:gate`: `incarnation|cap|closed|url`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gate {
    pub(super) incarnation: Incarnation,
    /// Most requests; none = no cap.
    pub(super) cap: Option<u64>,
    pub(super) closed: Closed,
    pub(super) url: String,
}

impl Gate {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, '|');
        let incarnation = Incarnation::parse(parts.next()?)?;
        let cap = match parts.next()? {
            "" => None,
            digits => Some(whole(Some(&digits.to_owned())).and_then(|n| u64::try_from(n).ok())?),
        };
        Some(Self { incarnation, cap, closed: Closed::parse(parts.next()?)?, url: parts.next()?.to_owned() })
    }

    /// Neither draining, nor engine down, nor expired.
    pub(super) const fn live(&self) -> bool {
        !self.closed.has(Letter::Draining) && !self.closed.has(Letter::EngineDown) && !self.closed.has(Letter::Expired)
    }

    pub(super) const fn live_busy(&self) -> bool {
        self.live() && self.closed.has(Letter::Busy)
    }

    /// Open, and `count` is below the cap.
    pub(super) fn has_room(&self, count: i64) -> bool {
        self.closed.is_open() && self.cap.is_none_or(|cap| super::stats::unsigned(count) < cap)
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cap = self.cap.map(|n| n.to_string()).unwrap_or_default();
        write!(f, "{}|{cap}|{}|{}", self.incarnation, self.closed, self.url)
    }
}

/// A field of `P:seq`: `epoch|seq|leases`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registry {
    /// The epoch in which the leases are counted; `new` or `none`: in no epoch.
    pub(super) epoch: String,
    pub(super) seq: i64,
    pub(super) leases: i64,
}

impl Registry {
    /// Of a frontend whose half was lost.
    pub(super) fn none() -> Self {
        Self { epoch: "none".into(), seq: 0, leases: 0 }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('|').map(str::to_owned);
        let epoch = parts.next().filter(|e| !e.is_empty())?;
        let (seq, leases) = (whole(parts.next().as_ref())?, whole(parts.next().as_ref())?);
        parts.next().is_none().then_some(Self { epoch, seq, leases })
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}|{}", self.epoch, self.seq, self.leases)
    }
}

impl Script<'_> {
    /// What is registered of a frontend; none if it is missing or garbled.
    pub(super) fn registered(&self, f: &str) -> Step<Option<Registry>> {
        Ok(self.d.seq.read()?.get(f).and_then(|text| Registry::parse(text)))
    }

    pub(super) fn save_registry(&mut self, f: &str, entry: &Registry) -> Step<()> {
        self.d.seq.write()?.insert(f.to_owned(), entry.to_string());
        Ok(())
    }

    /// A worker's gate, if it has one. What is kept of a worker in the other hashes is read with it.
    pub(super) fn gate(&self, w: &str) -> Step<Option<Gate>> {
        self.warm()?;
        let Some(text) = self.d.gate.read()?.get(w) else { return Ok(None) };
        match (Gate::parse(text), whole(self.d.inflight.read()?.get(w))) {
            (Some(gate), Some(_)) => Ok(Some(gate)),
            _ => broken(format!("gate or count of {w}")),
        }
    }

    /// Admitted requests of a worker that has a gate.
    pub(super) fn count(&self, w: &str) -> Step<i64> {
        whole(self.d.inflight.read()?.get(w)).map_or_else(|| broken(format!("gate or count of {w}")), Ok)
    }

    /// Writes a field of one of the four hashes that a script writes at its end only.
    pub(super) fn set(&mut self, what: Late, w: &str, text: String) {
        self.late.insert(what);
        let key = match what {
            Late::Gate => &mut self.d.gate,
            Late::Inflight => &mut self.d.inflight,
            Late::Reserved => &mut self.d.reserved,
            Late::Route => &mut self.d.route,
            Late::Eligible => return,
        };
        if let Ok(hash) = key.write() {
            hash.insert(w.to_owned(), text);
        }
    }

    /// Writes a gate, and keeps the sums of live and of busy live workers, which a refusal's reason needs.
    pub(super) fn save_gate(&mut self, w: &str, before: Option<&Gate>, after: &Gate) {
        self.recount(before, Some(after));
        self.set(Late::Gate, w, after.to_string());
    }

    fn recount(&mut self, before: Option<&Gate>, after: Option<&Gate>) {
        let one = |g: Option<&Gate>, is: fn(&Gate) -> bool| i64::from(g.is_some_and(is));
        let live = one(after, Gate::live) - one(before, Gate::live);
        let busy = one(after, Gate::live_busy) - one(before, Gate::live_busy);
        self.s.live = Some(self.s.live.unwrap_or(0) + live);
        self.s.live_busy = Some(self.s.live_busy.unwrap_or(0) + busy);
    }

    /// Sets or clears a letter. True if that changed the gate.
    pub(super) fn mark(&mut self, w: &str, letter: Letter, on: bool, why: &str) -> Step<bool> {
        let Some(before) = self.gate(w)? else { return Ok(false) };
        if before.closed.has(letter) == on {
            return Ok(false);
        }
        let after = Gate { closed: before.closed.with(letter, on), ..before.clone() };
        self.save_gate(w, Some(&before), &after);
        self.revise_fleet();
        if let Some(kind) = letter.transition(on) {
            self.transition(kind, w, why);
        }
        Ok(true)
    }

    /// Takes a worker out of every index. Its own hash stays until its TTL: it remembers the incarnation.
    pub(super) fn forget(&mut self, w: &str) -> Step<()> {
        if let Some(gate) = self.gate(w)? {
            self.recount(Some(&gate), None);
            self.s.inflight_total = Some(self.s.inflight_total.unwrap_or(0) - self.count(w)?);
        }
        self.late.extend([Late::Gate, Late::Inflight, Late::Reserved, Late::Route]);
        for key in [&mut self.d.gate, &mut self.d.inflight, &mut self.d.reserved, &mut self.d.route] {
            if let Ok(hash) = key.write() {
                hash.remove(w);
            }
        }
        for key in [&mut self.d.workers, &mut self.d.skips, &mut self.d.due] {
            key.write()?.remove(w);
        }
        self.d.busy.write()?.remove(w);
        self.put_eligible(w, None);
        self.revise_fleet();
        Ok(())
    }

    pub(super) fn remembered(&self, w: &str) -> Step<Remembered> {
        Ok(self.d.route.read()?.get(w).and_then(|text| Remembered::parse(text)).unwrap_or_default())
    }

    /// The only writer of `P:eligible`: after every change of a worker, looking at all conditions.
    pub(super) fn place(&mut self, w: &str) -> Step<()> {
        if let Some(gate) = self.gate(w)?
            && gate.closed.is_open()
            && gate.has_room(if gate.cap.is_some() { self.count(w)? } else { 0 })
        {
            let score = self.score(w, &gate)?;
            self.put_eligible(w, Some(score));
        } else {
            self.put_eligible(w, None);
        }
        Ok(())
    }

    fn put_eligible(&mut self, w: &str, score: Option<i64>) {
        self.late.insert(Late::Eligible);
        match (self.d.eligible.write(), score) {
            (Ok(eligible), Some(score)) => eligible.insert(w, double(score)),
            (Ok(eligible), None) => eligible.remove(w),
            (Err(_), _) => {}
        }
    }

    fn score(&mut self, w: &str, gate: &Gate) -> Step<i64> {
        let config = self.config()?;
        if !route::is_scored(config.router_mode) {
            return Ok(0);
        }
        let remembered = self.remembered(w)?;
        let load = match config.router_mode {
            crate::core::thresholds::RouterMode::RoundRobin => 0,
            crate::core::thresholds::RouterMode::Kv => {
                let reserved =
                    if config.track_active_blocks { whole(self.d.reserved.read()?.get(w)).unwrap_or(0) } else { 0 };
                route::kv_load(&remembered, reserved)
            }
            _ => route::slot_load(self.count(w)?, gate.cap),
        };
        Ok(route::score(config.router_mode, load, &remembered))
    }

    /// Heard within its TTL. While Redis's own absence is being made up for, all are that are known at all.
    pub(super) fn alive(&self, w: &str) -> Step<bool> {
        let until = self.d.workers.read()?.score(w);
        Ok(until.is_some_and(|t| t >= double(self.now) || self.grace()))
    }

    /// A worker that has been silent for its TTL is not alive: its gate closes; it is forgotten when its count is 0.
    pub(super) fn expire(&mut self, w: &str) -> Step<()> {
        self.d.workers.write()?.remove(w);
        if self.gate(w)?.is_none() {
            return Ok(());
        }
        self.mark(w, Letter::Expired, true, "silent")?;
        if self.count(w)? == 0 { self.forget(w) } else { self.place(w) }
    }

    /// Those whose time is over, at most 256; none while Redis's own absence is being made up for.
    pub(super) fn expire_due(&mut self) -> Step<()> {
        if self.grace() {
            return Ok(());
        }
        for w in self.d.workers.read()?.before(self.now, 256) {
            self.expire(&w)?;
        }
        Ok(())
    }

    /// A worker that refused admission itself is skipped by everybody for a second.
    pub(super) fn skip(&mut self, w: &str, incarnation: &Incarnation) -> Step<()> {
        if self.gate(w)?.is_none_or(|gate| gate.incarnation != *incarnation) {
            return Ok(());
        }
        self.d.skips.write()?.insert(w, double(self.now + SKIP_MS));
        self.mark(w, Letter::Skipped, true, "")?;
        self.place(w)
    }

    pub(super) fn end_skip(&mut self, w: &str) -> Step<()> {
        self.d.skips.write()?.remove(w);
        if self.gate(w)?.is_some() && self.mark(w, Letter::Skipped, false, "")? {
            self.place(w)?;
        }
        Ok(())
    }

    /// Ends the skips that are over, at most 16 a call.
    pub(super) fn end_due_skips(&mut self) -> Step<()> {
        for w in self.d.skips.read()?.until(self.now, 16) {
            self.end_skip(&w)?;
        }
        Ok(())
    }
}

/// What a script writes at its end only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Late {
    Gate,
    Inflight,
    Reserved,
    Route,
    Eligible,
}
