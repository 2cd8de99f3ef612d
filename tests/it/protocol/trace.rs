//! Calls and answers in few words.

use std::fmt::Write as _;

use tidegate::core::op::{Caller, Fenced, Reconciled, Verdict};
use tidegate::core::registrar;
use tidegate::core::session::{Call, Reply};

use super::wire::{Answer, Command};

fn caller(c: &Caller) -> String {
    format!("{} s{} a{} e{}", c.frontend, c.seq, c.acked, c.epoch)
}

/// What was asked.
pub(super) fn command(command: &Command) -> String {
    let mut out = String::new();
    let _ = match command {
        Command::Session(_, Call::Hello(op)) => write!(out, "hello {}", caller(&op.0)),
        Command::Session(_, Call::Heartbeat(op)) => write!(out, "heartbeat {}", caller(&op.0)),
        Command::Session(_, Call::Reconcile(op)) => {
            let leases = op.leases.iter().map(|l| format!("{}@{}", l.id, l.incarnation)).collect::<Vec<_>>();
            write!(out, "reconcile {} first {} {}", caller(&op.caller), op.first, leases.join(" "))
        }
        Command::Session(_, Call::Decide(op)) => {
            let admissions: Vec<_> = op.admissions.iter().map(|a| a.id.as_str()).collect();
            let who = caller(&op.caller);
            write!(out, "decide {who} release {:?} skip {:?} admit {admissions:?}", op.releases, op.skips)
        }
        Command::Sweep(op) => write!(out, "sweep {:?} {:?}", op.workers, op.frontends),
        Command::Snapshot => write!(out, "snapshot"),
        Command::Registrar(registrar::Call::Register(op)) => {
            let r = &op.registration;
            write!(
                out,
                "register {} nonce {} had {:?} number {} cap {:?}",
                r.worker, op.nonce, op.incarnation, op.number, r.engine_request_limit
            )
        }
        Command::Registrar(registrar::Call::Report(op)) => {
            let r = &op.registration;
            let value = op.figures.last().map_or(0, |f| f.value);
            write!(
                out,
                "report {} {} number {} cap {:?} room {} load {value}",
                r.worker, op.incarnation, op.number, r.engine_request_limit, op.room
            )
        }
        Command::Leave(op) => write!(out, "leave {} {}", op.worker, op.incarnation),
    };
    out
}

fn fenced<T>(reply: &Fenced<T>, done: impl FnOnce(&T) -> String) -> String {
    match reply {
        Fenced::Done(reply) => done(reply),
        Fenced::Stale { stored } => format!("STALE {stored}"),
        Fenced::Gone => "GONE".into(),
        Fenced::Epoch { healing_ms } => format!("EPOCH {healing_ms}"),
        Fenced::Healing { left_ms } => format!("HEALING {left_ms}"),
    }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Admitted { incarnation, revision, .. } => format!("{incarnation} ({revision})"),
        Verdict::Refused { cause, .. } => cause.code().into(),
    }
}

/// What came of it.
pub(super) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Session(Reply::Hello(reply)) => fenced(reply, |w| format!("ok {} healing {}", w.epoch, w.healing_ms)),
        Answer::Session(Reply::Heartbeat(reply)) => {
            fenced(reply, |p| format!("ok {} due {:?} {:?}", p.revision, p.due_workers, p.due_frontends))
        }
        Answer::Session(Reply::Decide(reply)) => fenced(reply, |d| {
            format!("ok {} {}", d.revision, d.verdicts.iter().map(verdict).collect::<Vec<_>>().join(", "))
        }),
        Answer::Session(Reply::Reconcile(reply)) => fenced(reply, |r| match r {
            Reconciled::Again => "again".into(),
            Reconciled::Done { epoch, healing_ms, dropped, .. } => {
                format!("ok {epoch} healing {healing_ms} dropped {dropped:?}")
            }
        }),
        Answer::Registrar(reply) => format!("{reply:?}"),
        Answer::Swept(reply) => format!("{reply:?}"),
        Answer::Page(_) => "page".into(),
        Answer::Left => "ok".into(),
        Answer::Failed => "FAILED".into(),
        Answer::Unknown => "UNKNOWN".into(),
    }
}
