//! The sequential model of one model's shared state: the reference for the Lua scripts.

use super::op::*;

/// One model's shared state.
#[derive(Debug, Clone, Default)]
pub struct Fleet {}

impl Fleet {
    /// `lua/hello.lua`.
    pub fn hello(&mut self, op: &Hello, now_ms: u64) -> Fenced<Welcome> {
        let _ = (op, now_ms);
        Fenced::Gone
    }

    /// `lua/decide.lua`.
    pub fn decide(&mut self, op: &Decide, now_ms: u64) -> Fenced<Decided> {
        let _ = (op, now_ms);
        Fenced::Gone
    }

    /// `lua/heartbeat.lua`.
    pub fn heartbeat(&mut self, op: &Heartbeat, now_ms: u64) -> Fenced<Pulse> {
        let _ = (op, now_ms);
        Fenced::Gone
    }

    /// `lua/reconcile.lua`.
    pub fn reconcile(&mut self, op: &Reconcile, now_ms: u64) -> Fenced<Reconciled> {
        let _ = (op, now_ms);
        Fenced::Gone
    }

    /// `lua/sweep.lua`.
    pub fn sweep(&mut self, op: &Sweep, now_ms: u64) -> Swept {
        let _ = (op, now_ms);
        Swept::Epoch
    }

    /// `lua/register.lua`.
    pub fn register(&mut self, op: &Register, now_ms: u64) -> Registered {
        let _ = (op, now_ms);
        Registered::Vacant
    }

    /// `lua/report.lua`.
    pub fn report(&mut self, op: &Report, now_ms: u64) -> Reported {
        let _ = (op, now_ms);
        Reported::Register
    }

    /// `lua/drain.lua`.
    pub fn drain(&mut self, op: &Drain, now_ms: u64) -> () {
        let _ = (op, now_ms);
        ()
    }

    /// `lua/leave.lua`.
    pub fn leave(&mut self, op: &Leave, now_ms: u64) -> () {
        let _ = (op, now_ms);
        ()
    }

    /// `lua/configure.lua`.
    pub fn configure(&mut self, op: &Configure, now_ms: u64) -> Configured {
        let _ = (op, now_ms);
        Configured::Unknown
    }

    /// `lua/snapshot.lua`.
    pub fn snapshot(&mut self, op: &Snapshot, now_ms: u64) -> Page {
        let _ = (op, now_ms);
        Page::default()
    }
}
