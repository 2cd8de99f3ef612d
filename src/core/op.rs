//! The operations on a model's shared state, and their replies: one Lua script each (`lua/`), and one function each
//! of the pure model (`core::fleet`). Who speaks them: frontends (`Hello`, `Decide`, `Heartbeat`, `Reconcile`,
//! `Sweep`), sidecars (`Register`, `Report`, `Drain`, `Leave`), operators (`Configure`, `Snapshot`, `Repair`).

use super::id::{FrontendId, Incarnation, LeaseId, WorkerId};

/// Who calls, in every call made in a frontend's name; the fence of the recovery protocol reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The frontend's present id.
    pub frontend: FrontendId,
    /// The epoch it has adopted; empty before the first.
    pub epoch: String,
    /// Rises with every call of this id.
    pub seq: u64,
    /// The highest `seq` that was answered ok.
    pub acked: u64,
    /// The highest revision ever seen.
    pub seen: u64,
    /// It has adopted an epoch before: others may hold leases that Redis has lost.
    pub mem: bool,
    /// Random, for the name of a new epoch (Redis's own generator is seeded alike in every call).
    pub nonce: String,
}

/// What the fence lets through, or why it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fenced<T> {
    /// The call was carried out.
    Done(T),
    /// `seq` is not above the stored one: nothing was applied now, perhaps before. An unknown outcome.
    Stale {
        /// The stored one; the next call's must be above it.
        stored: u64,
    },
    /// This id is not (any more) known: take a new one and say `Hello`.
    Gone,
    /// The state is of another epoch, or lost writes of this frontend: reconcile.
    Epoch {
        /// How long decisions wait for the others, in milliseconds.
        healing_ms: u64,
    },
    /// An epoch heals: no decision yet. The call used up no `seq`.
    Healing {
        /// For how long still, in milliseconds.
        left_ms: u64,
    },
}

/// Makes the frontend known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello(pub Caller);

/// Reply to [`Hello`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The epoch in force. It is adopted only by a `Reconcile` that was answered ok.
    pub epoch: String,
    /// How long the epoch still heals, in milliseconds.
    pub healing_ms: u64,
    /// The revision in force.
    pub revision: u64,
}

/// One request that asks for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The lease to make.
    pub id: LeaseId,
    /// Estimated prompt tokens.
    pub tokens: u64,
    /// `x-tidegate-worker`: heeded in router mode `direct` only.
    pub pin: Option<WorkerId>,
    /// Workers that must not be chosen; at most [`MAX_EXCLUDED`].
    pub exclude: Vec<WorkerId>,
}

/// Most workers that one admission may exclude.
pub const MAX_EXCLUDED: usize = 64;
/// Most releases and admissions of one `Decide`.
pub const MAX_GROUP: usize = 256;
/// Most leases of one `Reconcile`, and most that one `Sweep` gives back.
pub const MAX_LEASES: usize = 500;
/// Most workers of one `Sweep`.
pub const MAX_SWEEP: usize = 256;

/// A group: what queued while the last call was under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decide {
    /// Who calls.
    pub caller: Caller,
    /// Seed of the random routes of this call: 1 to 2^31-2.
    pub seed: u32,
    /// Leases that ended. An unknown one does nothing.
    pub releases: Vec<LeaseId>,
    /// Workers that refused admission, with the incarnation that did: skipped by all for a second.
    pub skips: Vec<(WorkerId, Incarnation)>,
    /// Requests, in order of arrival.
    pub admissions: Vec<Admission>,
}

/// Reply to [`Decide`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// The revision after the whole group.
    pub revision: u64,
    /// Releases per second (EWMA), in thousandths.
    pub drain_per_ks: u64,
    /// Refusals of the last 5 s, fleet-wide.
    pub shed: u64,
    /// One verdict per admission, in order.
    pub verdicts: Vec<Verdict>,
}

