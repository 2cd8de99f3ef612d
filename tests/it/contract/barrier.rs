//! A burst over all frontends lets in exactly what fits, whichever of them is asked.

use std::collections::BTreeMap;

use super::sequential::{Record, one_answer_per_revision, replay};
use crate::harness::{Answer, Crowd, Fleet, Process, Script, Stub, chat_body, eventually, rounds, with_status};

const WORKERS: usize = 4;
const SLOTS: u64 = 4;
const QUEUE: u64 = 2;
const CROWD: usize = 200;
const FITS: usize = WORKERS * (SLOTS + QUEUE) as usize;

/// On a machine that runs many tests at once a call to Redis may take longer than the usual budget; then the answer is
/// a 503 or one of static mode, which is not what is tested here.
const PATIENT: [&str; 2] = ["--redis-timeout-ms", "10000"];

/// Four workers with four slots and two queue places each, engines that hold.
async fn workers(fleet: &Fleet) -> Vec<(Stub, Process)> {
    let mut workers = Vec::new();
    for index in 1..=WORKERS {
        let engine = Stub::start().await;
        engine.script(Script::hold());
        let limits = ["--engine-request-limit", &SLOTS.to_string(), "--request-queue-limit", &QUEUE.to_string()];
        let worker = fleet.worker(&format!("w{index}"), &engine, &limits).await;
        workers.push((engine, worker));
    }
    workers
}

fn caps() -> BTreeMap<String, u64> {
    (1..=WORKERS).map(|index| (format!("w{index}"), SLOTS + QUEUE)).collect()
}

/// One burst: holds until all that must be refused are refused, then lets the others through.
async fn burst(fleet: &Fleet, frontends: &[Process], workers: &[(Stub, Process)]) -> Vec<Answer> {
    let addresses: Vec<_> = frontends.iter().map(Process::address).collect();
    let mut crowd = Crowd::start(&addresses, CROWD, &chat_body(&fleet.model)).await;
    crowd.answered(CROWD - FITS).await;
    assert_eq!(fleet.inflight_total().await, FITS as i64);
    eventually("every engine is at its limit", async || {
        workers.iter().all(|(engine, _)| engine.holding() == SLOTS as usize)
    })
    .await;
    workers.iter().for_each(|(engine, _)| engine.open());
    let answers = crowd.finish().await;
    fleet.quiet().await;
    eventually("every engine is idle", async || workers.iter().all(|(engine, _)| engine.running() == 0)).await;
    workers.iter().for_each(|(engine, _)| engine.shut());
    answers
}

async fn bursts(frontends: usize) {
    let fleet = Fleet::new();
    let workers = workers(&fleet).await;
    let mut all = Vec::new();
    for _ in 0..frontends {
        all.push(fleet.frontend(&PATIENT).await);
    }
    let mut records = Vec::new();
    for round in 0..rounds(3, 20) {
        let answers = burst(&fleet, &all, &workers).await;
        let (served, refused) = (with_status(&answers, 200), with_status(&answers, 529));
        let other = answers.iter().find(|answer| ![200, 529].contains(&answer.status));
        assert_eq!((served, refused), (FITS, CROWD - FITS), "round {round}: {other:?}");
        assert!(answers.iter().filter(|answer| answer.status == 529).all(|answer| answer.reason() == "at_capacity"));
        let round: Vec<Record> = answers.iter().map(Record::of).collect();
        assert_eq!(replay(&round, &caps()), Ok(()));
        records.extend(round);
    }
    assert_eq!(one_answer_per_revision(&records), Ok(()));
    for (engine, _) in &workers {
        assert_eq!(engine.peak(), SLOTS as usize);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frontend_lets_in_exactly_24_of_200() {
    bursts(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_frontends_let_in_exactly_24_of_200() {
    bursts(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_frontends_let_in_exactly_24_of_200() {
    bursts(4).await;
}

/// No holding: places are given back and taken again all the time, from two frontends, while the answers still must
/// be those of one gate.
#[tokio::test(flavor = "multi_thread")]
async fn a_churning_fleet_gives_one_answer_per_revision() {
    let fleet = Fleet::new();
    let mut workers = Vec::new();
    for index in 1..=2 {
        let engine = Stub::start().await;
        let limits = ["--engine-request-limit", "2", "--request-queue-limit", "0"];
        let worker = fleet.worker(&format!("w{index}"), &engine, &limits).await;
        workers.push((engine, worker));
    }
    let frontends = [fleet.frontend(&PATIENT).await, fleet.frontend(&PATIENT).await];
    let addresses = frontends.each_ref().map(Process::address);
    let mut records = Vec::new();
    for _ in 0..rounds(4, 40) {
        let answers = Crowd::start(&addresses, 100, &chat_body("m")).await.finish().await;
        // A request that a worker refused asks again without that worker: not an equal constraint.
        records.extend(answers.iter().filter(|a| a.status == 200 || a.reason() != "worker_refused").map(Record::of));
        fleet.quiet().await;
    }
    assert_eq!(one_answer_per_revision(&records), Ok(()));
    assert!(records.iter().any(|record| record.decision.is_err()), "the bursts were too small to be refused");
    assert!(workers.iter().all(|(engine, _)| engine.peak() <= 2));
}
