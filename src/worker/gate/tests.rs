//! The line against a plain model, and the gate under many tasks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;

fn limits(slots: u64, queue: u64) -> Limits {
    Limits { slots: Some(slots), queue }
}

/// Waits until the counts are these.
async fn counts_become(gate: &Gate, running: u64, queued: u64, at_door: u64) {
    let wanted = Counts { running, queued, at_door };
    let wait = async {
        while gate.counts() != wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let reached = tokio::time::timeout(Duration::from_secs(20), wait).await;
    assert!(reached.is_ok(), "{:?} instead of {wanted:?}", gate.counts());
}

#[derive(Debug, Clone)]
enum Step {
    Arrive,
    End,
    GiveUp(prop::sample::Index),
    TurnAway(prop::sample::Index),
    Set(Option<u64>, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Arrive),
        4 => Just(Step::End),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        2 => any::<prop::sample::Index>().prop_map(Step::TurnAway),
        1 => (prop::option::weighted(0.9, 0_u64..5), 0_u64..5).prop_map(|(n, q)| Step::Set(n, q)),
    ]
}

/// One list in order of arrival; who is where follows from the position, as long as limits only rise. A cut of the
/// limits leaves those who have a queue place where they are.
#[derive(Default)]
struct Plain {
    running: u64,
    waiting: VecDeque<(u64, bool)>,
}