/// The answer to one [`Admission`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The lease was made (or existed already).
    Admitted {
        /// The revision that this admission created.
        revision: u64,
        /// The chosen worker.
        worker: WorkerId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Where its sidecar listens.
        url: String,
    },
    /// No.
    Refused {
        /// The revision it was decided on.
        revision: u64,
        /// Why.
        cause: Cause,
    },
}

/// Why the gate is shut (design section 3.3; first that holds).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The model's total is at `max_inflight`.
    MaxInflight,
    /// Some live worker is busy by its load.
    AllWorkersBusy,
    /// Some live worker refused admission itself and is skipped.
    WorkerRefused,
    /// Every live worker is at its cap.
    AtCapacity,
    /// No worker is alive, or only draining ones, or none that the caller can reach.
    NoWorkers,
    /// Router mode `direct` and the request names no worker.
    NoPin,
}

/// A sign of life; notices configuration and gaps, names what is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat(pub Caller);

/// Reply to [`Heartbeat`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// The revision in force.
    pub revision: u64,
    /// How long the epoch still heals, in milliseconds.
    pub healing_ms: u64,
    /// Frontends that are alive.
    pub frontends: u64,
    /// Changes with every applied change of configuration.
    pub config_version: u64,
    /// Changes with every applied change of members, caps or flags.
    pub fleet_version: u64,
    /// Admitted requests of the whole model.
    pub inflight_total: u64,
    /// In flight per worker, for fleets of at most 256 workers (else empty: read a snapshot).
    pub inflight: Vec<(WorkerId, u64)>,
    /// Workers whose state changes by itself about now: to be swept.
    pub due_workers: Vec<WorkerId>,
    /// Frontends that have been silent for too long: to be swept.
    pub due_frontends: Vec<FrontendId>,
}

/// Checks again what is due: stale signals, dead workers, dead frontends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// At most [`MAX_SWEEP`].
    pub workers: Vec<WorkerId>,
    /// At most 8.
    pub frontends: Vec<FrontendId>,
    /// As [`Caller::nonce`].
    pub nonce: String,
}

/// Reply to [`Sweep`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// Done, but for these frontends, whose leases were too many for one call: repeat at once.
    Done {
        /// Half-reaped frontends.
        more: Vec<FrontendId>,
    },
    /// The state contradicted itself: a new epoch was started.
    Epoch,
}

/// A lease as its frontend knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its id.
    pub id: LeaseId,
    /// The worker that serves it.
    pub worker: WorkerId,
    /// The worker's incarnation.
    pub incarnation: Incarnation,
    /// Where that worker listens.
    pub url: String,
    /// Estimated prompt tokens.
    pub tokens: u64,
}

/// Asserts leases, in parts of at most [`MAX_LEASES`]; only ever adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reconcile {
    /// Who calls.
    pub caller: Caller,
    /// The first part after `Epoch` or `Gone`: what Redis still counts for this id is taken out before.
    pub first: bool,
    /// This part.
    pub leases: Vec<Held>,
}

/// Reply to [`Reconcile`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reconciled {
    /// Old leases are being taken out; repeat the same part.
    Again,
    /// The part is in Redis.
    Done {
        /// The epoch, now adopted.
        epoch: String,
        /// How long it still heals, in milliseconds.
        healing_ms: u64,
        /// The revision in force.
        revision: u64,
        /// Frontends that are alive.
        frontends: u64,
        /// Leases on an incarnation that another one has replaced: these streams go on without a lease.
        dropped: Vec<LeaseId>,
    },
}

/// What a sidecar says of its worker, whole, in every registration and report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Unique per model.
    pub worker: WorkerId,
    /// `http://host:port[/base]`.
    pub url: String,
    /// First data-parallel rank.
    pub data_parallel_start_rank: u32,
    /// How many ranks, 1 to 1,024.
    pub data_parallel_size: u32,
    /// N: engine slots; none = no cap.
    pub engine_request_limit: Option<u64>,
    /// Q: queue places (of no meaning without N).
    pub request_queue_limit: u64,
    /// Tokens per KV block.
    pub kv_block_size: u64,
    /// Takes no new requests.
    pub draining: bool,
    /// Its engine does not answer.
    pub engine_down: bool,
    /// Silent for this long it is not alive, in milliseconds, 5,000 at the least.
    pub worker_ttl_ms: u64,
}

