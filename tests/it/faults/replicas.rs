//! Replicas that disagree. (F033 is in `contract::admin`.)

use crate::harness::{Fleet, Signal, Stub, chat, eventually, get};

#[tokio::test(flavor = "multi_thread")]
async fn f031_all_replicas_know_the_same_models() {
    let fleet = Fleet::new();
    let engine = Stub::start().await;
    let mut worker = fleet.worker("w1", &engine, &["--drain-seconds", "1"]).await;
    let old = fleet.frontend(&[]).await;
    assert_eq!(chat(old.address(), "m").await.status, 200);
    worker.signal(Signal::TERM);
    assert_eq!(worker.exit_code().await, 0);
    let young = fleet.frontend(&[]).await;
    // The index must be old enough to be believed: 4 s after Redis was empty.
    eventually("an unknown model is unknown", async || chat(young.address(), "nobody").await.status == 404).await;
    for frontend in [&old, &young] {
        for _ in 0..20 {
            let scaled_to_zero = chat(frontend.address(), "m").await;
            assert_eq!((scaled_to_zero.status, scaled_to_zero.reason().as_str()), (503, "no_workers"));
            let unknown = chat(frontend.address(), "nobody").await;
            assert_eq!((unknown.status, unknown.reason().as_str()), (404, "model_not_found"));
            assert!(unknown.revision().is_none());
        }
        let models = get(frontend.address(), "/v1/models").await.json();
        assert_eq!(models["data"].as_array().unwrap().len(), 0, "no live worker: {models}");
    }
}
