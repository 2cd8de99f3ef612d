//! What frontends call: `hello`, `decide`, `heartbeat`, `reconcile`, `sweep`.

use redis::Value;

use super::reply::Reply;
use super::{BadReply, Invocation, Operation, Script};
use crate::core::fleet::Fleet;
use crate::core::id::{FrontendId, WorkerId};
use crate::core::op::{
    Caller, Cause, Decide, Decided, Fenced, Heartbeat, Hello, Pulse, Reconcile, Reconciled, Sweep, Swept, Verdict,
    Welcome,
};
use crate::keys::ModelKeys;

fn caller_args(caller: &Caller, more: usize) -> Vec<String> {
    let mut args = Vec::with_capacity(7 + more);
    args.extend([
        caller.frontend.to_string(),
        caller.epoch.clone(),
        caller.seq.to_string(),
        caller.acked.to_string(),
        caller.seen.to_string(),
        flag(caller.mem),
        caller.nonce.clone(),
    ]);
    args
}

pub(super) fn flag(on: bool) -> String {
    if on { "1".into() } else { "0".into() }
}

fn keys_of(keys: &ModelKeys, caller: &Caller) -> Vec<String> {
    let mut all = keys.shard().to_vec();
    all.push(keys.leases(&caller.frontend));
    all
}

/// A call on frontends and workers by name: their own keys after the shard; a random word, how many frontends, the names.
pub(super) fn by_name(
    script: &'static Script,
    keys: &ModelKeys,
    nonce: &str,
    frontends: &[FrontendId],
    workers: &[WorkerId],
) -> Invocation {
    let mut all = keys.shard().to_vec();
    all.extend(frontends.iter().map(|f| keys.leases(f)));
    all.extend(workers.iter().map(|w| keys.worker(w)));
    let mut args = vec![nonce.to_owned(), frontends.len().to_string()];
    args.extend(frontends.iter().map(ToString::to_string));
    args.extend(workers.iter().map(ToString::to_string));
    Invocation { script, keys: all, args }
}

/// Reads what the fence answers, or with `done` what stands behind `ok`.
fn fenced<T>(
    script: &'static str,
    value: Value,
    done: impl FnOnce(&mut Reply) -> Result<T, BadReply>,
) -> Result<Fenced<T>, BadReply> {
    let mut reply = Reply::new(script, value)?;
    Ok(match reply.text()?.as_str() {
        "ok" => Fenced::Done(done(&mut reply)?),
        "stale" => Fenced::Stale { stored: reply.number()? },
        "gone" => Fenced::Gone,
        "epoch" => Fenced::Epoch { healing_ms: reply.number()? },
        "healing" => Fenced::Healing { left_ms: reply.number()? },
        other => return Err(reply.bad(format!("code {other:?}"))),
    })
}

impl Operation for Hello {
    type Reply = Fenced<Welcome>;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        Invocation { script: super::hello(), keys: keys.shard().to_vec(), args: caller_args(&self.0, 0) }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        fenced("hello", value, |r| Ok(Welcome { epoch: r.text()?, healing_ms: r.number()?, revision: r.number()? }))
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.hello(self, now_ms)
    }
}

