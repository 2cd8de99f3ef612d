//! What sidecars call: `lua/register.lua`, `report.lua`, `drain.lua`, `leave.lua`, and what follows from a report
//! (`lua/include/registration.lua`, `recompute.lua`, `busy.lua`).

use super::gate::{Closed, Gate, Late, Letter};
use super::script::{Script, Step, Stop, broken, cut};
use super::shard::{Entry, Hash, whole};
use super::stats::unsigned;
use super::zset::double;
use crate::core::busy::{self, Away, Check, Freshness, Rank, Signal};
use crate::core::id::Incarnation;
use crate::core::op::{Drain, Figure, FigureKind, Register, Registered, Registration, Report, Reported};
use crate::core::route::Remembered;
use crate::core::thresholds::{Field, MAX_INTEGER};

/// How long a worker's own hash outlives its last report.
const WORKER_MEMORY_MS: i64 = 3_600_000;
const MAX_RANKS: i64 = 1_024;
const MAX_RANK: i64 = 65_535;

/// Field and value that are wrong.
type Wrong = (String, String);

/// The ranges of `lua/include/registration.lua`.
fn check(r: &Registration, figures: &[Figure]) -> Result<(), Wrong> {
    if r.url.is_empty() || r.url.len() > 2_048 || r.url.bytes().any(|b| b.is_ascii_control()) {
        return Err(("url".into(), cut(&r.url)));
    }
    let whole = |name: &str, value: u64, least: u64, most: u64| {
        if (least..=most).contains(&value) { Ok(()) } else { Err((name.to_owned(), value.to_string())) }
    };
    let (first, size) = (u64::from(r.data_parallel_start_rank), u64::from(r.data_parallel_size));
    whole("data_parallel_start_rank", first, 0, 65_535)?;
    whole("data_parallel_size", size, 1, 1_024)?;
    if let Some(n) = r.engine_request_limit {
        whole("engine_request_limit", n, 1, 1_000_000_000)?;
    }
    whole("request_queue_limit", r.request_queue_limit, 0, 1_000_000_000)?;
    whole("kv_block_size", r.kv_block_size, 1, 1_048_576)?;
    whole("worker_ttl_ms", r.worker_ttl_ms, 5_000, 3_600_000)?;
    for figure in figures {
        let rank = u64::from(figure.rank);
        if rank < first || rank >= first + size {
            return Err(("dp_rank".into(), rank.to_string()));
        }
        whole(figure.kind.field(), figure.value, 0, MAX_INTEGER)?;
    }
    Ok(())
}

fn cap(r: &Registration) -> Option<u64> {
    r.engine_request_limit.map(|n| n + r.request_queue_limit)
}

