//! What a session shows of itself.

use std::sync::Arc;

use super::{Place, Session, Waiter};
use crate::core::id::{FrontendId, LeaseId};
use crate::core::op::Pulse;
use crate::core::retry_after::Drain;

impl<W: Waiter> Session<W> {
    /// Redis does not decide now: its breaker is open, or an epoch heals.
    #[must_use]
    pub fn is_static(&self, now: u64) -> bool {
        self.open || now < self.healing_until
    }

    /// Nothing is held, waits, or is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.releases.is_empty() && self.flying.is_empty()
    }

    /// It has been answered in an adopted epoch, and may decide.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        !self.hello && !self.assert && !self.first && !self.open
    }

    /// The breaker is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The present id.
    #[must_use]
    pub fn id(&self) -> &FrontendId {
        &self.id
    }

    /// The epoch adopted; empty before the first.
    #[must_use]
    pub fn epoch(&self) -> &str {
        &self.epoch
    }

    /// The highest revision seen.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.seen
    }

    /// Time of the last good contact.
    #[must_use]
    pub fn good_at(&self) -> Option<u64> {
        self.good_at
    }

    /// The last reply to a heartbeat.
    #[must_use]
    pub fn pulse(&self) -> Option<&Arc<Pulse>> {
        self.pulse.as_ref()
    }

    /// How fast requests end, as last told.
    #[must_use]
    pub fn drain(&self) -> Option<Drain> {
        self.drain
    }

    /// Leases held now: id, place, and whether Redis holds (or will be told of) it.
    pub fn held(&self) -> impl Iterator<Item = (&LeaseId, &Place, bool)> {
        self.held.iter().map(|(id, e)| (id, &*e.place, !e.unlisted))
    }

    /// How many leases are held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// Leases that Redis had lost, or did not have yet, and that were put back, since the start.
    #[must_use]
    pub fn healed(&self) -> u64 {
        self.healed
    }

    /// How often the breaker opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }
}
