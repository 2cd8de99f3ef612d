//! Cap races.

use crate::harness::{Crowd, Fleet, Process, Script, Stub, chat_body, eventually, rounds, with_status};

#[tokio::test(flavor = "multi_thread")]
async fn f019_three_routers_never_let_in_more_than_the_limit() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    engine.script(Script::hold());
    let _worker = fleet.worker("w1", &engine, &["--engine-request-limit", "4", "--request-queue-limit", "2"]).await;
    // See `contract::barrier`: on a busy machine the usual budget of a call is not always kept.
    let patient = ["--redis-timeout-ms", "10000"];
    let frontends = [fleet.frontend(&patient).await, fleet.frontend(&patient).await, fleet.frontend(&patient).await];
    let addresses = frontends.each_ref().map(Process::address);
    for _ in 0..rounds(4, 20) {
        let mut crowd = Crowd::start(&addresses, 60, &chat_body("m")).await;
        crowd.answered(54).await;
        eventually("four run", async || engine.holding() == 4).await;
        engine.open();
        let answers = crowd.finish().await;
        assert_eq!((with_status(&answers, 200), with_status(&answers, 529)), (6, 54));
        fleet.quiet().await;
        engine.shut();
    }
    assert_eq!(engine.peak(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn f021_a_limiter_nobody_has_used_before_is_full_when_it_is_full() {
    for slots in [1, 2] {
        let fleet = Fleet::new();
        let engine = Stub::start().await;
        engine.script(Script::hold());
        let limits = ["--engine-request-limit", &slots.to_string(), "--request-queue-limit", "0"];
        let _worker = fleet.worker("w1", &engine, &limits).await;
        let (first, second) = (fleet.frontend(&[]).await, fleet.frontend(&[]).await);
        let held = Crowd::start(&[first.address()], slots, &chat_body("m")).await;
        eventually("all slots are taken", async || fleet.inflight("w1").await == slots as i64).await;
        let refused = Crowd::start(&[second.address()], 20, &chat_body("m")).await.finish().await;
        assert_eq!(with_status(&refused, 529), 20);
        engine.open();
        assert_eq!(with_status(&held.finish().await, 200), slots);
        fleet.quiet().await;
    }
}
