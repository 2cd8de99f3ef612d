//! Retries under overload, and many changes at once.

use serde_json::json;

use crate::harness::{
    Crowd, Fleet, Process, Script, Signal, Stub, chat, chat_body, eventually, publish, rounds, thresholds, with_status,
};

#[tokio::test(flavor = "multi_thread")]
async fn f121_retries_do_not_multiply_the_load_of_a_full_fleet() {
    let fleet = Fleet::new();
    let full = Script::json(503, &json!({"message": "Worker local total request limit reached (33/32)", "code": 503}));
    let mut workers = Vec::new();
    for index in 1..=4 {
        let engine = Stub::start().await;
        engine.script(full.clone());
        let worker = fleet.worker(&format!("w{index}"), &engine, &[]).await;
        workers.push((engine, worker));
    }
    let frontend = fleet.frontend(&[]).await;
    let attempts = || workers.iter().map(|(engine, _)| engine.count()).sum::<usize>();
    for _ in 0..4 {
        let before = attempts();
        let answers = Crowd::start(&[frontend.address()], 50, &chat_body("m")).await.finish().await;
        assert!(answers.iter().all(|answer| [529, 503].contains(&answer.status)), "{answers:?}");
        assert!(attempts() - before <= 100, "at most 1 + --migration-limit attempts each");
    }
    assert!(attempts() <= 4 * 20, "skips keep the refusing workers out: {} attempts", attempts());
    workers.iter().for_each(|(engine, _)| engine.script(Script::ok()));
    eventually("served again", async || chat(frontend.address(), "m").await.status == 200).await;
    fleet.quiet().await;
    let before = attempts();
    for _ in 0..10 {
        chat(frontend.address(), "m").await;
    }
    assert!(attempts() - before <= 10, "no delayed attempts");
}

#[tokio::test(flavor = "multi_thread")]
async fn f076_workers_that_turn_free_together_are_all_seen_by_all() {
    let fleet = Fleet::new();
    let mut workers = Vec::new();
    for index in 0..6 {
        let engine = Stub::start().await;
        let worker = fleet.worker(&format!("w{index}"), &engine, &[]).await;
        workers.push((engine, worker));
    }
    let frontends = [fleet.frontend(&["--router-mode", "round-robin"]).await, fleet.frontend(&[]).await];
    thresholds(&frontends[0], &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
    let all = async |active: u64| {
        let reports = workers.iter().map(|(_, worker)| async move {
            publish(worker, &json!({"active_decode_blocks": active, "kv_total_blocks": 100})).await;
        });
        futures_util::future::join_all(reports).await;
    };
    for _ in 0..rounds(5, 50) {
        all(90).await;
        for frontend in &frontends {
            assert_eq!(chat(frontend.address(), "m").await.status, 529);
        }
        all(10).await;
        let before: Vec<usize> = workers.iter().map(|(engine, _)| engine.count()).collect();
        for index in 0..12 {
            assert_eq!(chat(frontends[index % 2].address(), "m").await.status, 200);
        }
        for ((engine, _), before) in workers.iter().zip(before) {
            assert_eq!(engine.count() - before, 2, "every one of them is used");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f078_a_frontend_that_slept_through_many_changes_agrees_at_once() {
    let fleet = Fleet::new();
    let (one, two) = (Stub::start().await, Stub::start().await);
    let first = fleet.worker("w1", &one, &[]).await;
    let second = fleet.worker("w2", &two, &[]).await;
    let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
    for frontend in &frontends {
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
    }
    frontends[1].signal(Signal::STOP);
    thresholds(&frontends[0], &json!({"model": "m", "active_decode_blocks_threshold": 0.5})).await;
    for number in 0..200 {
        publish(&first, &json!({"active_decode_blocks": number % 100, "kv_total_blocks": 100})).await;
    }
    thresholds(&frontends[0], &json!({"model": "m", "active_decode_blocks_threshold": 0.6})).await;
    publish(&first, &json!({"active_decode_blocks": 90, "kv_total_blocks": 100})).await;
    publish(&second, &json!({"active_decode_blocks": 55, "kv_total_blocks": 100})).await;
    frontends[1].signal(Signal::CONT);
    let addresses = frontends.each_ref().map(Process::address);
    for _ in 0..5 {
        for address in addresses {
            let answer = chat(address, "m").await;
            assert_eq!((answer.status, answer.worker()), (200, Some("w2")), "{}", answer.text());
        }
    }
    let read = thresholds(&frontends[1], &json!({"model": "m"})).await;
    assert_eq!(read["active_decode_blocks_threshold"], json!(0.6));
    let answers = Crowd::start(&addresses, 20, &chat_body("m")).await.finish().await;
    assert_eq!(with_status(&answers, 200), 20);
    assert!(answers.iter().all(|answer| answer.worker() == Some("w2")));
}
