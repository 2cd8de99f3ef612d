//! The way out: drain, wait, leave (design section 6).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::core::op::Leave;
use crate::core::registrar::Standing;
use crate::http::serve::Control;
use crate::store::Store;

use super::gate::Counts;
use super::report::Push;
use super::state::State;

/// Longest wait for the news that this worker drains to be in Redis.
const TOLD: Duration = Duration::from_secs(2);
/// Requests that were admitted before the news may still be on their way for this long.
const ON_THE_WAY: Duration = Duration::from_millis(500);
/// Between two looks at whether the last request has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Takes this worker out of routing and waits until it is idle, for `--drain-seconds` at the most.
pub(super) async fn drain(state: &Arc<State>, control: &Control, pushes: &mpsc::Sender<Push>) {
    let deadline = Instant::now() + state.settings.drain;
    tracing::info!(seconds = state.settings.drain.as_secs(), "draining");
    state.drain();
    if state.place.load().standing == Standing::Held {
        let told = async {
            let (done, told) = oneshot::channel();
            pushes.send(Push { figures: Vec::new(), done }).await.ok()?;
            told.await.ok()?.ok()
        };
        if timeout(TOLD.min(state.settings.drain), told).await.ok().flatten().is_none() {
            tracing::warn!("Redis does not know that this worker drains");
        }
    }
    control.close_after_answers();
    let mut idle_since = Instant::now();
    loop {
        let now = Instant::now();
        if state.gate.counts() != Counts::default() {
            idle_since = now;
        }
        let idle = now.saturating_duration_since(idle_since) >= ON_THE_WAY;
        if idle || now >= deadline {
            return;
        }
        sleep(LOOK.min(deadline - now)).await;
    }
}

/// Says goodbye; the reporter has ended, so nothing brings the worker back.
pub(super) async fn leave(state: &State, store: &Store) {
    let place = state.place.load();
    let Some(incarnation) = place.incarnation.clone().filter(|_| place.standing == Standing::Held) else { return };
    let leave = Leave { worker: state.settings.worker.clone(), incarnation };
    match store.call(&state.settings.model, &leave).await {
        Ok(_) => tracing::info!("left"),
        Err(error) => tracing::warn!(%error, "could not leave: Redis will notice the silence"),
    }
}