/// A figure of one data-parallel rank, as reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// The rank.
    pub rank: u32,
    /// What it is.
    pub kind: FigureKind,
    /// 0 to 2^53-1.
    pub value: u64,
}

/// The figures of a rank; the names are those of the fields of `P:worker:<id>`, behind `<rank>.`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FigureKind {
    /// Signal: KV blocks in use, said by the engine.
    ActiveDecodeBlocks,
    /// Signal: KV blocks in use, counted by the sidecar.
    TrackedDecodeBlocks,
    /// Signal: prompt tokens not yet prefilled, said by the engine.
    ActivePrefillTokens,
    /// Signal: prompt tokens not yet prefilled, counted by the sidecar.
    TrackedPrefillTokens,
    /// Capacity: KV blocks in all.
    KvTotalBlocks,
    /// Capacity: tokens per engine step.
    MaxNumBatchedTokens,
}

/// Makes a worker known, or brings it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Register {
    /// What it is.
    pub registration: Registration,
    /// Made by the process: 8 hex digits.
    pub nonce: String,
    /// The incarnation it had; none at first, and after it has lost to another for good.
    pub incarnation: Option<Incarnation>,
    /// This process has had an answer before (makes a new epoch heal).
    pub known: bool,
    /// It has lost its id to another process before: it must not take it back while that one is alive.
    pub yields: bool,
    /// First report's number (see [`Report::number`]).
    pub number: u64,
    /// Capacity and signals.
    pub figures: Vec<Figure>,
}

/// Reply to [`Register`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// Known under this incarnation.
    Ok {
        /// Its incarnation from now on.
        incarnation: Incarnation,
    },
    /// A larger incarnation is alive.
    Superseded,
    /// A larger incarnation was here and is silent.
    Vacant,
    /// The state contradicted itself and was started anew: register again at once.
    Again,
    /// Something in the registration is not valid.
    Invalid {
        /// Which field.
        field: String,
        /// Its value.
        value: String,
    },
}

/// Load and a sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is, whole.
    pub registration: Registration,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Rises with every registration and report of the process; a smaller one is ignored.
    pub number: u64,
    /// There is room: ends a skip.
    pub room: bool,
    /// What is known now; a figure left out keeps its old value.
    pub figures: Vec<Figure>,
    /// As [`Caller::nonce`].
    pub nonce: String,
}

/// Reply to [`Report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// Written, and the worker recomputed.
    Ok {
        /// It is busy.
        busy: bool,
        /// Changes with every applied change of configuration.
        config_version: u64,
        /// `track_output_blocks` in force.
        track_output_blocks: bool,
    },
    /// An older number than the last one.
    Ignored,
    /// Not known (any more): register.
    Register,
    /// A larger incarnation is alive.
    Superseded,
    /// A larger incarnation was here and is silent.
    Vacant,
    /// A figure is not valid.
    Invalid {
        /// Which field.
        field: String,
        /// Its value.
        value: String,
    },
}

/// Takes a worker out of routing, or back in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Which.
    pub worker: WorkerId,
    /// Only this incarnation.
    pub incarnation: Incarnation,
    /// Out (true) or in.
    pub on: bool,
}

/// A worker's goodbye.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// Which.
    pub worker: WorkerId,
    /// Only this incarnation.
    pub incarnation: Incarnation,
}

/// Where a change of configuration came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `tidegate thresholds`.
    Cli,
    /// `POST /busy_threshold`.
    Api,
    /// A flag, once in the life of `P:config:applied`.
    Seed,
}

