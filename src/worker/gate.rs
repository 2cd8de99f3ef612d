//! The worker-side gate: exactly N requests in the engine and Q waiting, in order of arrival (design section 3.5).

mod line;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

pub use line::{Counts, Limits};
use line::{Line, Ticket};

/// How long an arrival at a full gate waits for a place: a slot whose holder is just leaving must not be mistaken for a
/// full one (design section 3.5).
pub const PATIENCE: Duration = Duration::from_millis(50);

/// Why the gate turned a request away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turned {
    /// N run and Q wait.
    Full,
    /// It waited longer than `--queue-timeout-ms`.
    Late,
}

/// The gate. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate {
    shared: Arc<Shared>,
    queue_timeout: Option<Duration>,
}

#[derive(Debug)]
struct Shared {
    line: Mutex<Line<oneshot::Sender<Slot>>>,
}

impl Shared {
    // A thread that panicked while it held the lock left whole numbers behind: the line is usable.
    fn lock(&self) -> MutexGuard<'_, Line<oneshot::Sender<Slot>>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the engine, given back on drop.
#[derive(Debug)]
#[must_use = "the slot is given back on drop"]
pub struct Slot {
    shared: Arc<Shared>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        change(&self.shared, Line::end);
    }
}

/// Changes the line and lets in whom it makes room for.
fn change<R>(shared: &Arc<Shared>, how: impl FnOnce(&mut Line<oneshot::Sender<Slot>>) -> R) -> R {
    let (result, let_in) = {
        let mut line = shared.lock();
        let result = how(&mut line);
        (result, line.settle())
    };
    for waiter in let_in {
        // Outside the lock: if the waiter has gone, its slot is dropped here and goes to the next one.
        let _ = waiter.send(Slot { shared: Arc::clone(shared) });
    }
    result
}

/// Takes its ticket out of the line on drop, so that one who has gone does not keep a place.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        drop(change(self.shared, |line| line.give_up(self.ticket)));
    }
}

impl Gate {
    /// An empty gate.
    #[must_use]
    pub fn new(limits: Limits, queue_timeout: Option<Duration>) -> Self {
        Self { shared: Arc::new(Shared { line: Mutex::new(Line::new(limits)) }), queue_timeout }
    }

    /// N and Q in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.lock().limits()
    }

    /// Changes N and Q: raising lets waiting requests in at once, lowering cuts nobody.
    pub fn set(&self, limits: Limits) {
        change(&self.shared, |line| line.set(limits));
    }

    /// How many run and wait.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.lock().counts()
    }

    /// Fewer than N + Q are in the system.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.lock().has_room()
    }

    /// Waits for a slot. Dropping the future leaves the line.
    ///
    /// # Errors
    /// [`Turned`].
    pub async fn enter(&self) -> Result<Slot, Turned> {
        let (mut slot, waiting) = {
            let mut line = self.shared.lock();
            if line.enter() {
                return Ok(Slot { shared: Arc::clone(&self.shared) });
            }
            let (sender, receiver) = oneshot::channel();
            let ticket = line.join(sender);
            // Nobody can be let in by an arrival: the slots were taken, or others are before it. A queue place, yes.
            let nobody = line.settle();
            debug_assert!(nobody.is_empty(), "an arrival lets nobody in");
            (receiver, Waiting { shared: &self.shared, ticket })
        };
        let arrival = Instant::now();
        let late = self.queue_timeout.map(|patience| arrival + patience);
        let at_door = arrival + late.map_or(PATIENCE, |late| PATIENCE.min(late - arrival));
        if let Ok(won) = timeout_at(at_door, &mut slot).await {
            return won.map_err(|_| Turned::Full);
        }
        if self.shared.lock().turn_away(waiting.ticket) {
            return Err(Turned::Full);
        }
        let Some(late) = late else { return slot.await.map_err(|_| Turned::Full) };
        if let Ok(won) = timeout_at(late, &mut slot).await {
            return won.map_err(|_| Turned::Full);
        }
        if self.shared.lock().give_up(waiting.ticket).is_some() {
            return Err(Turned::Late);
        }
        // Its slot was handed over at this very moment.
        slot.await.map_err(|_| Turned::Late)
    }
}
