//! Waiting for a condition instead of for a time.

use std::time::{Duration, Instant};

/// What a passing test may need on a busy machine; a failing one gives up after it.
const PATIENCE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(10);

/// Polls until `condition` holds, for 20 s at the most; then fails naming `what`.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) {
    eventually_within(PATIENCE, what, condition).await;
}

/// Polls until `condition` holds, for `patience` at the most; then fails naming `what`.
pub(crate) async fn eventually_within(patience: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition().await {
        assert!(Instant::now() < deadline, "not within {patience:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// Polls for `time` and fails naming `what` as soon as `condition` does not hold: for what must *not* happen.
pub(crate) async fn holds_for(time: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition().await, "did not stay so for {time:?}: {what}");
        tokio::time::sleep(STEP).await;
    }
}