impl Script<'_> {
    pub(super) fn register(&mut self, op: &Register) -> Step<Registered> {
        let r = &op.registration;
        if let Err((field, value)) = check(r, &op.figures) {
            return Ok(Registered::Invalid { field, value });
        }
        // A new epoch, also one that this call has made, is no hindrance: this is how workers come back.
        match self.prologue(true) {
            Ok(()) | Err(Stop::Epoch(_)) => {}
            Err(stop) => return Err(stop),
        }
        let w = r.worker.as_str();
        let before = self.gate(w)?;
        let remembered = self.worker_field(w, "incarnation")?;
        let known = remembered.as_deref().and_then(Incarnation::parse);
        let incarnation = match &op.incarnation {
            Some(had) => had.clone(),
            None => match &before {
                Some(gate) if gate.incarnation.nonce() == op.nonce => gate.incarnation.clone(),
                Some(_) if op.yields && self.alive(w)? => return Ok(Registered::Superseded),
                _ => {
                    let above = |other: Option<&Incarnation>| other.map_or(0, |i| i.ms()) + 1;
                    let ms = above(before.as_ref().map(|g| &g.incarnation)).max(above(known.as_ref()));
                    Incarnation::new(ms.max(unsigned(self.now)), &op.nonce)
                }
            },
        };
        if before.as_ref().is_some_and(|gate| incarnation < gate.incarnation) {
            return Ok(if self.alive(w)? { Registered::Superseded } else { Registered::Vacant });
        }
        if known.as_ref().is_some_and(|known| incarnation < *known) {
            return Ok(Registered::Vacant);
        }
        if before.is_some() != self.d.inflight.read()?.contains_key(w) {
            return broken("count without gate".to_owned());
        }
        if before.as_ref().is_none_or(|gate| gate.incarnation != incarnation) {
            if before.is_some() {
                self.s.inflight_total = Some(self.s.inflight_total.unwrap_or(0) - self.count(w)?);
            }
            if known.as_ref() != Some(&incarnation) {
                self.d.worker.remove(w);
            }
            let gate =
                Gate { incarnation: incarnation.clone(), cap: cap(r), closed: Closed::EXPIRED, url: r.url.clone() };
            self.save_gate(w, before.as_ref(), &gate);
            self.set(Late::Inflight, w, "0".into());
            self.set(Late::Reserved, w, "0".into());
            self.revise_fleet();
        } else if op.number <= unsigned(whole(self.worker_field(w, "number")?.as_ref()).unwrap_or(0)) {
            // A copy that comes late: it carries what is no longer so.
            return Ok(Registered::Ok { incarnation });
        }
        self.d.skips.write()?.remove(w);
        self.mark(w, Letter::Skipped, false, "")?;
        self.apply(r, &op.figures, op.number)?;
        Ok(Registered::Ok { incarnation })
    }

    pub(super) fn report(&mut self, op: &Report) -> Step<Reported> {
        let r = &op.registration;
        if let Err((field, value)) = check(r, &op.figures) {
            return Ok(Reported::Invalid { field, value });
        }
        self.prologue(true)?;
        let w = r.worker.as_str();
        let Some(gate) = self.gate(w)? else { return Ok(Reported::Register) };
        if self.worker_field(w, "incarnation")?.is_none() || gate.incarnation < op.incarnation {
            return Ok(Reported::Register);
        }
        if gate.incarnation != op.incarnation {
            return Ok(if self.alive(w)? { Reported::Superseded } else { Reported::Vacant });
        }
        let last = whole(self.worker_field(w, "number")?.as_ref()).unwrap_or(0);
        if op.number <= unsigned(last) {
            return Ok(Reported::Ignored);
        }
        self.notice()?;
        if op.room {
            self.d.skips.write()?.remove(w);
            self.mark(w, Letter::Skipped, false, "")?;
        }
        let busy = self.apply(r, &op.figures, op.number)?;
        let config_version = self.config_version()?;
        Ok(Reported::Ok { busy, config_version, track_output_blocks: self.config()?.track_output_blocks })
    }

    pub(super) fn drain(&mut self, op: &Drain) -> Step<()> {
        self.prologue(false)?;
        let w = op.worker.as_str();
        if self.gate(w)?.is_none_or(|gate| gate.incarnation != op.incarnation) {
            return Ok(());
        }
        self.mark(w, Letter::Draining, op.on, "")?;
        let on = if op.on { "1" } else { "0" };
        if let Some(key) = self.d.worker.get_mut(w)
            && !key.hash.read()?.is_empty()
        {
            key.hash.write()?.insert("draining".into(), on.into());
        }
        self.place(w)
    }

    pub(super) fn worker_hash(&self, w: &str) -> Step<Hash> {
        match self.d.worker.get(w) {
            Some(key) => Ok(key.hash.read()?.clone()),
            None => Ok(Hash::new()),
        }
    }

    pub(super) fn worker_field(&self, w: &str, field: &str) -> Step<Option<String>> {
        match self.d.worker.get(w) {
            Some(key) => Ok(key.hash.read()?.get(field).cloned()),
            None => Ok(None),
        }
    }

    /// Writes `P:worker:<id>` and everything that follows from it. True if the worker is busy.
    fn apply(&mut self, r: &Registration, figures: &[Figure], number: u64) -> Step<bool> {
        let w = r.worker.as_str();
        let Some(before) = self.gate(w)? else { return broken(format!("gate of {w}")) };
        let now = self.now;
        let key = self.worker_key(w);
        let h = key.hash.write()?;
        // Figures of ranks that are not declared (any more) go.
        let (first, size) = (i64::from(r.data_parallel_start_rank), i64::from(r.data_parallel_size));
        h.retain(|field, _| {
            let rank = field.split_once('.').and_then(|(rank, _)| whole(Some(&rank.to_owned())));
            rank.is_none_or(|rank| (first..first + size).contains(&rank))
        });
        let flag = |on: bool| if on { "1".to_owned() } else { "0".to_owned() };
        for (field, text) in [
            ("url", r.url.clone()),
            ("incarnation", before.incarnation.to_string()),
            ("data_parallel_start_rank", first.to_string()),
            ("data_parallel_size", size.to_string()),
            ("request_queue_limit", r.request_queue_limit.to_string()),
            ("kv_block_size", r.kv_block_size.to_string()),
            ("draining", flag(r.draining)),
            ("engine_down", flag(r.engine_down)),
            ("worker_ttl_ms", r.worker_ttl_ms.to_string()),
            ("number", number.to_string()),
        ] {
            h.insert(field.to_owned(), text);
        }
        h.entry("registered_ms".to_owned()).or_insert_with(|| now.to_string());
        match r.engine_request_limit {
            Some(n) => drop(h.insert("engine_request_limit".to_owned(), n.to_string())),
            None => drop(h.remove("engine_request_limit")),
        }
        let mut said = Entry::new();
        for figure in figures {
            let name = format!("{}.{}", figure.rank, figure.kind.field());
            h.insert(name.clone(), figure.value.to_string());
            if figure.kind.is_signal() {
                h.insert(format!("{name}_ms"), now.to_string());
            }
            said.push((name, figure.value.to_string()));
        }
        key.expires_ms = Some(now + WORKER_MEMORY_MS);

        if before.cap != cap(r) || before.url != r.url {
            let after = Gate { cap: cap(r), url: r.url.clone(), ..before.clone() };
            self.save_gate(w, Some(&before), &after);
            self.revise_fleet();
        }
        let until = double(now + i64::try_from(r.worker_ttl_ms).unwrap_or(0));
        self.d.workers.write()?.insert(w, until);
        self.mark(w, Letter::Draining, r.draining, "")?;
        self.mark(w, Letter::EngineDown, r.engine_down, "")?;
        self.mark(w, Letter::Expired, false, "")?;
        let busy = self.recompute(w)?;
        self.place(w)?;
        let mut entry = vec![("worker".to_owned(), w.to_owned()), ("busy".to_owned(), flag(busy))];
        entry.extend(said.into_iter().take(200));
        self.d.load.append(self.now, 10_000, entry);
        Ok(busy)
    }

    /// Recomputes a worker's busy flag and what routing knows of its load. The caller places it afterwards.
    pub(super) fn recompute(&mut self, w: &str) -> Step<bool> {
        self.rewind_signals(w)?;
        let h = self.worker_hash(w)?;
        let fresh = self.freshness()?;
        let config = self.config()?;
        let judged = busy::judge(&ranks(&h), &config, &fresh);
        let mut reason = String::new();
        for (i, r) in judged.reasons.iter().enumerate() {
            let field = match r.check {
                Check::Decode => Field::ActiveDecodeBlocks,
                Check::Prefill => Field::ActivePrefillTokens,
                Check::PrefillFraction => Field::ActivePrefillTokensFrac,
            };
            let threshold = self.in_force()?.texts.get(&field).cloned().unwrap_or_default();
            reason.push_str(if i == 0 { "" } else { "; " });
            let _ = r.write(&threshold, &mut reason);
        }
        self.mark(w, Letter::Busy, judged.busy, &reason)?;
        let members = self.d.busy.write()?;
        if judged.busy {
            members.insert(w.to_owned());
        } else {
            members.remove(w);
        }
        match judged.due_ms.and_then(|t| i64::try_from(t).ok()) {
            Some(due) => self.d.due.write()?.insert(w, double(due)),
            None => self.d.due.write()?.remove(w),
        }
        // A hash that has expired stays gone.
        if !h.is_empty() {
            let hash = self.worker_key(w).hash.write()?;
            hash.insert("busy".into(), if judged.busy { "1".into() } else { "0".into() });
            hash.insert("busy_reason".into(), reason);
        }
        let was = self.remembered(w)?;
        let number = |x: u64| i64::try_from(x).unwrap_or(i64::MAX);
        let prefill = self.blocks(judged.tokens)?;
        self.set(Late::Route, w, Remembered { blocks: number(judged.blocks), prefill, ..was }.to_string());
        Ok(judged.busy)
    }

    /// The clock went back: signals from the future are as of now.
    fn rewind_signals(&mut self, w: &str) -> Step<()> {
        let now = self.now;
        if let Some(key) = self.d.worker.get_mut(w) {
            for (field, text) in key.hash.write()?.iter_mut() {
                if field.ends_with("_ms") && field.contains('.') && whole(Some(text)).is_some_and(|t| t > now) {
                    *text = now.to_string();
                }
            }
        }
        Ok(())
    }

    fn freshness(&mut self) -> Step<Freshness> {
        let ttl_ms = self.config()?.load_ttl_ms;
        let away = self
            .grace()
            .then(|| Away { lasted_ms: unsigned(self.s.away_ms), until_ms: unsigned(self.s.grace_until.unwrap_or(0)) });
        Ok(Freshness { now_ms: unsigned(self.now), ttl_ms, away })
    }
}

