//! What a case is made of. Steps hold small numbers; what they stand for depends on what has happened before, so that
//! shrinking leaves meaningful cases.

use proptest::collection::vec;
use proptest::prelude::*;

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Time passes (or jumps).
    Wait(i64),
    /// A frontend's `hello`; `renew`: under a new id.
    Hello { f: u8, renew: bool },
    /// A group.
    Decide { f: u8, slip: Slip, releases: Vec<u8>, skips: Vec<(u8, u8)>, asks: Vec<Ask>, seed: u32 },
    /// A sign of life; what it names is swept if `sweep`.
    Heartbeat { f: u8, slip: Slip, sweep: bool },
    /// Asserts leases: some of its own, and perhaps some that Redis does not know.
    Reconcile { f: u8, slip: Slip, first: bool, own: bool, more: Vec<(u8, u8, u8)> },
    /// Whatever a call may name.
    Sweep { workers: Vec<u8>, frontends: Vec<u8> },
    /// A process registers; `anew`: with a new nonce.
    Register {
        p: u8,
        anew: bool,
        keep: bool,
        known: bool,
        yields: bool,
        number: u8,
        shape: Shape,
        figures: Vec<Figure>,
    },
    /// A process reports; `back`: an older number.
    Report { p: u8, back: bool, room: bool, shape: Shape, figures: Vec<Figure> },
    /// Draining on or off.
    Drain { p: u8, on: bool },
    /// Goodbye.
    Leave { p: u8 },
    /// Fields of the configuration through the script.
    Configure { source: u8, changes: Vec<(u8, u8)> },
    /// Fields of the configuration by hand: which, and which value; none deletes.
    Hset { field: u8, value: Option<u8> },
    /// An operator starts a new epoch.
    Repair { workers: Vec<u8>, frontends: Vec<u8> },
    /// A page of the state.
    Snapshot,
    /// Harm.
    Damage(Damage),
}

/// What is off about a call of a frontend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slip {
    None,
    /// The same `seq` again.
    OldSeq,
    /// `acked` above what is stored.
    Lost,
    /// An epoch that is not in force.
    OldEpoch,
    /// No epoch yet.
    NoEpoch,
}

/// An admission.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// A lease that exists already.
    pub(crate) again: Option<u8>,
    pub(crate) tokens: u16,
    pub(crate) pin: Option<u8>,
    pub(crate) exclude: Vec<u8>,
}

/// A registration.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) start: u8,
    pub(crate) size: u8,
    pub(crate) slots: Option<u8>,
    pub(crate) queue: u8,
    pub(crate) draining: bool,
    pub(crate) engine_down: bool,
    pub(crate) odd: u8,
}

/// A figure of a rank.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) rank: u8,
    pub(crate) kind: u8,
    pub(crate) value: u64,
}

/// Harm to the state.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    /// `DEL`.
    Del(u8),
    /// Another type.
    Spoil(u8),
    /// A field or member goes: which key, which one.
    Remove(u8, u8),
    /// A field, member or score is overwritten: which key, which one, with what.
    Write(u8, u8, u8),
}

fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 0_i64..900,
        4 => 900_i64..2_600,
        2 => 2_600_i64..6_000,
        1 => 6_000_i64..15_000,
        1 => prop_oneof![Just(-200_i64), Just(-3_000), Just(-30_000), Just(30_000)],
    ]
}

