//! An operator starts a new epoch (`lua/repair.lua`).

use super::script::{Script, Step};
use crate::core::op::Repair;

const WORKER_MEMORY_MS: i64 = 3_600_000;

impl Script<'_> {
    pub(super) fn repair(&mut self, op: &Repair) -> Step<u64> {
        self.load_stats()?;
        let healing_ms = self.new_epoch("repair")?;
        for frontend in &op.frontends {
            if self.d.frontends.read()?.score(frontend.as_str()).is_none() {
                self.d.leases.remove(frontend.as_str());
            }
        }
        let expires_ms = Some(self.now + WORKER_MEMORY_MS);
        for worker in &op.workers {
            self.d.worker.get_mut(worker.as_str()).into_iter().for_each(|key| key.expires_ms = expires_ms);
        }
        Ok(healing_ms)
    }
}