/// The declared ranks with their figures, from a worker's own hash.
fn ranks(h: &Hash) -> Vec<Rank> {
    let within = |name: &str, least: i64, most: i64| whole(h.get(name)).filter(|n| (least..=most).contains(n));
    let first = within("data_parallel_start_rank", 0, MAX_RANK).unwrap_or(0);
    let size = within("data_parallel_size", 1, MAX_RANKS).unwrap_or(1);
    let rank = |rank: i64| {
        let number = |field: &str| whole(h.get(&format!("{rank}.{field}"))).map(unsigned);
        let signal = |kind: FigureKind| {
            let field = kind.field();
            Some(Signal { value: number(field)?, at_ms: number(&format!("{field}_ms"))? })
        };
        Rank {
            rank: u32::try_from(rank).unwrap_or(0),
            active_decode_blocks: signal(FigureKind::ActiveDecodeBlocks),
            tracked_decode_blocks: signal(FigureKind::TrackedDecodeBlocks),
            active_prefill_tokens: signal(FigureKind::ActivePrefillTokens),
            tracked_prefill_tokens: signal(FigureKind::TrackedPrefillTokens),
            kv_total_blocks: number(FigureKind::KvTotalBlocks.field()),
            max_num_batched_tokens: number(FigureKind::MaxNumBatchedTokens.field()),
        }
    };
    (first..first + size).map(rank).collect()
}
