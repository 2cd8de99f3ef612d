//! Workers that this frontend cannot connect to: left out by it alone, for 1 s at first, doubling to 8 s (design
//! section 3.7).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::core::id::{ModelName, WorkerId};
use crate::core::op::MAX_EXCLUDED;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(8);
/// A worker that nobody has tried for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The workers left out.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// How many there are: mostly none, and then no lock is taken.
    count: AtomicUsize,
    models: Mutex<HashMap<ModelName, HashMap<WorkerId, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    until: Instant,
    pause: Duration,
}

impl Away {
    /// Those to leave out now.
    pub(super) fn of(&self, model: &ModelName, now: Instant) -> Vec<WorkerId> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(workers) = models.get(model) else { return Vec::new() };
        let away = workers.iter().filter(|(_, entry)| entry.until > now);
        away.take(MAX_EXCLUDED).map(|(worker, _)| worker.clone()).collect()
    }

    /// It could not be connected to.
    pub(super) fn failed(&self, model: &ModelName, worker: &WorkerId, now: Instant) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        models.retain(|_, workers| {
            workers.retain(|_, entry| entry.until + FORGOTTEN > now);
            !workers.is_empty()
        });
        let workers = models.entry(model.clone()).or_default();
        let entry = workers.entry(worker.clone()).or_insert(Entry { until: now, pause: FIRST / 2 });
        // Requests that were under way together count once.
        if entry.until <= now {
            entry.pause = (entry.pause * 2).min(LONGEST);
            entry.until = now + entry.pause;
        }
        self.count.store(models.values().map(HashMap::len).sum(), Ordering::Relaxed);
    }

    /// It could.
    pub(super) fn reached(&self, model: &ModelName, worker: &WorkerId) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workers) = models.get_mut(model) {
            workers.remove(worker);
        }
        self.count.store(models.values().map(HashMap::len).sum(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f120_a_worker_that_cannot_be_reached_is_left_out_for_longer_and_longer() {
        let (away, start) = (Away::default(), Instant::now());
        let model = ModelName::parse("m").expect("a name");
        let worker = WorkerId::parse("w").expect("a name");
        let mut now = start;
        for pause in [1, 2, 4, 8, 8] {
            away.failed(&model, &worker, now);
            away.failed(&model, &worker, now + Duration::from_millis(10));
            let until = now + Duration::from_secs(pause);
            assert_eq!(away.of(&model, until - Duration::from_millis(1)), std::slice::from_ref(&worker));
            assert_eq!(away.of(&ModelName::parse("other").expect("a name"), now), []);
            assert_eq!(away.of(&model, until), []);
            now = until;
        }
        away.reached(&model, &worker);
        away.failed(&model, &worker, now);
        assert_eq!(away.of(&model, now + FIRST), []);
    }

    #[test]
    fn workers_that_are_not_tried_any_more_are_forgotten() {
        let (away, start) = (Away::default(), Instant::now());
        let model = ModelName::parse("m").expect("a name");
        for n in 0..100 {
            away.failed(&model, &WorkerId::parse(&format!("w{n}")).expect("a name"), start);
        }
        away.failed(&model, &WorkerId::parse("last").expect("a name"), start + FORGOTTEN + LONGEST);
        assert_eq!(away.count.load(Ordering::Relaxed), 1);
    }
}
