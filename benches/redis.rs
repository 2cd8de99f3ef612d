//! The Redis rows of the speed table (design section 11), as ratios measured in one run.
//!
//! What is measured is the CPU time of Redis's main thread per operation, so that a busy machine and a slow client do
//! not count; the base is a pipelined `EVAL "return 1" 0` on the same server, in rounds that alternate with the rest.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a bench prints, and stops at the first thing that is wrong"
)]

use redis::{Connection, Value};
use tidegate::core::id::{FrontendId, LeaseId, ModelName, Namespace, WorkerId};
use tidegate::core::op::*;
use tidegate::keys::ModelKeys;
use tidegate::redis_server::RedisServer;
use tidegate::scripts::Operation;

const GROUP: usize = 16;
const ROUNDS: usize = 5;
/// Calls in one pipeline.
const DEPTH: usize = 32;

struct Shard {
    keys: ModelKeys,
    caller: Caller,
    next: u64,
    live: Vec<LeaseId>,
}

fn call<O: Operation>(c: &mut Connection, keys: &ModelKeys, op: &O) -> O::Reply {
    let i = op.invocation(keys);
    let value = redis::cmd("EVAL").arg(&i.script.text).arg(i.keys.len()).arg(&i.keys).arg(&i.args).query(c);
    O::reply(value.unwrap()).unwrap()
}

impl Shard {
    fn new(c: &mut Connection, model: &str, workers: usize, cap: Option<u64>) -> Self {
        let namespace = Namespace::parse("bench").unwrap();
        let keys = ModelKeys::new(&namespace, &ModelName::parse(model).unwrap());
        for i in 0..workers {
            let registration = Registration {
                worker: WorkerId::parse(&format!("worker-{i}")).unwrap(),
                url: format!("http://10.0.{}.{}:9001", i / 250, i % 250),
                data_parallel_start_rank: 0,
                data_parallel_size: 1,
                engine_request_limit: cap,
                request_queue_limit: 0,
                kv_block_size: 16,
                draining: false,
                engine_down: false,
                worker_ttl_ms: 600_000,
            };
            let op = Register {
                registration,
                nonce: "bench".into(),
                incarnation: None,
                known: false,
                yields: false,
                number: 1,
                figures: Vec::new(),
            };
            assert!(matches!(call(c, &keys, &op), Registered::Ok { .. }));
        }
        let caller = Caller {
            frontend: FrontendId::parse("bench-00000000").unwrap(),
            epoch: String::new(),
            seq: 1,
            acked: 0,
            seen: 0,
            mem: false,
            nonce: "b".into(),
        };
        let mut shard = Self { keys, caller, next: 0, live: Vec::new() };
        assert!(matches!(call(c, &shard.keys, &Hello(shard.caller.clone())), Fenced::Done(_)));
        shard.caller.seq = 2;
        let op = Reconcile { caller: shard.caller.clone(), first: true, leases: Vec::new() };
        match call(c, &shard.keys, &op) {
            Fenced::Done(Reconciled::Done { epoch, .. }) => shard.caller.epoch = epoch,
            other => panic!("{other:?}"),
        }
        shard
    }

    /// One group: as many releases as there are leases from the last one, and GROUP admissions.
    fn decide(&mut self, releases: bool) -> Decide {
        self.caller.seq += 1;
        let admissions: Vec<Admission> = (0..GROUP)
            .map(|_| {
                self.next += 1;
                let id = LeaseId::parse(&format!("0197{:028x}", self.next)).unwrap();
                Admission { id, tokens: 500, pin: None, exclude: Vec::new() }
            })
            .collect();
        let new: Vec<LeaseId> = admissions.iter().map(|a| a.id.clone()).collect();
        let old = std::mem::replace(&mut self.live, new);
        Decide {
            caller: self.caller.clone(),
            seed: 1 + (self.next % 1_000_000) as u32,
            releases: if releases { old } else { Vec::new() },
            skips: Vec::new(),
            admissions,
        }
    }
}

