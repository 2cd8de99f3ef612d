//! Who runs, who waits, who stands at the door: the bookkeeping of the gate, without waiting itself.
//!
//! Everyone is served in order of arrival. At most N run; at most Q wait behind them; who finds both full stands at the
//! door for a moment (design section 3.5) and is let in or turned away.

use std::collections::BTreeMap;

/// N and Q.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// N: most that run; none: no cap, and nobody ever waits.
    pub slots: Option<u64>,
    /// Q: most that wait.
    pub queue: u64,
}

/// How many are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Slots taken.
    pub running: u64,
    /// Queue places taken.
    pub queued: u64,
    /// Neither yet.
    pub at_door: u64,
}

/// Names one who waits; rises with time of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// The line. `T` is what belongs to one who waits.
#[derive(Debug)]
pub(super) struct Line<T> {
    limits: Limits,
    running: u64,
    queue: BTreeMap<Ticket, T>,
    door: BTreeMap<Ticket, T>,
    last: u64,
}

impl<T> Line<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, running: 0, queue: BTreeMap::new(), door: BTreeMap::new(), last: 0 }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { running: self.running, queued: self.queue.len() as u64, at_door: self.door.len() as u64 }
    }

    /// Somebody who arrives now would be let in at once, or find a queue place.
    pub(super) fn has_room(&self) -> bool {
        match self.limits.slots {
            None => true,
            Some(slots) => {
                self.running.saturating_add(self.queue.len() as u64) < slots.saturating_add(self.limits.queue)
            }
        }
    }

    fn slot_free(&self) -> bool {
        self.limits.slots.is_none_or(|slots| self.running < slots)
    }

    /// Takes a slot if nobody is before this one.
    pub(super) fn enter(&mut self) -> bool {
        let free = self.slot_free() && self.queue.is_empty() && self.door.is_empty();
        if free {
            self.running += 1;
        }
        free
    }

    /// Stands at the end of the line. [`Line::settle`] must follow.
    pub(super) fn join(&mut self, waiter: T) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        self.door.insert(ticket, waiter);
        ticket
    }

    /// Turns it away if it is still at the door. False: it has a queue place or a slot.
    pub(super) fn turn_away(&mut self, ticket: Ticket) -> bool {
        self.door.remove(&ticket).is_some()
    }

    /// Gives up waiting; none if it was let in already. [`Line::settle`] must follow.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> Option<T> {
        self.queue.remove(&ticket).or_else(|| self.door.remove(&ticket))
    }

    /// One that ran has ended. [`Line::settle`] must follow.
    pub(super) fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
    }

    /// Changes N and Q; cuts nobody. [`Line::settle`] must follow.
    pub(super) fn set(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Moves everyone up as far as there is room. Those it returns hold a slot now.
    pub(super) fn settle(&mut self) -> Vec<T> {
        let mut let_in = Vec::new();
        loop {
            if self.slot_free()
                && let Some((_, waiter)) = self.queue.pop_first().or_else(|| self.door.pop_first())
            {
                self.running += 1;
                let_in.push(waiter);
            } else if (self.queue.len() as u64) < self.limits.queue
                && let Some((ticket, waiter)) = self.door.pop_first()
            {
                self.queue.insert(ticket, waiter);
            } else {
                return let_in;
            }
        }
    }
}
