//! The operator's commands on a real Redis.

mod doctor;
mod settings;
mod signals;
mod status;
mod thresholds;

use std::time::Duration;

use tidegate::config::redis_url::RedisUrl;
use tidegate::core::id::{FrontendId, LeaseId, ModelName, WorkerId};
use tidegate::core::op::{
    Admission, Caller, Decide, Fenced, Figure, FigureKind, Hello, Reconcile, Reconciled, Register, Registered,
    Registration,
};
use tidegate::scripts::IndexOp;
use tidegate::store::Store;

use crate::harness::{Fleet, Process};

/// A model whose workers and frontend are played by the test: what is in Redis is exactly what it did.
struct Stage {
    fleet: Fleet,
    store: Store,
    model: ModelName,
    frontend: Option<Caller>,
}

impl Stage {
    fn new() -> Self {
        Self::on(Fleet::new())
    }

    fn on(fleet: Fleet) -> Self {
        let url = RedisUrl::parse(fleet.redis.url()).expect("the harness gives a valid URL");
        let store = Store::redis(url, fleet.redis.namespace().clone(), Duration::from_secs(10), 4);
        let model = ModelName::parse(&fleet.model).expect("a model name");
        Self { fleet, store, model, frontend: None }
    }

    /// Registers a worker that uses `used` of 100 KV blocks and has 6 places.
    async fn worker(&self, id: &str, used: u64) {
        let figure = |kind, value| Figure { rank: 0, kind, value };
        let op = Register {
            registration: Registration {
                worker: WorkerId::parse(id).expect("a worker id"),
                url: "http://127.0.0.1:9".into(),
                data_parallel_start_rank: 0,
                data_parallel_size: 1,
                engine_request_limit: Some(4),
                request_queue_limit: 2,
                kv_block_size: 16,
                draining: false,
                engine_down: false,
                worker_ttl_ms: 3_600_000,
            },
            nonce: "abcd1234".into(),
            incarnation: None,
            known: false,
            yields: false,
            number: 1,
            figures: vec![figure(FigureKind::KvTotalBlocks, 100), figure(FigureKind::ActiveDecodeBlocks, used)],
        };
        let answer = self.store.call(&self.model, &op).await.expect("Redis is there");
        assert!(matches!(answer, Registered::Ok { .. }), "{answer:?}");
        self.store.index(&IndexOp::Touch(self.model.clone())).await.expect("Redis is there");
    }

    /// Says hello as a frontend, and admits so many requests.
    async fn admit(&mut self, requests: usize) {
        let nonce = || "0badcafe".to_owned();
        let frontend = FrontendId::parse("f-00000001").expect("a frontend id");
        let mut caller =
            Caller { frontend, epoch: String::new(), seq: 1, acked: 0, seen: 0, mem: false, nonce: nonce() };
        let hello = self.store.call(&self.model, &Hello(caller.clone())).await.expect("Redis is there");
        assert!(matches!(hello, Fenced::Done(_)), "{hello:?}");
        caller.seq = 2;
        let assertion = Reconcile { caller: caller.clone(), first: true, leases: Vec::new() };
        let Fenced::Done(Reconciled::Done { epoch, .. }) =
            self.store.call(&self.model, &assertion).await.expect("Redis is there")
        else {
            panic!("reconcile")
        };
        caller.epoch = epoch;
        caller.seq = 3;
        let admission = |n| Admission {
            id: LeaseId::parse(&format!("lease-{n}")).expect("a lease id"),
            tokens: 10,
            pin: None,
            exclude: Vec::new(),
        };
        let decide = Decide {
            caller: caller.clone(),
            seed: 7,
            releases: Vec::new(),
            skips: Vec::new(),
            admissions: (0..requests).map(admission).collect(),
        };
        let decided = self.store.call(&self.model, &decide).await.expect("Redis is there");
        assert!(matches!(decided, Fenced::Done(_)), "{decided:?}");
        self.frontend = Some(caller);
    }

    /// A key of the model.
    fn key(&self, name: &str) -> String {
        self.fleet.keys().named(name)
    }

    async fn command(&self, words: &[&str]) -> redis::Value {
        self.fleet.redis.command(words).await
    }

    /// Runs a command of the binary on this Redis; its exit code and what it printed.
    async fn run(&self, arguments: &[&str]) -> (i32, String) {
        let namespace = self.fleet.redis.namespace().as_str();
        let mut all = arguments.to_vec();
        all.extend(["--redis-url", self.fleet.redis.url(), "--namespace", namespace, "--log", "off"]);
        finished(self.fleet.process(arguments[0], &all, &[])).await
    }

    /// As [`Stage::run`], for a command that must work and prints JSON.
    async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let (code, text) = self.run(arguments).await;
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"))
    }
}

async fn finished(mut process: Process) -> (i32, String) {
    let code = process.exit_code().await;
    (code, process.log())
}
