//! What sidecars call: `register`, `report`, `drain`, `leave`.

use redis::Value;

use super::reply::Reply;
use super::request::flag;
use super::{BadReply, Invocation, Operation};
use crate::core::fleet::Fleet;
use crate::core::id::WorkerId;
use crate::core::op::{Drain, Figure, Leave, Register, Registered, Registration, Report, Reported};
use crate::keys::ModelKeys;

fn keys_of(keys: &ModelKeys, worker: &WorkerId) -> Vec<String> {
    let mut all = keys.shard().to_vec();
    all.push(keys.worker(worker));
    all
}

/// As `lua/include/registration.lua` reads it.
fn registration_args(args: &mut Vec<String>, r: &Registration, figures: &[Figure]) {
    args.extend([
        r.url.clone(),
        r.data_parallel_start_rank.to_string(),
        r.data_parallel_size.to_string(),
        r.engine_request_limit.map(|n| n.to_string()).unwrap_or_default(),
        r.request_queue_limit.to_string(),
        r.kv_block_size.to_string(),
        flag(r.draining),
        flag(r.engine_down),
        r.worker_ttl_ms.to_string(),
    ]);
    for f in figures {
        args.extend([f.rank.to_string(), f.kind.field().to_owned(), f.value.to_string()]);
    }
}

impl Operation for Register {
    type Reply = Registered;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        let mut args = vec![
            self.registration.worker.to_string(),
            self.nonce.clone(),
            self.incarnation.as_ref().map(ToString::to_string).unwrap_or_default(),
            flag(self.known),
            flag(self.yields),
            self.number.to_string(),
        ];
        registration_args(&mut args, &self.registration, &self.figures);
        Invocation { script: super::register(), keys: keys_of(keys, &self.registration.worker), args }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("register", value)?;
        Ok(match r.text()?.as_str() {
            "ok" => Registered::Ok { incarnation: r.incarnation()? },
            "superseded" => Registered::Superseded,
            "vacant" => Registered::Vacant,
            "invalid" => Registered::Invalid { field: r.text()?, value: r.text()? },
            "epoch" => Registered::Again,
            other => return Err(r.bad(format!("code {other:?}"))),
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.register(self, now_ms)
    }
}

impl Operation for Report {
    type Reply = Reported;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        let mut args = vec![
            self.registration.worker.to_string(),
            self.incarnation.to_string(),
            self.number.to_string(),
            flag(self.room),
            self.nonce.clone(),
        ];
        registration_args(&mut args, &self.registration, &self.figures);
        Invocation { script: super::report(), keys: keys_of(keys, &self.registration.worker), args }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("report", value)?;
        Ok(match r.text()?.as_str() {
            "ok" => Reported::Ok { busy: r.flag()?, config_version: r.number()?, track_output_blocks: r.flag()? },
            "ignored" => Reported::Ignored,
            "register" | "epoch" => Reported::Register,
            "superseded" => Reported::Superseded,
            "vacant" => Reported::Vacant,
            "invalid" => Reported::Invalid { field: r.text()?, value: r.text()? },
            other => return Err(r.bad(format!("code {other:?}"))),
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.report(self, now_ms)
    }
}

/// `{'ok'}`, or an epoch that was started on the way: nothing to tell a sidecar that is leaving.
fn nothing(script: &'static str, value: Value) -> Result<(), BadReply> {
    let mut r = Reply::new(script, value)?;
    match r.text()?.as_str() {
        "ok" | "epoch" => Ok(()),
        other => Err(r.bad(format!("code {other:?}"))),
    }
}

impl Operation for Drain {
    type Reply = ();

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        Invocation {
            script: super::drain(),
            keys: keys_of(keys, &self.worker),
            args: vec![self.worker.to_string(), self.incarnation.to_string(), flag(self.on)],
        }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        nothing("drain", value)
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.drain(self, now_ms);
    }
}

impl Operation for Leave {
    type Reply = ();

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        Invocation {
            script: super::leave(),
            keys: keys.shard().to_vec(),
            args: vec![self.worker.to_string(), self.incarnation.to_string()],
        }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        nothing("leave", value)
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.leave(self, now_ms);
    }
}
