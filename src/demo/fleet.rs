//! The fleet of the demo: Redis or what stands in for it, engines, workers, frontends; all in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Error, Settings};
use crate::config::redis_url::RedisUrl;
use crate::core::id::{ModelName, Namespace, WorkerId};
use crate::core::op::{Page, Snapshot};
use crate::frontend::{self, Frontend};
use crate::http::base_url::BaseUrl;
use crate::mock_engine::{self, MockEngine, model::Limits};
use crate::redis_server::{self, RedisServer};
use crate::store::Store;
use crate::worker::{self, Worker, settings::EngineMetrics};

/// The model that the fleet serves.
pub(super) const MODEL: &str = "llama";
/// N of every worker: the sequences that its engine runs at a time.
pub(super) const SLOTS: u64 = 8;
/// Q of every worker.
pub(super) const QUEUE: u64 = 4;
/// Generated tokens per second of a request.
pub(super) const DECODE: f64 = 40.0;
/// KV blocks of an engine: eight requests of the demo's load fill all but a few of them.
const BLOCKS: u64 = 212;
/// `active_decode_blocks_threshold` of the demo.
pub(super) const THRESHOLD: &str = "0.85";
/// Budget of a call to Redis: generous, as everything shares this machine.
const BUDGET: Duration = Duration::from_millis(500);
/// How long the fleet may take to get ready.
const READY: Duration = Duration::from_secs(15);
/// How long running requests may take at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// What the fleet shares.
#[derive(Debug)]
pub(super) enum Shared {
    /// A server of its own.
    Private(RedisServer),
    /// The one of `--redis-url`.
    Given(RedisUrl),
    /// The pure model in this process: not Redis.
    InProcess,
}

/// A running fleet.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) shared: Shared,
    pub(super) store: Store,
    pub(super) model: ModelName,
    pub(super) frontends: Vec<SocketAddr>,
    pub(super) workers: Vec<(WorkerId, SocketAddr)>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Fleet {
    /// Opens all ports and starts all parts.
    pub(super) async fn start(settings: &Settings) -> Result<Self, Error> {
        let (shared, store) = share(settings)?;
        let made = |error: crate::core::id::NameError| Error::Made(error.to_string());
        let mut fleet = Self {
            shared,
            store,
            model: ModelName::parse(MODEL).map_err(made)?,
            frontends: Vec::new(),
            workers: Vec::new(),
            shutdown: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        for name in ["w1", "w2", "w3"] {
            fleet.add_worker(WorkerId::parse(name).map_err(made)?).await?;
        }
        for _ in 0..2 {
            fleet.add_frontend().await?;
        }
        Ok(fleet)
    }

    async fn add_worker(&mut self, id: WorkerId) -> Result<(), Error> {
        let limits = Limits {
            kv_total_blocks: BLOCKS,
            kv_block_size: 16,
            max_num_seqs: SLOTS,
            max_num_batched_tokens: 8_192,
            prefill_tokens_per_s: 20_000.0,
            decode_tokens_per_s: DECODE,
            data_parallel_size: 1,
        };
        let engine = mock_engine::Settings { listen: any_port(), model: self.model.clone(), limits };
        let engine = MockEngine::bind(engine)?;
        let url = BaseUrl::of_listener(engine.address()).map_err(|error| Error::Made(error.to_string()))?;
        let sidecar = worker::Settings {
            engine_request_limit: Some(SLOTS),
            request_queue_limit: QUEUE,
            engine_metrics: EngineMetrics::Vllm,
            report_interval: Duration::from_millis(200),
            drain: DRAIN,
            ..worker::Settings::new(self.model.clone(), id.clone(), any_port(), url)
        };
        let worker = Worker::bind(sidecar, self.store.clone()).await?;
        self.workers.push((id, worker.local_addr()?));
        self.tasks.spawn(engine.serve(self.shutdown.clone()));
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            if let Err(error) = worker.serve(shutdown).await {
                tracing::error!(%error, "a worker stopped");
            }
        });
        Ok(())
    }

    async fn add_frontend(&mut self) -> Result<(), Error> {
        let settings = frontend::Settings {
            seeds: vec![("active_decode_blocks_threshold".into(), THRESHOLD.into())],
            drain: DRAIN,
            ..frontend::Settings::new(any_port())
        };
        let frontend = Frontend::bind(settings, self.store.clone()).await?;
        self.frontends.push(frontend.local_addr()?);
        let shutdown = self.shutdown.clone();
        self.tasks.spawn(async move {
            if let Err(error) = frontend.serve(shutdown).await {
                tracing::error!(%error, "a frontend stopped");
            }
        });
        Ok(())
    }

    /// Waits until every worker is open for requests.
    pub(super) async fn ready(&self) -> Result<(), Error> {
        let deadline = Instant::now() + READY;
        loop {
            let seen = match self.snapshot().await {
                Ok(page) if page.workers.len() == self.workers.len() => return Ok(()),
                Ok(page) => format!("{} of {} workers have registered", page.workers.len(), self.workers.len()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(Error::NotReady(READY, seen));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The shared state; a fleet of three fits into one page.
    pub(super) async fn snapshot(&self) -> Result<Page, String> {
        let first = Snapshot { cursor: "0".into() };
        self.store.call(&self.model, &first).await.map_err(|error| error.to_string())
    }

    /// Drains and stops all parts.
    pub(super) async fn stop(mut self) {
        self.shutdown.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(2 * DRAIN, all).await;
    }
}

/// The Redis that was named, or a private one, or the in-process store.
fn share(settings: &Settings) -> Result<(Shared, Store), Error> {
    let namespace = |name: &str| Namespace::parse(name).map_err(|error| Error::Made(error.to_string()));
    if let Some(url) = &settings.redis_url {
        // Others may use this Redis: a namespace of our own.
        let name = namespace(&format!("demo-{:08x}", rand::random::<u32>()))?;
        return Ok((Shared::Given(url.clone()), Store::redis(url.clone(), name, BUDGET, 4)));
    }
    let name = namespace("tidegate")?;
    if redis_server::find().is_none() {
        return Ok((Shared::InProcess, Store::memory(name)));
    }
    let server = RedisServer::start(&[])?;
    let url = RedisUrl::parse(&server.url()).map_err(Error::Made)?;
    Ok((Shared::Private(server), Store::redis(url, name, BUDGET, 4)))
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