impl Operation for Decide {
    type Reply = Fenced<Decided>;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        let mut args =
            caller_args(&self.caller, 4 + self.releases.len() + 2 * self.skips.len() + 4 * self.admissions.len());
        args.extend([
            self.seed.to_string(),
            self.releases.len().to_string(),
            self.skips.len().to_string(),
            self.admissions.len().to_string(),
        ]);
        args.extend(self.releases.iter().map(ToString::to_string));
        for (worker, incarnation) in &self.skips {
            args.extend([worker.to_string(), incarnation.to_string()]);
        }
        for a in &self.admissions {
            args.push(a.id.to_string());
            if a.pin.is_none() && a.exclude.is_empty() {
                args.push(a.tokens.to_string());
                continue;
            }
            args.extend([
                format!("{}*", a.tokens),
                a.pin.as_ref().map(ToString::to_string).unwrap_or_default(),
                a.exclude.len().to_string(),
            ]);
            args.extend(a.exclude.iter().map(ToString::to_string));
        }
        Invocation { script: super::decide(), keys: keys_of(keys, &self.caller), args }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        fenced("decide", value, |r| {
            Ok(Decided {
                revision: r.number()?,
                drain_per_ks: r.number()?,
                shed: r.number()?,
                verdicts: r.rest(verdict)?,
            })
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.decide(self, now_ms)
    }
}

fn verdict(r: &mut Reply) -> Result<Verdict, BadReply> {
    let code = r.text()?;
    let revision = r.number()?;
    if code == "admitted" {
        return Ok(Verdict::Admitted { revision, worker: r.worker()?, incarnation: r.incarnation()?, url: r.text()? });
    }
    let cause = Cause::from_code(&code).ok_or_else(|| r.bad(format!("verdict {code:?}")))?;
    Ok(Verdict::Refused { revision, cause })
}

impl Operation for Heartbeat {
    type Reply = Fenced<Pulse>;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        Invocation { script: super::heartbeat(), keys: keys_of(keys, &self.0), args: caller_args(&self.0, 0) }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        fenced("heartbeat", value, |r| {
            let mut pulse = Pulse {
                revision: r.number()?,
                healing_ms: r.number()?,
                frontends: r.number()?,
                config_version: r.number()?,
                fleet_version: r.number()?,
                inflight_total: r.number()?,
                inflight: Vec::new(),
                due_workers: Vec::new(),
                due_frontends: Vec::new(),
            };
            for _ in 0..r.number()? {
                let (worker, inflight) = (r.stray_worker()?, r.number()?);
                pulse.inflight.extend(worker.map(|w| (w, inflight)));
            }
            for _ in 0..r.number()? {
                pulse.due_workers.extend(r.stray_worker()?);
            }
            pulse.due_frontends = r.rest(Reply::stray_frontend)?.into_iter().flatten().collect();
            Ok(pulse)
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.heartbeat(self, now_ms)
    }
}

impl Operation for Reconcile {
    type Reply = Fenced<Reconciled>;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        let mut workers: Vec<&WorkerId> = Vec::new();
        let mut leases = Vec::with_capacity(5 * self.leases.len());
        for held in &self.leases {
            let known = workers.iter().position(|w| **w == held.worker);
            let number = known.unwrap_or_else(|| {
                workers.push(&held.worker);
                workers.len() - 1
            }) + 1;
            leases.extend([
                held.id.to_string(),
                number.to_string(),
                held.incarnation.to_string(),
                held.url.clone(),
                held.tokens.to_string(),
            ]);
        }
        let mut all = keys_of(keys, &self.caller);
        all.extend(workers.iter().map(|w| keys.worker(w)));
        let mut args = caller_args(&self.caller, 2 + workers.len() + leases.len());
        args.extend([flag(self.first), workers.len().to_string()]);
        args.extend(workers.iter().map(ToString::to_string));
        args.extend(leases);
        Invocation { script: super::reconcile(), keys: all, args }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        // `again` is this script's own code beside those of the fence.
        if let Value::Array(values) = &value
            && matches!(values.first(), Some(Value::BulkString(code)) if code == b"again")
        {
            return Ok(Fenced::Done(Reconciled::Again));
        }
        fenced("reconcile", value, |r| {
            Ok(Reconciled::Done {
                epoch: r.text()?,
                healing_ms: r.number()?,
                revision: r.number()?,
                frontends: r.number()?,
                dropped: r.rest(Reply::lease)?,
            })
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.reconcile(self, now_ms)
    }
}

impl Operation for Sweep {
    type Reply = Swept;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        by_name(super::sweep(), keys, &self.nonce, &self.frontends, &self.workers)
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("sweep", value)?;
        match r.text()?.as_str() {
            "ok" => Ok(Swept::Done { more: r.rest(Reply::frontend)? }),
            "epoch" => Ok(Swept::Epoch),
            other => Err(r.bad(format!("code {other:?}"))),
        }
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.sweep(self, now_ms)
    }
}