/// CPU seconds of Redis's main thread so far.
fn cpu(c: &mut Connection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query(c).unwrap();
    info.lines()
        .filter_map(|l| l.split_once(':'))
        .filter(|(k, _)| k.ends_with("_main_thread"))
        .map(|(_, v)| v.trim().parse::<f64>().unwrap())
        .sum()
}

/// Redis CPU microseconds per call of `pipelines` pipelines of DEPTH calls.
fn cost(c: &mut Connection, pipelines: usize, mut add: impl FnMut(&mut redis::Pipeline)) -> f64 {
    let batches: Vec<redis::Pipeline> = (0..pipelines)
        .map(|_| {
            let mut p = redis::pipe();
            for _ in 0..DEPTH {
                add(&mut p);
            }
            p
        })
        .collect();
    let before = cpu(c);
    for p in &batches {
        let replies: Vec<Value> = p.query(c).unwrap();
        assert_eq!(replies.len(), DEPTH);
    }
    (cpu(c) - before) * 1e6 / (pipelines * DEPTH) as f64
}

fn add_decide(p: &mut redis::Pipeline, shard: &mut Shard, releases: bool) {
    let op = shard.decide(releases);
    let i = op.invocation(&shard.keys);
    p.cmd("EVALSHA").arg(&i.script.sha).arg(i.keys.len()).arg(&i.keys).arg(&i.args);
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn main() {
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let server = RedisServer::start(&[]).expect("redis-server on PATH");
    let mut c = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut thousand = Shard::new(&mut c, "thousand", 1000, Some(20));
    let mut ten = Shard::new(&mut c, "ten", 10, Some(2000));
    let mut many = Shard::new(&mut c, "many", 10_000, Some(20));
    let mut shut = Shard::new(&mut c, "shut", 1000, Some(1));
    let (mut noop, mut a, mut b, mut d, mut r) = (vec![], vec![], vec![], vec![], vec![]);
    // Fill `shut`, so that everything more is refused.
    for _ in 0..1000 / GROUP + 1 {
        let op = shut.decide(false);
        assert!(matches!(call(&mut c, &shut.keys, &op), Fenced::Done(_)));
    }
    for _ in 0..ROUNDS {
        noop.push(cost(&mut c, 400, |p| {
            p.cmd("EVAL").arg("return 1").arg(0);
        }));
        a.push(cost(&mut c, 40, |p| add_decide(p, &mut thousand, true)));
        b.push(cost(&mut c, 40, |p| add_decide(p, &mut ten, true)));
        d.push(cost(&mut c, 40, |p| add_decide(p, &mut many, true)));
        r.push(cost(&mut c, 40, |p| add_decide(p, &mut shut, false)));
    }
    let (noop, a, b, d, r) = (median(noop), median(a), median(b), median(d), median(r));
    let per = |call: f64, n: usize| call / n as f64;
    println!("Redis CPU per operation, median of {ROUNDS} rounds in one run; no-op EVAL: {noop:.2} us");
    println!("{:<74}{:>8}{:>9}", "figure", "ratio", "target");
    let row = |what: &str, ratio: f64, target: f64| {
        let mark = if ratio >= target { "" } else { "  MISSED" };
        println!("{what:<74}{ratio:>8.3}{target:>9.2}{mark}");
    };
    row("admissions + releases / s, 1,000 workers, groups of 16, against no-op EVAL", noop / per(a, 2 * GROUP), 0.22);
    println!(
        "    (a pair of admission and release: {:.2} us, {:.0} k pairs/s of Redis CPU)",
        per(a, GROUP),
        1e3 / per(a, GROUP)
    );
    row("the same at 10,000 workers against 10 workers", b / d, 0.85);
    row("refusals / s, groups of 16, against no-op EVAL", noop / per(r, GROUP), 0.8);
}
