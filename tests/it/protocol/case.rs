//! A fleet, a load, and the faults that befall it.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// See the module. Times in milliseconds.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) frontends: usize,
    pub(crate) workers: usize,
    /// N of every worker (Q is 0).
    pub(crate) cap: u64,
    /// Mean time between two requests.
    pub(crate) pace: u64,
    /// When the load and the faults are over.
    pub(crate) stop: u64,
    /// A decode threshold is set.
    pub(crate) threshold: bool,
    /// `max_inflight`.
    pub(crate) most: Option<u64>,
    /// Most leases that one call gives back.
    pub(crate) limit: usize,
    pub(crate) faults: Vec<(u64, Fault)>,
}

/// A process: a frontend or a sidecar, counted round.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    Frontend(usize),
    Sidecar(usize),
}

/// What goes wrong.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// `FLUSHALL`.
    Flush,
    /// The server is away, and comes back with its state.
    Down(u64),
    /// The server is away, and comes back empty.
    Restart(u64),
    /// The server stands still.
    Freeze(u64),
    /// A replica that lags behind takes over after a time, with another clock; some processes stay with the old server.
    Failover { lag: u64, away: u64, jump: i64, split: Vec<Who> },
    /// The server's clock jumps.
    Jump(i64),
    /// A process's calls arrive late: for how long, by how much.
    Stall { who: Who, last: u64, late: u64 },
    /// A process's calls are answered by an error.
    Moved { who: Who, last: u64 },
    /// A process's calls run twice.
    Repeated { who: Who, last: u64 },
    /// A process's calls run, and their answers are lost.
    Unanswered { who: Who, last: u64 },
    /// A process's connection breaks.
    Break(Who),
    /// A process stands still.
    FreezeProcess { who: Who, last: u64 },
    /// A frontend is killed.
    Crash(usize),
    /// A sidecar is killed and started again.
    RestartWorker { sidecar: usize, after: u64 },
    /// A sidecar says goodbye and is started again.
    Leave { sidecar: usize, after: u64 },
    /// A second process with a worker's id.
    Rival { sidecar: usize, last: u64 },
    /// A worker's N changes.
    Cap { sidecar: usize, cap: u64 },
    /// A worker's load crosses the threshold.
    Load(usize),
    /// An operator sets or unsets the threshold.
    Threshold,
    /// An operator sets or unsets `max_inflight`.
    Most(Option<u64>),
    /// A key, or a part of it, is deleted.
    Delete { key: &'static str, part: Option<usize> },
}

const KEYS: [&str; 14] = [
    "stats",
    "workers",
    "worker",
    "gate",
    "busy",
    "eligible",
    "inflight",
    "skips",
    "frontends",
    "seq",
    "leases",
    "due",
    "reserved",
    "route",
];

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![(0_usize..3).prop_map(Who::Frontend), (0_usize..2).prop_map(Who::Sidecar)]
}

fn short() -> impl Strategy<Value = u64> {
    select(vec![5_u64, 30, 300, 900])
}

fn away() -> impl Strategy<Value = u64> {
    select(vec![100_u64, 300, 700, 1_500, 3_000, 6_000, 12_000])
}

fn fault() -> impl Strategy<Value = Fault> {
    let failover = (
        select(vec![1_u64, 5, 20, 100, 500]),
        select(vec![50_u64, 300, 1_000, 3_000, 8_000]),
        select(vec![0_i64, 0, 30_000, -30_000]),
        prop_oneof![7 => Just(Vec::new()), 3 => vec(who(), 0..3)],
    );
    let restart = || select(vec![5_u64, 200, 2_000, 7_000]);
    prop_oneof![
        1 => Just(Fault::Flush),
        1 => away().prop_map(Fault::Down),
        1 => away().prop_map(Fault::Restart),
        1 => away().prop_map(Fault::Freeze),
        4 => failover.prop_map(|(lag, away, jump, split)| Fault::Failover { lag, away, jump, split }),
        1 => select(vec![30_000_i64, -30_000, -200, 3_000]).prop_map(Fault::Jump),
        1 => (who(), select(vec![1_u64, 20, 300]), select(vec![200_u64, 400, 1_500, 4_000, 14_000]))
            .prop_map(|(who, last, late)| Fault::Stall { who, last, late }),
        1 => (who(), short()).prop_map(|(who, last)| Fault::Moved { who, last }),
        1 => (who(), short()).prop_map(|(who, last)| Fault::Repeated { who, last }),
        1 => (who(), short()).prop_map(|(who, last)| Fault::Unanswered { who, last }),
        1 => who().prop_map(Fault::Break),
        1 => (who(), select(vec![500_u64, 3_000, 6_000, 11_000, 15_000]))
            .prop_map(|(who, last)| Fault::FreezeProcess { who, last }),
        1 => (0_usize..3).prop_map(Fault::Crash),
        1 => (0_usize..2, restart()).prop_map(|(sidecar, after)| Fault::RestartWorker { sidecar, after }),
        1 => (0_usize..2, restart()).prop_map(|(sidecar, after)| Fault::Leave { sidecar, after }),
        1 => (0_usize..2, select(vec![500_u64, 3_000, 9_000])).prop_map(|(sidecar, last)| Fault::Rival { sidecar, last }),
        1 => (0_usize..2, select(vec![1_u64, 2, 4, 6])).prop_map(|(sidecar, cap)| Fault::Cap { sidecar, cap }),
        1 => (0_usize..2).prop_map(Fault::Load),
        1 => Just(Fault::Threshold),
        1 => select(vec![None, Some(0_u64), Some(2), Some(5)]).prop_map(Fault::Most),
        2 => (select(KEYS.to_vec()), prop_oneof![1 => Just(None), 3 => (0_usize..6).prop_map(Some)])
            .prop_map(|(key, part)| Fault::Delete { key, part }),
    ]
}

/// Any case.
pub(crate) fn strategy() -> impl Strategy<Value = Case> {
    let fleet = (any::<u64>(), 1_usize..4, 1_usize..3, 1_u64..5, select(vec![40_u64, 90, 250]));
    let faults = vec((1_500_u64..14_000, fault()), 0..7);
    let rules = (
        select(vec![5_000_u64, 9_000, 14_000]),
        prop_oneof![7 => Just(true), 3 => Just(false)],
        prop_oneof![3 => Just(None), 1 => Just(Some(3_u64))],
        select(vec![500_usize, 500, 1]),
    );
    (fleet, rules, faults).prop_map(|((seed, frontends, workers, cap, pace), rules, mut faults)| {
        let (stop, threshold, most, limit) = rules;
        faults.sort_by_key(|(at, _)| *at);
        Case { seed, frontends, workers, cap, pace, stop, threshold, most, limit, faults }
    })
}