/// Changes fields of `P:config` and puts them into force at once; all of them or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configure {
    /// Where it comes from. `Seed` skips fields that were seeded before or are set.
    pub source: Source,
    /// Field name and new value; none unsets it.
    pub changes: Vec<(String, Option<String>)>,
}

/// Reply to [`Configure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configured {
    /// In force.
    Ok {
        /// After the change.
        config_version: u64,
        /// All values in force, by field name.
        applied: Vec<(String, String)>,
    },
    /// Nothing was changed: this value is refused.
    Invalid {
        /// Which field.
        field: String,
        /// Its value.
        value: String,
    },
    /// Nobody has registered or used this model.
    Unknown,
}

/// Starts a new epoch by an operator's hand; the reply is for how long it heals, in milliseconds. Ends keys that have no
/// owner; at most [`MAX_SWEEP`] of each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Their `P:leases:<frontend>` go, unless they are known after all.
    pub frontends: Vec<FrontendId>,
    /// Their `P:worker:<id>` get a TTL.
    pub workers: Vec<WorkerId>,
    /// As [`Caller::nonce`].
    pub nonce: String,
}

/// Reads a page of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// `"0"` at first, then as answered.
    pub cursor: String,
}

/// Reply to [`Snapshot`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Where the next page begins; `"0"`: that was the last.
    pub cursor: String,
    /// Redis time in milliseconds.
    pub now_ms: u64,
    /// `P:stats`.
    pub stats: Vec<(String, String)>,
    /// `P:config:applied`.
    pub applied: Vec<(String, String)>,
    /// Frontends with the time until which they are alive.
    pub frontends: Vec<(FrontendId, u64)>,
    /// This page's workers.
    pub workers: Vec<WorkerRow>,
}

/// A worker in a [`Page`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRow {
    /// Its id.
    pub worker: WorkerId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Most requests it may have; none = no cap.
    pub cap: Option<u64>,
    /// Letters of b(usy) d(raining) e(ngine down) s(kipped) x (expired); empty = open.
    pub closed: String,
    /// Where it listens.
    pub url: String,
    /// Admitted requests.
    pub inflight: u64,
}

impl Cause {
    /// All, in the order in which they are looked for.
    pub const ALL: [Self; 6] =
        [Self::MaxInflight, Self::AllWorkersBusy, Self::WorkerRefused, Self::AtCapacity, Self::NoWorkers, Self::NoPin];

    /// As the scripts write it, also in `P:stats` `refused:<code>`.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::MaxInflight => "max_inflight",
            Self::AllWorkersBusy => "all_workers_busy",
            Self::WorkerRefused => "worker_refused",
            Self::AtCapacity => "at_capacity",
            Self::NoWorkers => "no_workers",
            Self::NoPin => "no_pin",
        }
    }

    /// The other way.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.code() == code)
    }
}

impl FigureKind {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::ActiveDecodeBlocks,
        Self::TrackedDecodeBlocks,
        Self::ActivePrefillTokens,
        Self::TrackedPrefillTokens,
        Self::KvTotalBlocks,
        Self::MaxNumBatchedTokens,
    ];

    /// The field's name behind `<rank>.`.
    #[must_use]
    pub fn field(self) -> &'static str {
        match self {
            Self::ActiveDecodeBlocks => "active_decode_blocks",
            Self::TrackedDecodeBlocks => "tracked_decode_blocks",
            Self::ActivePrefillTokens => "active_prefill_tokens",
            Self::TrackedPrefillTokens => "tracked_prefill_tokens",
            Self::KvTotalBlocks => "kv_total_blocks",
            Self::MaxNumBatchedTokens => "max_num_batched_tokens",
        }
    }

    /// Signals are stored with their time of arrival and go stale; capacities do not.
    #[must_use]
    pub fn is_signal(self) -> bool {
        !matches!(self, Self::KvTotalBlocks | Self::MaxNumBatchedTokens)
    }
}

impl Source {
    /// As in `P:config:history`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Api => "api",
            Self::Seed => "seed",
        }
    }
}
