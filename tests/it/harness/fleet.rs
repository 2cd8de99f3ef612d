//! A fleet of real processes on one Redis, serving the model `m` unless told otherwise.

use std::collections::HashMap;

use tidegate::core::id::{ModelName, WorkerId};
use tidegate::keys::ModelKeys;

use super::logs::Logs;
use super::{Process, Redis, Stub, eventually, get, post};

/// What the processes of one test share.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) redis: Redis,
    pub(crate) model: String,
    logs: Logs,
}

impl Fleet {
    /// On [`Redis::any`].
    pub(crate) fn new() -> Self {
        Self::on(Redis::any())
    }

    /// On this Redis.
    pub(crate) fn on(redis: Redis) -> Self {
        Self { redis, model: "m".into(), logs: Logs::new() }
    }

    /// A process with any arguments; not waited for.
    pub(crate) fn process(&self, name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        Process::start(&self.logs, name, arguments, environment)
    }

    /// A frontend that listens and is ready.
    pub(crate) async fn frontend(&self, arguments: &[&str]) -> Process {
        self.frontend_on(self.redis.url(), arguments).await
    }

    /// A frontend that reaches Redis at `url`, such as through a [`super::FaultProxy`].
    pub(crate) async fn frontend_on(&self, url: &str, arguments: &[&str]) -> Process {
        let frontend = self.start_frontend(url, arguments, &[]).listening().await;
        eventually("the frontend is ready", async || get(frontend.address(), "/ready").await.status == 200).await;
        frontend
    }

    /// A frontend; not waited for.
    pub(crate) fn start_frontend(&self, url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Process {
        let namespace = self.redis.namespace().as_str();
        let mut all = vec!["frontend", "--redis-url", url, "--namespace", namespace];
        all.extend(arguments);
        if !arguments.contains(&"--http-listen") {
            all.extend(["--http-listen", "127.0.0.1:0"]);
        }
        self.process("frontend", &all, environment)
    }

    /// A worker of [`Self::model`] that has registered.
    pub(crate) async fn worker(&self, id: &str, engine: &Stub, arguments: &[&str]) -> Process {
        let worker = self.start_worker(self.redis.url(), &self.model, id, &engine.url(), arguments).listening().await;
        self.registered(&self.model, id).await;
        worker
    }

    /// Waits until the worker is in the set of live ones.
    pub(crate) async fn registered(&self, model: &str, id: &str) {
        let key = keys(&self.redis, model).named("workers");
        eventually(&format!("{id} has registered"), async || {
            self.redis.command::<Option<String>>(&["ZSCORE", &key, id]).await.is_some()
        })
        .await;
    }

    /// A worker; not waited for.
    pub(crate) fn start_worker(&self, redis: &str, model: &str, id: &str, engine: &str, arguments: &[&str]) -> Process {
        let namespace = self.redis.namespace().as_str();
        let mut all = vec!["worker", "--redis-url", redis, "--namespace", namespace];
        all.extend(["--model", model, "--worker-id", id, "--engine-url", engine]);
        all.extend(arguments);
        if !arguments.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        self.process(&format!("worker-{id}"), &all, &[])
    }

    /// The keys of [`Self::model`].
    pub(crate) fn keys(&self) -> ModelKeys {
        keys(&self.redis, &self.model)
    }

    /// The whole hash of that name: `hash("stats")`.
    pub(crate) async fn hash(&self, name: &str) -> HashMap<String, String> {
        self.redis.command(&["HGETALL", &self.keys().named(name)]).await
    }

    /// The hash of a worker.
    pub(crate) async fn worker_hash(&self, id: &str) -> HashMap<String, String> {
        let key = self.keys().worker(&WorkerId::parse(id).expect("a worker id"));
        self.redis.command(&["HGETALL", &key]).await
    }

    /// The admission counter of a worker; 0 if it has none.
    pub(crate) async fn inflight(&self, id: &str) -> i64 {
        let value: Option<i64> = self.redis.command(&["HGET", &self.keys().named("inflight"), id]).await;
        value.unwrap_or(0)
    }

    /// `inflight_total`.
    pub(crate) async fn inflight_total(&self) -> i64 {
        let value: Option<i64> = self.redis.command(&["HGET", &self.keys().named("stats"), "inflight_total"]).await;
        value.unwrap_or(0)
    }

    /// Waits until nothing is admitted any more, and checks that counters and leases say so too.
    pub(crate) async fn quiet(&self) {
        eventually("all slots are given back", async || self.inflight_total().await == 0).await;
        let inflight = self.hash("inflight").await;
        assert!(inflight.values().all(|count| count == "0"), "{inflight:?}");
        for (frontend, value) in self.hash("seq").await {
            assert!(value.ends_with("|0"), "frontend {frontend} still counts leases: {value}");
        }
    }

    /// Whether the worker is in the set of busy ones.
    pub(crate) async fn is_busy(&self, id: &str) -> bool {
        self.redis.command(&["SISMEMBER", &self.keys().named("busy"), id]).await
    }

    /// Sets a field of the operator's hash, as `redis-cli HSET` would.
    pub(crate) async fn set_config(&self, field: &str, value: &str) {
        self.redis.command::<i64>(&["HSET", &self.keys().named("config"), field, value]).await;
    }

    /// The value in force; none if unset.
    pub(crate) async fn applied(&self, field: &str) -> Option<String> {
        self.redis.command(&["HGET", &self.keys().named("config:applied"), field]).await
    }
}

/// Posts load figures to a worker's sidecar; they are in Redis afterwards.
pub(crate) async fn publish(worker: &Process, figures: &serde_json::Value) {
    let answer = post(worker.address(), "/load", figures).await;
    assert_eq!(answer.status, 204, "{figures}: {}", answer.text());
}

/// Changes or reads thresholds through a frontend; the answer's body.
pub(crate) async fn thresholds(frontend: &Process, body: &serde_json::Value) -> serde_json::Value {
    let answer = post(frontend.address(), "/busy_threshold", body).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    answer.json()
}

/// The value of a series on a metrics page: the only one whose name is `name` and whose labels contain all of `labels`.
pub(crate) async fn metric(process: &Process, name: &str, labels: &[&str]) -> Option<f64> {
    let page = get(process.address(), "/metrics").await.text();
    let mut found = page.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label)))
    });
    let line = found.next()?;
    assert!(found.next().is_none(), "several series {name} {labels:?}:\n{page}");
    line.rsplit(' ').next()?.parse().ok()
}

/// The keys of a model in the namespace of `redis`.
pub(crate) fn keys(redis: &Redis, model: &str) -> ModelKeys {
    ModelKeys::new(redis.namespace(), &ModelName::parse(model).expect("a model name"))
}
