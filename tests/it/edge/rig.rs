//! A frontend in this process, and workers that exist only in Redis and as stubs.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate::config::redis_url::RedisUrl;
use tidegate::core::id::{Incarnation, ModelName, WorkerId};
use tidegate::core::op::{Figure, FigureKind, Register, Registered, Registration};
use tidegate::frontend::{Frontend, Settings};
use tidegate::keys::ModelKeys;
use tidegate::scripts::IndexOp;
use tidegate::store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::{Connection, Redis, Stub, eventually, get, request};

pub(super) const CHAT: &str = "/v1/chat/completions";
pub(super) const JSON: &str = "Content-Type: application/json\r\n";
pub(super) const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;
pub(super) const STREAM: &[u8] = br#"{"model":"m","messages":[],"stream":true}"#;

/// What one test holds.
pub(super) struct Rig {
    pub(super) redis: Redis,
    pub(super) store: Store,
    pub(super) shutdown: CancellationToken,
    address: SocketAddr,
    admin: Option<SocketAddr>,
    serving: JoinHandle<()>,
    workers: Vec<JoinHandle<()>>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.serving.abort();
        self.workers.iter().for_each(JoinHandle::abort);
    }
}

/// A worker of [`Rig::add`].
#[derive(Clone)]
pub(super) struct Worker<'a> {
    pub(super) id: &'a str,
    pub(super) url: String,
    pub(super) model: &'a str,
    pub(super) cap: u64,
    pub(super) figures: Vec<(FigureKind, u64)>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(id: &'a str, stub: &Stub) -> Self {
        Self { id, url: stub.url(), model: "m", cap: 1000, figures: Vec::new() }
    }
}

impl Rig {
    /// A frontend with the settings of a test, without workers.
    pub(super) async fn bare(change: impl FnOnce(&mut Settings)) -> Self {
        let redis = Redis::any();
        let url = RedisUrl::parse(redis.url()).unwrap();
        let store = Store::redis(url, redis.namespace().clone(), Duration::from_millis(250), 4);
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        let frontend = Frontend::bind(settings, store.clone()).await.unwrap();
        let (address, admin) = (frontend.local_addr().unwrap(), frontend.admin_addr().unwrap());
        let shutdown = CancellationToken::new();
        let drain = shutdown.clone();
        let serving = tokio::spawn(async move { frontend.serve(drain).await.unwrap() });
        eventually("the frontend is ready", async || get(address, "/ready").await.status == 200).await;
        Self { redis, store, shutdown, address, admin, serving, workers: Vec::new() }
    }

    /// A frontend and one worker `w1` with a cap, in front of a stub.
    pub(super) async fn with(stub: &Stub, cap: u64, change: impl FnOnce(&mut Settings)) -> Self {
        let mut rig = Self::bare(change).await;
        rig.add(Worker { cap, ..Worker::new("w1", stub) }).await;
        rig
    }

    /// Registers a worker and keeps it alive.
    pub(super) async fn add(&mut self, worker: Worker<'_>) {
        let mut had = None;
        let mut number = 1;
        eventually("the worker is registered", async || {
            number += 1;
            had = register(&self.store, &worker, had.clone(), number).await;
            had.is_some()
        })
        .await;
        let model = worker.model.to_owned();
        let (store, id, url, cap, figures) =
            (self.store.clone(), worker.id.to_owned(), worker.url, worker.cap, worker.figures);
        let listed = model.clone();
        self.workers.push(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                number += 1;
                let worker = Worker { id: &id, url: url.clone(), model: &model, cap, figures: figures.clone() };
                had = register(&store, &worker, had.clone(), number).await.or(had);
            }
        }));
        eventually("the model is listed", async || {
            get(self.address, "/v1/models").await.text().contains(&format!("{listed:?}"))
        })
        .await;
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn admin(&self) -> SocketAddr {
        self.admin.expect("an admin port")
    }

    pub(super) async fn connect(&self) -> Connection {
        Connection::open(self.address).await.unwrap()
    }

    /// A connection on which a chat request has been sent.
    pub(super) async fn send(&self, body: &[u8]) -> Connection {
        let mut connection = self.connect().await;
        connection.send(request("POST", CHAT, JSON, body)).await.unwrap();
        connection
    }

    /// The shared admission counter of a worker of `m`.
    pub(super) async fn inflight(&self, worker: &str) -> i64 {
        let keys = ModelKeys::new(self.redis.namespace(), &ModelName::parse("m").unwrap());
        self.redis.command::<Option<i64>>(&["HGET", &keys.named("inflight"), worker]).await.unwrap_or(0)
    }

    /// Waits until no place of `w1` is taken.
    pub(super) async fn quiet(&self) {
        eventually("all places are free", async || self.inflight("w1").await == 0).await;
    }

    /// A sample of the metrics page; 0 if it is not there.
    pub(super) async fn metric(&self, series: &str) -> f64 {
        let page = get(self.admin.unwrap_or(self.address), "/metrics").await.text();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    /// Waits until the frontend has ended by itself.
    pub(super) async fn ended(&mut self) {
        (&mut self.serving).await.unwrap();
    }
}

async fn register(store: &Store, worker: &Worker<'_>, had: Option<Incarnation>, number: u64) -> Option<Incarnation> {
    let model = ModelName::parse(worker.model).unwrap();
    let registration = Registration {
        worker: WorkerId::parse(worker.id).unwrap(),
        url: worker.url.clone(),
        data_parallel_start_rank: 0,
        data_parallel_size: 1,
        engine_request_limit: Some(worker.cap),
        request_queue_limit: 0,
        kv_block_size: 16,
        draining: false,
        engine_down: false,
        worker_ttl_ms: 5_000,
    };
    let figures = worker.figures.iter().map(|(kind, value)| Figure { rank: 0, kind: *kind, value: *value }).collect();
    let known = had.is_some();
    let op =
        Register { registration, nonce: "abcd1234".into(), incarnation: had, known, yields: false, number, figures };
    let registered = store.call(&model, &op).await.ok()?;
    store.index(&IndexOp::Touch(model)).await.ok()?;
    match registered {
        Registered::Ok { incarnation } => Some(incarnation),
        other => panic!("{other:?}"),
    }
}
