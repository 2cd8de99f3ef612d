//! `lua/decide.lua`: releases, skips and admissions of one frontend.

use std::collections::{BTreeMap, BTreeSet};

use super::fence::{Fence, Kind};
use super::gate::{Gate, Late, Letter};
use super::lease::Leases;
use super::script::{Script, Step};
use super::shard::bump;
use super::stats::unsigned;
use super::zset::double;
use crate::core::id::{Incarnation, WorkerId};
use crate::core::op::{Admission, Cause, Decide, Decided, Fenced, Verdict};
use crate::core::route::{Dice, Remembered, first_from};
use crate::core::thresholds::{MAX_INTEGER, RouterMode};

/// What the judging of a group carries along.
struct Group {
    held: Leases,
    dice: Dice,
    mode: RouterMode,
    /// Shut for the rest of the group, for all that neither exclude nor name workers.
    shut: Option<Cause>,
    /// How many workers it can use up, and which have been read.
    most: usize,
    read: BTreeSet<String>,
    admitted: i64,
    refused: BTreeMap<&'static str, u32>,
}

impl Script<'_> {
    pub(super) fn decide(&mut self, op: &Decide) -> Step<Fenced<Decided>> {
        self.prologue(false)?;
        let member = match self.fence(&op.caller, Kind::Call)? {
            Fence::Go(member) => member,
            Fence::Answer(answer) => return Ok(answer),
        };
        let left_ms = self.healing_left();
        if left_ms > 0 {
            return Ok(Fenced::Healing { left_ms });
        }
        let mut held = Self::leases(op.caller.frontend.as_str(), member.map_or(0, |m| m.leases));
        self.end_due_skips()?;
        let ids: Vec<String> = op.releases.iter().map(ToString::to_string).collect();
        let ended = self.del_all(&mut held, &ids)?;
        self.released(ended)?;
        self.settle()?;
        if !op.admissions.is_empty() {
            self.expire_due()?;
        }
        for (w, incarnation) in &op.skips {
            self.skip(w.as_str(), incarnation)?;
        }
        let config = self.config()?;
        let most = config.max_inflight;
        let dice = Dice::new(op.seed);
        let refused = BTreeMap::new();
        let most_workers =
            op.admissions.len() + op.admissions.iter().flat_map(|a| &a.exclude).collect::<BTreeSet<_>>().len();
        let mut group = Group {
            held,
            dice,
            mode: config.router_mode,
            shut: None,
            most: most_workers,
            read: BTreeSet::new(),
            admitted: 0,
            refused,
        };
        let mut verdicts = Vec::with_capacity(op.admissions.len());
        for ask in &op.admissions {
            verdicts.push(self.judge_one(&mut group, ask, most)?);
        }
        if group.admitted > 0 {
            bump(self.d.stats.write()?, "admitted", group.admitted);
        }
        self.count_refusals(&group.refused)?;
        self.flush_leases(&mut group.held)?;
        self.acknowledge(&op.caller, group.held.n)?;
        Ok(Fenced::Done(Decided {
            revision: self.revision(),
            drain_per_ks: thousandths(self.s.drain_rate),
            shed: self.shed_lately(),
            verdicts,
        }))
    }

    fn judge_one(&mut self, group: &mut Group, ask: &Admission, most: Option<u64>) -> Step<Verdict> {
        if let Some(lease) = self.lease(&group.held, ask.id.as_str())? {
            let url = self.gate(&lease.worker)?.map_or_else(String::new, |gate| gate.url);
            return self.admitted(&lease.worker, &lease.incarnation, url);
        }
        if most.is_some_and(|most| unsigned(self.s.inflight_total.unwrap_or(0)) >= most) {
            return Ok(self.refuse(group, Cause::MaxInflight));
        }
        let single = !ask.exclude.is_empty() || group.mode == RouterMode::Direct;
        let chosen = if single || group.shut.is_none() { self.choose(group, ask)? } else { None };
        if let Some((w, gate)) = chosen {
            self.add(&mut group.held, ask.id.as_str(), &w, &gate.incarnation, ask.tokens)?;
            self.touched.remove(&w);
            group.admitted += 1;
            let was = self.remembered(&w)?;
            let prefill = MAX_INTEGER.cast_signed().min(was.prefill + self.blocks(ask.tokens)?);
            let chosen = self.s.revision.unwrap_or(0);
            self.set(Late::Route, &w, Remembered { chosen, prefill, ..was }.to_string());
            self.place(&w)?;
            return self.admitted(&w, gate.incarnation.as_str(), gate.url);
        }
        let cause = match group.shut {
            Some(cause) if !single => cause,
            _ => self.cause(group, ask)?,
        };
        if !single {
            group.shut = Some(cause);
        }
        Ok(self.refuse(group, cause))
    }

    fn refuse(&self, group: &mut Group, cause: Cause) -> Verdict {
        *group.refused.entry(cause.code()).or_default() += 1;
        Verdict::Refused { revision: self.revision(), cause }
    }

    fn admitted(&self, w: &str, incarnation: &str, url: String) -> Step<Verdict> {
        let (Ok(worker), Some(incarnation)) = (WorkerId::parse(w), Incarnation::parse(incarnation)) else {
            return super::script::broken(format!("lease on {w}"));
        };
        Ok(Verdict::Admitted { revision: self.revision(), worker, incarnation, url })
    }

    /// A worker that may take the request. An entry of `P:eligible` that should not be there (written by hand)
    /// goes on the way.
    fn choose(&mut self, group: &mut Group, ask: &Admission) -> Step<Option<(String, Gate)>> {
        loop {
            let Some(w) = self.pick(group, ask)? else { return Ok(None) };
            let gate = self.gate(&w)?;
            let open = gate.filter(|gate| gate.closed.is_open());
            match open {
                Some(gate) if gate.cap.is_none() || gate.has_room(self.count(&w)?) => {
                    return Ok(Some((w, gate)));
                }
                _ => self.place(&w)?,
            }
        }
    }

    fn pick(&self, group: &mut Group, ask: &Admission) -> Step<Option<String>> {
        let eligible = self.d.eligible.read()?;
        let excluded = |w: &str| ask.exclude.iter().any(|x| x.as_str() == w);
        if group.mode == RouterMode::Direct {
            let pin = ask.pin.as_ref().map(WorkerId::as_str);
            return Ok(pin.filter(|w| !excluded(w) && eligible.score(w).is_some()).map(str::to_owned));
        }
        let many = ask.exclude.len();
        if !matches!(group.mode, RouterMode::Random | RouterMode::PowerOfTwo) {
            let near: Vec<&str> = eligible.iter().take(many + 1).map(|(w, _)| w).collect();
            let best = first_from(&near, 0, many, excluded).map(str::to_owned);
            // As many as the group can use up are read at once.
            if best.as_ref().is_none_or(|w| !group.read.contains(w)) {
                let names: Vec<&str> = eligible.iter().take(group.most).map(|(w, _)| w).collect();
                for w in &names {
                    self.gate(w)?;
                }
                group.read.extend(names.into_iter().map(str::to_owned));
            }
            return Ok(best);
        }
        let order: Vec<&str> = eligible.iter().map(|(w, _)| w).collect();
        let size = order.len();
        if size == 0 {
            return Ok(None);
        }
        let Some(one) = first_from(&order, group.dice.below(size), many, excluded) else { return Ok(None) };
        if group.mode == RouterMode::Random || size == 1 {
            return Ok(Some(one.to_owned()));
        }
        let mut two = first_from(&order, group.dice.below(size), many, excluded);
        if two == Some(one) {
            let next = eligible.rank(one).map_or(0, |rank| (rank + 1) % size);
            two = first_from(&order, next, many, excluded);
        }
        let Some(two) = two.filter(|two| *two != one) else { return Ok(Some(one.to_owned())) };
        if self.gate(one)?.is_none() {
            return Ok(Some(one.to_owned()));
        }
        if self.gate(two)?.is_none() {
            return Ok(Some(two.to_owned()));
        }
        let better = if self.count(two)? < self.count(one)? { two } else { one };
        Ok(Some(better.to_owned()))
    }

    /// Why there is no worker for the request: the first that holds.
    fn cause(&mut self, group: &mut Group, ask: &Admission) -> Step<Cause> {
        let excluded = |w: &str| ask.exclude.iter().any(|x| x.as_str() == w);
        if group.mode == RouterMode::Direct {
            let Some(pin) = ask.pin.as_ref().map(WorkerId::as_str) else { return Ok(Cause::NoPin) };
            return Ok(match self.gate(pin)? {
                Some(gate) if gate.live() && !excluded(pin) => {
                    if gate.closed.has(Letter::Busy) {
                        Cause::AllWorkersBusy
                    } else if gate.closed.has(Letter::Skipped) {
                        Cause::WorkerRefused
                    } else {
                        Cause::AtCapacity
                    }
                }
                _ => Cause::NoWorkers,
            });
        }
        let (mut reachable, mut busy) = (self.s.live.unwrap_or(0), self.s.live_busy.unwrap_or(0));
        let exclude: BTreeSet<&str> = ask.exclude.iter().map(WorkerId::as_str).collect();
        for w in exclude {
            if let Some(gate) = self.gate(w)? {
                reachable -= i64::from(gate.live());
                busy -= i64::from(gate.live_busy());
            }
        }
        Ok(if reachable <= 0 {
            Cause::NoWorkers
        } else if busy > 0 {
            Cause::AllWorkersBusy
        } else if self.d.skips.read()?.is_empty() {
            Cause::AtCapacity
        } else {
            Cause::WorkerRefused
        })
    }

    /// Counts refusals by cause, and in windows of 5 s, for `Retry-After`.
    fn count_refusals(&mut self, refused: &BTreeMap<&'static str, u32>) -> Step<()> {
        if refused.is_empty() {
            return Ok(());
        }
        for (cause, k) in refused {
            bump(self.d.stats.write()?, &format!("refused:{cause}"), i64::from(*k));
        }
        let now = self.now;
        match self.s.shed_ms.map(|began| (began, now - began)) {
            Some((_, 0..5_000)) => {}
            Some((began, 5_000..10_000)) => {
                self.s.shed_before = Some(self.s.shed_now.unwrap_or(0));
                self.s.shed_ms = Some(began + 5_000);
                self.s.shed_now = Some(0);
            }
            _ => {
                self.s.shed_before = Some(0);
                self.s.shed_ms = Some(now);
                self.s.shed_now = Some(0);
            }
        }
        let k: i64 = refused.values().map(|k| i64::from(*k)).sum();
        self.s.shed_now = Some(self.s.shed_now.unwrap_or(0) + k);
        Ok(())
    }

    /// Refusals of about the last 5 s.
    fn shed_lately(&self) -> u64 {
        let Some(began) = self.s.shed_ms else { return 0 };
        let gone = 1.0 - double(self.now - began) / 5_000.0;
        let before = double(self.s.shed_before.unwrap_or(0)) * gone.max(0.0);
        floor(before + double(self.s.shed_now.unwrap_or(0)))
    }
}

fn thousandths(x: f64) -> u64 {
    floor(x * 1_000.0)
}

/// Of small numbers that are not negative.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small, not negative; saturates")]
fn floor(x: f64) -> u64 {
    x.floor() as u64
}
