//! A frontend's leases: `id -> worker|incarnation|tokens`. Counters change only together with the lease that explains
//! them (`lua/include/lease.lua`).

use std::collections::BTreeMap;

use super::gate::{Late, Letter};
use super::script::{Script, Step, broken};
use super::shard::{bump, whole};
use super::stats::unsigned;
use super::zset::double;
use crate::core::id::Incarnation;

/// `P:leases:<frontend>` while an operation works on it; written by [`Script::flush_leases`], so not at all if the
/// operation ends in a new epoch before.
#[derive(Debug, Clone)]
pub(super) struct Leases {
    frontend: String,
    changes: BTreeMap<String, Option<String>>,
    /// How many there are, as `P:seq` says.
    pub(super) n: i64,
}

/// A lease as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) worker: String,
    pub(super) incarnation: String,
    pub(super) tokens: i64,
}

impl Lease {
    /// Split from the right: a worker's name may hold a bar.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '|').map(str::to_owned);
        let (tokens, incarnation, worker) = (parts.next(), parts.next()?, parts.next()?);
        Some(Self { worker, incarnation, tokens: whole(tokens.as_ref())? })
    }
}

impl Script<'_> {
    pub(super) fn leases(frontend: &str, n: i64) -> Leases {
        Leases { frontend: frontend.to_owned(), changes: BTreeMap::new(), n }
    }

    /// `HLEN P:leases:<frontend>`.
    pub(super) fn stored_leases(&self, frontend: &str) -> Step<i64> {
        let many = match self.d.leases.get(frontend) {
            Some(key) => key.read()?.len(),
            None => 0,
        };
        Ok(i64::try_from(many).unwrap_or(i64::MAX))
    }

    /// The first `most` ids.
    pub(super) fn lease_ids(&self, frontend: &str, most: usize) -> Step<Vec<String>> {
        match self.d.leases.get(frontend) {
            Some(key) => Ok(key.read()?.keys().take(most).cloned().collect()),
            None => Ok(Vec::new()),
        }
    }

    /// `UNLINK P:leases:<frontend>`.
    pub(super) fn drop_leases(&mut self, frontend: &str) {
        self.d.leases.remove(frontend);
    }

    pub(super) fn lease(&self, held: &Leases, id: &str) -> Step<Option<Lease>> {
        let stored = match self.d.leases.get(&held.frontend) {
            Some(key) if !held.changes.contains_key(id) => key.read()?.get(id),
            _ => None,
        };
        let text = held.changes.get(id).map_or(stored, Option::as_ref);
        match text {
            None => Ok(None),
            Some(text) => Lease::parse(text).map_or_else(|| broken(format!("lease {id}")), |lease| Ok(Some(lease))),
        }
    }

    /// Makes a lease; it counts if the gate is of its incarnation. An id that exists already: nothing.
    pub(super) fn add(
        &mut self,
        held: &mut Leases,
        id: &str,
        w: &str,
        incarnation: &Incarnation,
        tokens: u64,
    ) -> Step<()> {
        let taken = match self.d.leases.get(&held.frontend) {
            Some(key) => key.read()?.contains_key(id),
            None => false,
        };
        if held.changes.get(id).map_or(taken, Option::is_some) {
            return Ok(());
        }
        held.changes.insert(id.to_owned(), Some(format!("{w}|{incarnation}|{tokens}")));
        held.n += 1;
        if self.gate(w)?.is_some_and(|gate| gate.incarnation == *incarnation) {
            self.step(w, i64::try_from(tokens).unwrap_or(i64::MAX), 1)?;
        }
        Ok(())
    }

    /// Ends a lease. True if it was there; an unknown id: nothing.
    pub(super) fn del(&mut self, held: &mut Leases, id: &str) -> Step<bool> {
        let Some(lease) = self.lease(held, id)? else { return Ok(false) };
        held.changes.insert(id.to_owned(), None);
        held.n -= 1;
        if self.gate(&lease.worker)?.is_some_and(|gate| gate.incarnation.as_str() == lease.incarnation) {
            self.step(&lease.worker, lease.tokens, -1)?;
        }
        Ok(true)
    }

    /// Ends many. Returns how many were there.
    pub(super) fn del_all(&mut self, held: &mut Leases, ids: &[String]) -> Step<u32> {
        let mut known = false;
        for id in ids {
            known |= self.lease(held, id)?.is_some();
        }
        if known {
            self.warm()?;
        }
        let mut ended = 0;
        for id in ids {
            ended += u32::from(self.del(held, id)?);
        }
        Ok(ended)
    }

    /// All that is kept by worker is read at once.
    pub(super) fn warm(&self) -> Step<()> {
        for key in [&self.d.gate, &self.d.inflight, &self.d.reserved, &self.d.route] {
            key.read()?;
        }
        Ok(())
    }

    /// One more or less on a worker whose gate is of that incarnation.
    fn step(&mut self, w: &str, tokens: i64, by: i64) -> Step<()> {
        let n = self.count(w)? + by;
        let total = self.s.inflight_total.unwrap_or(0) + by;
        self.s.inflight_total = Some(total);
        if n < 0 || total < 0 {
            return broken(format!("count of {w} below zero"));
        }
        self.set(Late::Inflight, w, n.to_string());
        let blocks = self.blocks(unsigned(tokens))?;
        let reserved = whole(self.d.reserved.read()?.get(w)).unwrap_or(0) + by * blocks;
        self.set(Late::Reserved, w, if n == 0 { "0".into() } else { reserved.max(0).to_string() });
        self.revise();
        self.touched.insert(w.to_owned());
        Ok(())
    }

    /// KV blocks that so many tokens fill.
    #[expect(clippy::cast_possible_truncation, reason = "at most 2^53")]
    pub(super) fn blocks(&mut self, tokens: u64) -> Step<i64> {
        let size = i64::try_from(self.config()?.kv_block_size).unwrap_or(1);
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        Ok((double(tokens) / double(size)).ceil() as i64)
    }

    /// Places every worker whose count moved; one that is gone and has none left is forgotten.
    pub(super) fn settle(&mut self) -> Step<()> {
        for w in std::mem::take(&mut self.touched) {
            let over = match self.gate(&w)? {
                Some(gate) if gate.closed.has(Letter::Expired) => {
                    self.count(&w)? == 0 && self.d.workers.read()?.score(&w).is_none()
                }
                _ => false,
            };
            if over {
                self.forget(&w)?;
            } else {
                self.place(&w)?;
            }
        }
        Ok(())
    }

    pub(super) fn flush_leases(&mut self, held: &mut Leases) -> Step<()> {
        let changes = std::mem::take(&mut held.changes);
        if changes.is_empty() {
            return Ok(());
        }
        let hash = self.d.leases.entry(held.frontend.clone()).or_default().write()?;
        for (id, text) in changes {
            match text {
                Some(text) => drop(hash.insert(id, text)),
                None => drop(hash.remove(&id)),
            }
        }
        if hash.is_empty() {
            self.d.leases.remove(&held.frontend);
        }
        Ok(())
    }

    /// So many releases more: counted, and as releases per second in an average that forgets with a time constant of
    /// 5 s.
    pub(super) fn released(&mut self, k: u32) -> Step<()> {
        if k == 0 {
            return Ok(());
        }
        bump(self.d.stats.write()?, "released", i64::from(k));
        let dt = (self.now - self.s.drain_ms.unwrap_or(self.now)).max(0);
        let decay = (-double(dt) / 5_000.0).exp();
        self.s.drain_rate = self.s.drain_rate * decay + f64::from(k) / 5.0;
        self.s.drain_ms = Some(self.now);
        Ok(())
    }
}
