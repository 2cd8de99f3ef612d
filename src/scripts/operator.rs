//! What operators call: `configure`, `snapshot`, `repair`.

use redis::Value;

use super::reply::Reply;
use super::request::by_name;
use super::{BadReply, Invocation, Operation};
use crate::core::fleet::Fleet;
use crate::core::id::{FrontendId, Incarnation};
use crate::core::op::{Configure, Configured, Page, Repair, Snapshot, WorkerRow};
use crate::keys::ModelKeys;

impl Operation for Configure {
    type Reply = Configured;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        let mut args = vec![self.source.name().to_owned()];
        for (field, value) in &self.changes {
            args.extend([field.clone(), value.clone().unwrap_or_default()]);
        }
        Invocation { script: super::configure(), keys: keys.shard().to_vec(), args }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("configure", value)?;
        Ok(match r.text()?.as_str() {
            "ok" => Configured::Ok { config_version: r.number()?, applied: r.pairs()? },
            "invalid" => Configured::Invalid { field: r.text()?, value: r.text()? },
            "unknown" | "epoch" => Configured::Unknown,
            other => return Err(r.bad(format!("code {other:?}"))),
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.configure(self, now_ms)
    }
}

impl Operation for Snapshot {
    type Reply = Page;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        Invocation { script: super::snapshot(), keys: keys.shard().to_vec(), args: vec![self.cursor.clone()] }
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("snapshot", value)?;
        Ok(Page {
            cursor: r.text()?,
            now_ms: r.number()?,
            stats: r.list()?.pairs()?,
            applied: r.list()?.pairs()?,
            frontends: r.list()?.rest(frontend_row)?.into_iter().flatten().collect(),
            workers: r.list()?.rest(worker_row)?.into_iter().flatten().collect(),
        })
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.snapshot(self, now_ms)
    }
}

impl Operation for Repair {
    type Reply = u64;

    fn invocation(&self, keys: &ModelKeys) -> Invocation {
        by_name(super::repair(), keys, &self.nonce, &self.frontends, &self.workers)
    }

    fn reply(value: Value) -> Result<Self::Reply, BadReply> {
        let mut r = Reply::new("repair", value)?;
        match r.text()?.as_str() {
            "epoch" => r.number(),
            other => Err(r.bad(format!("code {other:?}"))),
        }
    }

    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply {
        fleet.repair(self, now_ms)
    }
}

/// frontend, alive until; none if the name is none of ours.
fn frontend_row(r: &mut Reply) -> Result<Option<(FrontendId, u64)>, BadReply> {
    let (name, until) = (r.stray_frontend()?, r.number()?);
    Ok(name.map(|name| (name, until)))
}

/// worker, `incarnation|cap|closed|url`, in flight; none if the name is none of ours.
fn worker_row(r: &mut Reply) -> Result<Option<WorkerRow>, BadReply> {
    let Some(worker) = r.stray_worker()? else {
        r.text()?;
        r.number()?;
        return Ok(None);
    };
    let gate = r.text()?;
    let mut parts = gate.splitn(4, '|');
    let (Some(incarnation), Some(cap), Some(closed), Some(url)) =
        (parts.next().and_then(Incarnation::parse), parts.next(), parts.next(), parts.next())
    else {
        return Err(r.bad(format!("gate {gate:?} of {worker:?}")));
    };
    let row = WorkerRow {
        incarnation,
        cap: cap.parse().ok(),
        closed: closed.to_owned(),
        url: url.to_owned(),
        inflight: r.number()?,
        worker,
    };
    Ok(Some(row))
}
