//! What holds after every operation on a state that nobody else has written to (design section 10).

use std::collections::BTreeMap;

use super::Fleet;
use super::gate::{Gate, Letter, Registry};
use super::shard::{Hash, Shard, WrongType, whole};
use super::zset::Zset;

impl Fleet {
    /// Checks the state against itself.
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        check(&self.shard).unwrap_or_else(|WrongType| Err("a key is of a wrong type".to_owned()))
    }
}

fn check(d: &Shard) -> Result<Result<(), String>, WrongType> {
    let stats = d.stats.read()?;
    let Some(epoch) = stats.get("epoch") else { return Ok(Ok(())) };
    let mut gates = BTreeMap::new();
    for (w, text) in d.gate.read()? {
        match Gate::parse(text) {
            Some(gate) => drop(gates.insert(w.as_str(), gate)),
            None => return Ok(Err(format!("gate of {w} is garbled: {text}"))),
        }
    }
    Ok(counts(d, epoch, &gates)?.and_then(|()| flags(d, &gates).unwrap_or_else(|WrongType| Err("wrong type".into()))))
}

/// Counts are those of the leases that explain them.
fn counts(d: &Shard, epoch: &str, gates: &BTreeMap<&str, Gate>) -> Result<Result<(), String>, WrongType> {
    let mut leases: BTreeMap<&str, i64> = BTreeMap::new();
    let empty = Hash::new();
    for (f, text) in d.seq.read()? {
        let Some(member) = Registry::parse(text) else { return Ok(Err(format!("P:seq of {f} is garbled: {text}"))) };
        if member.epoch != *epoch {
            continue;
        }
        let held = d.leases.get(f).map_or(Ok(&empty), |key| key.read())?;
        if i64::try_from(held.len()) != Ok(member.leases) {
            return Ok(Err(format!("{f} has {} leases, P:seq says {}", held.len(), member.leases)));
        }
        for text in held.values() {
            let mut parts = text.rsplitn(3, '|').skip(1);
            if let (Some(incarnation), Some(w)) = (parts.next(), parts.next())
                && gates.get(w).is_some_and(|gate| gate.incarnation.as_str() == incarnation)
            {
                *leases.entry(w).or_default() += 1;
            }
        }
    }
    let inflight = d.inflight.read()?;
    if inflight.len() != gates.len() {
        return Ok(Err(format!("{} gates, {} counts", gates.len(), inflight.len())));
    }
    let mut sum = 0;
    for (w, text) in inflight {
        let (n, held) = (whole(Some(text)), leases.get(w.as_str()).copied().unwrap_or(0));
        if n != Some(held) || !gates.contains_key(w.as_str()) {
            return Ok(Err(format!("inflight of {w} is {text}, leases {held}")));
        }
        sum += held;
    }
    let total = d.stats.read()?.get("inflight_total");
    if whole(total) != Some(sum) {
        return Ok(Err(format!("inflight_total is {total:?}, the sum {sum}")));
    }
    Ok(Ok(()))
}

/// Indexes are those of the gates.
fn flags(d: &Shard, gates: &BTreeMap<&str, Gate>) -> Result<Result<(), String>, WrongType> {
    let (inflight, eligible, busy, skips) = (d.inflight.read()?, d.eligible.read()?, d.busy.read()?, d.skips.read()?);
    let (mut live, mut live_busy) = (0, 0);
    for (w, gate) in gates {
        live += i64::from(gate.live());
        live_busy += i64::from(gate.live_busy());
        let room = gate.has_room(whole(inflight.get(*w)).unwrap_or(i64::MAX));
        if eligible.score(w).is_some() != room {
            return Ok(Err(format!("{w} with gate {gate} and {:?} in flight: eligible {}", inflight.get(*w), !room)));
        }
        for (letter, member, what) in
            [(Letter::Busy, busy.contains(*w), "busy"), (Letter::Skipped, skips.score(w).is_some(), "skipped")]
        {
            if gate.closed.has(letter) != member {
                return Ok(Err(format!("{w} with gate {gate}: {what} {member}")));
            }
        }
    }
    let known = |w: &str| gates.contains_key(w);
    let orphan = |z: &Zset| z.iter().map(|(w, _)| w.to_owned()).find(|w| !known(w));
    let orphan = orphan(eligible).or_else(|| busy.iter().find(|w| !known(w)).cloned());
    if let Some(w) = orphan {
        return Ok(Err(format!("{w} is eligible or busy without a gate")));
    }
    let stats = d.stats.read()?;
    if whole(stats.get("live")) != Some(live) || whole(stats.get("live_busy")) != Some(live_busy) {
        return Ok(Err(format!("live {live}, busy {live_busy}, but P:stats {stats:?}")));
    }
    Ok(Ok(()))
}
