//! Whether a call made in a frontend's name may go on (`lua/include/fence.lua`). In this order: member, stale, epoch,
//! lost.

use super::gate::Registry;
use super::script::{FRONTEND_TTL_MS, Further, HEAL_MS, Origin, Script, Step, broken};
use super::shard::Shard;
use super::stats::unsigned;
use super::zset::double;
use crate::core::op::{Caller, Fenced};

/// Which call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Creates a frontend.
    Hello,
    /// Asserts leases; its first part or a further one.
    Reconcile { first: bool },
    /// Anything else.
    Call,
}

/// What the fence says: go on as this member, or answer that.
pub(super) enum Fence<T> {
    Go(Option<Registry>),
    Answer(Fenced<T>),
}

/// What a call needs that is made in a frontend's name.
pub(super) fn of(caller: &Caller) -> (Origin, Further) {
    let origin = Origin { mem: caller.mem, seen: caller.seen, nonce: caller.nonce.clone() };
    (origin, Further { leases: vec![caller.frontend.to_string()], workers: Vec::new() })
}

/// Runs a call made in a frontend's name.
pub(super) fn run<T>(
    d: &mut Shard,
    now_ms: u64,
    caller: &Caller,
    further: Further,
    main: impl FnOnce(&mut Script<'_>) -> Step<Fenced<T>>,
) -> Fenced<T> {
    let (origin, mut own) = of(caller);
    own.workers = further.workers;
    match Script::run(d, now_ms, origin, &own, main) {
        Ok(reply) => reply,
        Err(healing_ms) => Fenced::Epoch { healing_ms },
    }
}

impl Script<'_> {
    pub(super) fn fence<T>(&mut self, c: &Caller, kind: Kind) -> Step<Fence<T>> {
        let f = c.frontend.as_str();
        let alive = self.d.frontends.read()?.score(f);
        let member = self.registered(f)?;
        if alive == Some(0.0) || (alive.is_none() && member.is_none() && kind != Kind::Hello) {
            return Ok(Fence::Answer(Fenced::Gone));
        }
        if alive.is_none() != member.is_none() {
            return broken(format!("registry of {f}"));
        }
        let stored = member.as_ref().map(|m| unsigned(m.seq));
        if let Some(stored) = stored.filter(|stored| c.seq <= *stored) {
            return Ok(Fence::Answer(Fenced::Stale { stored }));
        }
        if kind == Kind::Hello {
            return Ok(Fence::Go(member));
        }
        let epoch = self.epoch();
        if c.epoch != epoch {
            if let Kind::Reconcile { .. } = kind {
                return Ok(Fence::Go(member));
            }
            self.heal_for(c);
            return Ok(Fence::Answer(Fenced::Epoch { healing_ms: self.healing_left() }));
        }
        let theirs = member.as_ref().map_or("", |m| m.epoch.as_str());
        if stored.unwrap_or(0) < c.acked || (theirs != epoch && theirs != "new") {
            // Acknowledged writes were lost (a failover): this frontend asserts what it holds, nobody else is disturbed.
            if kind == (Kind::Reconcile { first: true }) {
                return Ok(Fence::Go(member));
            }
            let seen = i64::try_from(c.seen).unwrap_or(i64::MAX - 1);
            let next = self.s.revision.unwrap_or(0) + 1;
            self.s.revision = Some(next.max(self.now * 1_000).max(seen + 1));
            return Ok(Fence::Answer(Fenced::Epoch { healing_ms: self.healing_left() }));
        }
        if kind == Kind::Call && theirs != epoch {
            return Ok(Fence::Answer(Fenced::Epoch { healing_ms: self.healing_left() }));
        }
        Ok(Fence::Go(member))
    }

    /// Somebody who remembers another epoch came while this one is young: others may come too.
    pub(super) fn heal_for(&mut self, c: &Caller) {
        let born = self.s.born.unwrap_or(self.now);
        if c.mem && c.epoch != self.epoch() && self.now < born + HEAL_MS {
            self.s.healing_until = self.s.healing_until.max(Some(born + HEAL_MS));
        }
    }

    /// A sign of life of a frontend.
    pub(super) fn keep_alive(&mut self, f: &str) -> Step<()> {
        let until = double(self.now + FRONTEND_TTL_MS);
        self.d.frontends.write()?.insert(f, until);
        Ok(())
    }

    /// Every call that is answered ok stores its `seq`.
    pub(super) fn acknowledge(&mut self, c: &Caller, leases: i64) -> Step<()> {
        let entry = Registry { epoch: self.epoch(), seq: i64::try_from(c.seq).unwrap_or(i64::MAX), leases };
        self.save_registry(c.frontend.as_str(), &entry)
    }
}