fn slip() -> impl Strategy<Value = Slip> {
    prop_oneof![
        20 => Just(Slip::None),
        1 => Just(Slip::OldSeq),
        1 => Just(Slip::Lost),
        1 => Just(Slip::OldEpoch),
        1 => Just(Slip::NoEpoch),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let again = prop_oneof![15 => Just(None), 1 => any::<u8>().prop_map(Some)];
    let pin = prop_oneof![3 => Just(None), 1 => (0_u8..5).prop_map(Some)];
    let exclude = prop_oneof![4 => Just(Vec::new()), 1 => vec(0_u8..5, 1..4)];
    (again, 0_u16..2_000, pin, exclude).prop_map(|(again, tokens, pin, exclude)| Ask { again, tokens, pin, exclude })
}

fn shape() -> impl Strategy<Value = Shape> {
    let slots = prop_oneof![1 => Just(None), 6 => (1_u8..5).prop_map(Some)];
    let flag = || prop_oneof![9 => Just(false), 1 => Just(true)];
    let odd = prop_oneof![20 => Just(0_u8), 1 => 1_u8..9];
    let start = prop_oneof![6 => Just(0_u8), 1 => 0_u8..4];
    let size = prop_oneof![4 => Just(1_u8), 2 => 1_u8..4];
    (start, size, slots, 0_u8..3, flag(), flag(), odd).prop_map(
        |(start, size, slots, queue, draining, engine_down, odd)| Shape {
            start,
            size,
            slots,
            queue,
            draining,
            engine_down,
            odd,
        },
    )
}

fn figure() -> impl Strategy<Value = Figure> {
    let value = prop_oneof![
        8 => 0_u64..120,
        2 => 900_u64..1_100,
        1 => prop_oneof![Just(9_007_199_254_740_991_u64), Just(9_007_199_254_740_992), Just(u64::MAX)],
    ];
    // Mostly the declared ones, mostly from 0 on.
    let rank = prop_oneof![20 => 0_u8..1, 10 => 0_u8..3, 1 => 0_u8..6];
    (rank, 0_u8..6, value).prop_map(|(rank, kind, value)| Figure { rank, kind, value })
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        2 => any::<u8>().prop_map(Damage::Del),
        1 => any::<u8>().prop_map(Damage::Spoil),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(k, f)| Damage::Remove(k, f)),
        3 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(k, f, v)| Damage::Write(k, f, v)),
    ]
}

fn step(harm: bool) -> impl Strategy<Value = Step> {
    let f = || 0_u8..3;
    let p = || 0_u8..5;
    let register =
        (p(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<u8>(), shape(), vec(figure(), 0..4));
    let rarely = || prop_oneof![9 => Just(false), 1 => Just(true)];
    prop_oneof![
        8 => wait().prop_map(Step::Wait),
        2 => (f(), rarely()).prop_map(|(f, renew)| Step::Hello { f, renew }),
        8 => (f(), slip(), vec(any::<u8>(), 0..4), vec((0_u8..5, 0_u8..4), 0..2), vec(ask(), 0..6), 1_u32..2_147_483_646)
            .prop_map(|(f, slip, releases, skips, asks, seed)| Step::Decide { f, slip, releases, skips, asks, seed }),
        5 => (f(), slip(), any::<bool>()).prop_map(|(f, slip, sweep)| Step::Heartbeat { f, slip, sweep }),
        4 => (f(), slip(), any::<bool>(), any::<bool>(), vec((0_u8..5, 0_u8..4, any::<u8>()), 0..3))
            .prop_map(|(f, slip, first, own, more)| Step::Reconcile { f, slip, first, own, more }),
        2 => (vec(0_u8..5, 0..5), vec(0_u8..6, 0..4)).prop_map(|(workers, frontends)| Step::Sweep { workers, frontends }),
        4 => register.prop_map(|(p, anew, keep, known, yields, number, shape, figures)| Step::Register {
            p, anew, keep, known, yields, number, shape, figures,
        }),
        8 => (p(), rarely(), any::<bool>(), shape(), vec(figure(), 0..6))
            .prop_map(|(p, back, room, shape, figures)| Step::Report { p, back, room, shape, figures }),
        1 => (p(), any::<bool>()).prop_map(|(p, on)| Step::Drain { p, on }),
        1 => p().prop_map(|p| Step::Leave { p }),
        1 => (0_u8..3, vec((any::<u8>(), any::<u8>()), 0..3)).prop_map(|(source, changes)| Step::Configure { source, changes }),
        2 => (any::<u8>(), prop_oneof![1 => Just(None), 4 => any::<u8>().prop_map(Some)])
            .prop_map(|(field, value)| Step::Hset { field, value }),
        1 => Just(Step::Snapshot),
        1 => (vec(0_u8..5, 0..3), vec(0_u8..6, 0..3)).prop_map(|(workers, frontends)| Step::Repair { workers, frontends }),
        3 => if harm { damage().prop_map(Step::Damage).boxed() } else { wait().prop_map(Step::Wait).boxed() },
    ]
}

/// A case: a fleet that has come up, and then whatever happens.
pub(crate) fn strategy(harm: bool) -> impl Strategy<Value = Vec<Step>> {
    vec(step(harm), 1..70)
}