impl Plain {
    fn settle(&mut self, limits: Limits) -> Vec<u64> {
        let mut let_in = Vec::new();
        while limits.slots.is_none_or(|n| self.running < n)
            && let Some((name, _)) = self.waiting.pop_front()
        {
            self.running += 1;
            let_in.push(name);
        }
        let queued = self.waiting.iter().filter(|(_, queued)| *queued).count() as u64;
        let places = usize::try_from(limits.queue.saturating_sub(queued)).unwrap();
        self.waiting.iter_mut().filter(|(_, queued)| !*queued).take(places).for_each(|w| w.1 = true);
        let_in
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever happens in whatever order: the counts, the order of service and the room are those of a plain list.
    #[test]
    fn the_line_is_a_plain_list(n in 0_u64..5, q in 0_u64..5, steps in prop::collection::vec(step(), 1..80)) {
        let mut limits = limits(n, q);
        let mut line = Line::new(limits);
        let mut plain = Plain::default();
        let mut tickets: Vec<(u64, Ticket)> = Vec::new();
        let mut next = 0;
        for step in steps {
            let mut let_in = None;
            match step {
                Step::Arrive => {
                    next += 1;
                    plain.waiting.push_back((next, false));
                    if line.enter() {
                        let_in = Some(next);
                    } else {
                        tickets.push((next, line.join(next)));
                    }
                }
                Step::End => {
                    if plain.running > 0 {
                        plain.running -= 1;
                        line.end();
                    }
                }
                Step::GiveUp(which) if !tickets.is_empty() => {
                    let (name, ticket) = *which.get(&tickets);
                    let waits = plain.waiting.iter().any(|w| w.0 == name);
                    plain.waiting.retain(|w| w.0 != name);
                    prop_assert_eq!(line.give_up(ticket), waits.then_some(name));
                }
                Step::TurnAway(which) if !tickets.is_empty() => {
                    let (name, ticket) = *which.get(&tickets);
                    let at_door = plain.waiting.contains(&(name, false));
                    plain.waiting.retain(|w| *w != (name, false));
                    prop_assert_eq!(line.turn_away(ticket), at_door);
                }
                Step::GiveUp(_) | Step::TurnAway(_) => {}
                Step::Set(slots, queue) => {
                    limits = Limits { slots, queue };
                    line.set(limits);
                }
            }
            let mut got = line.settle();
            got.extend(let_in);
            prop_assert_eq!(got, plain.settle(limits));
            let queued = plain.waiting.iter().filter(|w| w.1).count() as u64;
            let counts = line.counts();
            let at_door = plain.waiting.len() as u64 - queued;
            prop_assert_eq!(counts, Counts { running: plain.running, queued, at_door });
            let room = limits.slots.is_none_or(|n| plain.running + queued < n + limits.queue);
            prop_assert_eq!(line.has_room(), room);
            prop_assert!(!room || at_door == 0, "nobody stands at the door while there is room");
        }
    }
}

const SIZES: [(u64, u64); 6] = [(1, 0), (1, 1), (1, 2), (4, 1), (4, 16), (2, 0)];

#[tokio::test]
async fn exactly_n_plus_q_are_let_in() {
    for (n, q) in SIZES {
        let gate = Gate::new(limits(n, q), None);
        let mut tasks = JoinSet::new();
        let (done, _) = tokio::sync::broadcast::channel::<()>(1);
        for _ in 0..100 {
            let (gate, mut end) = (gate.clone(), done.subscribe());
            tasks.spawn(async move {
                let slot = gate.enter().await?;
                let _ = end.recv().await;
                drop(slot);
                Ok::<(), Turned>(())
            });
        }
        let mut refused = 0;
        while refused < 100 - n - q {
            assert_eq!(tasks.join_next().await.unwrap().unwrap(), Err(Turned::Full));
            refused += 1;
        }
        assert_eq!(gate.counts(), Counts { running: n, queued: q, at_door: 0 });
        assert!(!gate.has_room());
        drop(done);
        let mut served = 0;
        while let Some(end) = tasks.join_next().await {
            assert_eq!(end.unwrap(), Ok(()));
            served += 1;
        }
        assert_eq!((served, gate.counts()), (n + q, Counts::default()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_n_run_and_never_a_refusal_while_fewer_are_in_the_system() {
    for (n, q) in SIZES {
        let gate = Gate::new(limits(n, q), None);
        let running = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        // N + Q callers, each back in the line as soon as it has left: none may ever be refused.
        for _ in 0..n + q {
            let (gate, running) = (gate.clone(), Arc::clone(&running));
            tasks.spawn(async move {
                for _ in 0..300 {
                    let slot = gate.enter().await?;
                    assert!(running.fetch_add(1, Ordering::SeqCst) < n);
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(slot);
                }
                Ok::<(), Turned>(())
            });
        }
        while let Some(end) = tasks.join_next().await {
            assert_eq!(end.unwrap(), Ok(()), "N={n} Q={q}");
        }
        assert_eq!(gate.counts(), Counts::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn those_who_go_at_any_moment_leave_nothing_behind() {
    let gate = Gate::new(limits(2, 3), Some(Duration::from_millis(2)));
    let running = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for i in 0..400_u64 {
        let (gate, running) = (gate.clone(), Arc::clone(&running));
        tasks.spawn(async move {
            let patience = Duration::from_micros(i * 37 % 4_000);
            let stay = async {
                let Ok(slot) = gate.enter().await else { return };
                assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                tokio::time::sleep(Duration::from_micros(i % 300)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                drop(slot);
            };
            // Those who are cut while they run would spoil the count of this test: only waiting is cut.
            let _ = tokio::time::timeout(patience, gate.enter()).await;
            stay.await;
        });
    }
    while let Some(end) = tasks.join_next().await {
        end.unwrap();
    }
    assert_eq!(gate.counts(), Counts::default());
}

#[tokio::test]
async fn an_arrival_waits_a_moment_for_a_slot_whose_holder_is_leaving() {
    let gate = Gate::new(limits(1, 0), None);
    let holder = gate.enter().await.unwrap();
    let late = tokio::spawn({
        let gate = gate.clone();
        async move { gate.enter().await.map(drop) }
    });
    // This runtime has one thread: the arrival has found the gate full when this task goes on.
    tokio::task::yield_now().await;
    assert_eq!(gate.counts().at_door, 1);
    drop(holder);
    assert_eq!(late.await.unwrap(), Ok(()));
    let _holder = gate.enter().await.unwrap();
    assert_eq!(gate.enter().await.map(drop), Err(Turned::Full));
}

#[tokio::test]
async fn f009_one_who_goes_while_queued_frees_the_place_at_once() {
    let gate = Gate::new(limits(1, 1), None);
    let holder = gate.enter().await.unwrap();
    let queued = tokio::spawn({
        let gate = gate.clone();
        async move { gate.enter().await.map(drop) }
    });
    counts_become(&gate, 1, 1, 0).await;
    queued.abort();
    assert!(queued.await.unwrap_err().is_cancelled());
    assert_eq!(gate.counts(), Counts { running: 1, queued: 0, at_door: 0 });
    drop(holder);
    assert_eq!(gate.counts(), Counts::default());
}

#[tokio::test]
async fn f010_one_who_waited_too_long_is_turned_away_and_leaves_no_ghost() {
    let gate = Gate::new(limits(1, 2), Some(PATIENCE * 3));
    let holder = gate.enter().await.unwrap();
    let (b, c) = tokio::join!(gate.enter(), gate.enter());
    assert_eq!((b.map(drop), c.map(drop)), (Err(Turned::Late), Err(Turned::Late)));
    assert_eq!(gate.counts(), Counts { running: 1, queued: 0, at_door: 0 });
    drop(holder);
    assert!(gate.enter().await.is_ok());
}

#[tokio::test]
async fn raising_the_limits_lets_in_at_once_and_lowering_cuts_nobody() {
    let gate = Gate::new(limits(1, 2), None);
    let holder = gate.enter().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..2 {
        let gate = gate.clone();
        waiting.spawn(async move { gate.enter().await });
    }
    counts_become(&gate, 1, 2, 0).await;
    gate.set(limits(1, 0));
    assert_eq!(gate.enter().await.map(drop), Err(Turned::Full));
    assert_eq!(gate.counts(), Counts { running: 1, queued: 2, at_door: 0 }, "who has a place keeps it");
    assert!(!gate.has_room());
    gate.set(limits(3, 0));
    let slots: Vec<Slot> = waiting.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(gate.counts().running, 3);
    gate.set(limits(1, 0));
    assert_eq!(gate.counts().running, 3, "who runs goes on");
    drop(slots);
    assert_eq!(gate.enter().await.map(drop), Err(Turned::Full));
    drop(holder);
    gate.set(Limits { slots: None, queue: 0 });
    let all: Vec<Slot> = vec![gate.enter().await.unwrap(), gate.enter().await.unwrap(), gate.enter().await.unwrap()];
    assert_eq!(gate.counts().running, all.len() as u64);
}
