//! What the small numbers of a step stand for.

use tidegate::core::id::WorkerId;
use tidegate::core::op::{Figure, FigureKind, Registration};
use tidegate::core::thresholds::Field;

use super::steps;

/// Workers' names: bars, spaces, other alphabets, something that looks like a pattern.
const WORKERS: [&str; 5] = ["w1", "w|2", "wörker 3", "%w[4]", "ghost"];
/// Values for the configuration, good and bad.
const VALUES: [&str; 22] = [
    "0.5",
    "0",
    "1",
    "0.85",
    "7",
    "3",
    "100",
    "1000",
    "true",
    "false",
    "round-robin",
    "random",
    "power-of-two",
    "least-loaded",
    "kv",
    "direct",
    "-1",
    "nan",
    "1e309",
    "",
    " 1",
    "9007199254740992",
];

pub(super) fn worker(i: usize) -> WorkerId {
    WorkerId::parse(WORKERS[i % WORKERS.len()]).expect("a name")
}

pub(super) fn field_of(i: u8) -> &'static str {
    Field::ALL.get(usize::from(i) % (Field::ALL.len() + 1)).map_or("nonsense", |field| field.name())
}

pub(super) fn value_of(i: u8) -> &'static str {
    VALUES[usize::from(i) % VALUES.len()]
}

pub(super) fn registration(worker: &WorkerId, p: usize, shape: &steps::Shape) -> Registration {
    let mut r = Registration {
        worker: worker.clone(),
        url: format!("http://p{p}:9000"),
        data_parallel_start_rank: u32::from(shape.start),
        data_parallel_size: u32::from(shape.size),
        engine_request_limit: shape.slots.map(u64::from),
        request_queue_limit: u64::from(shape.queue),
        kv_block_size: 16,
        draining: shape.draining,
        engine_down: shape.engine_down,
        worker_ttl_ms: 5_000,
    };
    match shape.odd {
        1 => r.url = String::new(),
        2 => r.url = "http://a\nb".into(),
        3 => r.data_parallel_size = 1_025,
        4 => r.engine_request_limit = Some(0),
        5 => r.worker_ttl_ms = 4_999,
        6 => r.worker_ttl_ms = 60_000,
        7 => r.kv_block_size = 0,
        8 => r.url = "http://other|url:1/|x".into(),
        _ => {}
    }
    r
}

pub(super) fn figures_of(figures: &[steps::Figure]) -> Vec<Figure> {
    let figure = |f: &steps::Figure| Figure {
        rank: u32::from(f.rank),
        kind: FigureKind::ALL[usize::from(f.kind)],
        value: f.value,
    };
    figures.iter().map(figure).collect()
}
