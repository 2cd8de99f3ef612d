//! Admissions of one process on a real Redis: leases, groups, and what a broken Redis does to them. The processes
//! around it are not needed for this, so these tests drive `Admissions` itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::config::redis_url::RedisUrl;
use tidegate::core::id::{ModelName, Namespace, WorkerId};
use tidegate::core::op::Registration;
use tidegate::core::refusal::{Reason, Refusal};
use tidegate::core::registrar::{Answer, Call, Registrar, Sample, Standing};
use tidegate::frontend::admission::{Admissions, Ask, Declined, Lease, Mode};
use tidegate::frontend::settings::Settings;
use tidegate::keys::ModelKeys;
use tidegate::metrics::admission::AdmissionMetrics;
use tidegate::scripts::IndexOp;
use tidegate::store::Store;

use crate::harness::{Fault, FaultProxy, Redis, eventually, eventually_within};

pub(crate) fn model() -> ModelName {
    ModelName::parse("m").unwrap()
}

pub(crate) fn store(url: &str, namespace: &Namespace) -> Store {
    Store::redis(RedisUrl::parse(url).unwrap(), namespace.clone(), Duration::from_millis(250), 4)
}

pub(crate) fn admissions(store: Store) -> Admissions {
    let settings = Settings::new("127.0.0.1:0".parse().unwrap());
    let metrics = AdmissionMetrics::register(&prometheus::Registry::new()).unwrap();
    Admissions::start(store, &settings, Arc::new(metrics))
}

/// A worker that gives signs of life until it is dropped.
pub(crate) struct Beating {
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn registration(worker: &str, cap: u64) -> Registration {
    Registration {
        worker: WorkerId::parse(worker).unwrap(),
        url: format!("http://{worker}:1"),
        data_parallel_start_rank: 0,
        data_parallel_size: 1,
        engine_request_limit: Some(cap),
        request_queue_limit: 0,
        kv_block_size: 16,
        draining: false,
        engine_down: false,
        worker_ttl_ms: 5_000,
    }
}

/// Starts a worker that registers and reports, as its sidecar would, and waits until it is known.
pub(crate) async fn worker_of(store: &Store, model: &ModelName, id: &str, cap: u64) -> Beating {
    let (known, mut is_known) = tokio::sync::watch::channel(false);
    let task = tokio::spawn(beat(store.clone(), model.clone(), registration(id, cap), known));
    let wait = tokio::time::timeout(Duration::from_secs(20), is_known.wait_for(|known| *known));
    wait.await.expect("a worker is registered").unwrap();
    Beating { task }
}

async fn beat(store: Store, model: ModelName, registration: Registration, known: tokio::sync::watch::Sender<bool>) {
    let sample = Sample { registration, figures: Vec::new(), room: true };
    let mut registrar = Registrar::new(&nonce(), 5_000);
    let start = Instant::now();
    let mut touched = None;
    loop {
        let now = || u64::try_from(start.elapsed().as_millis()).unwrap();
        if let Some(call) = registrar.poll(now(), &sample, &nonce()) {
            let answer = match call {
                Call::Register(op) => store.call(&model, &op).await.map(Answer::Registered),
                Call::Report(op) => store.call(&model, &op).await.map(Answer::Reported),
            };
            registrar.answer(now(), &answer.unwrap_or(Answer::Failed));
        }
        if registrar.standing() == Standing::Held {
            if touched.is_none_or(|at: Instant| at.elapsed() > Duration::from_secs(3)) {
                touched = store.index(&IndexOp::Touch(model.clone())).await.ok().map(|_| Instant::now());
            }
            known.send_replace(touched.is_some());
        }
        if !registrar.eager() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn nonce() -> String {
    format!("{:08x}", rand::random::<u32>())
}

/// The same for the model `m`.
pub(crate) async fn worker(store: &Store, id: &str, cap: u64) -> Beating {
    worker_of(store, &model(), id, cap).await
}

pub(crate) async fn admit(admissions: &Admissions) -> Result<Lease, Refusal> {
    admissions.admit(&model(), Ask::default()).await
}

async fn inflight(redis: &Redis, worker: &str) -> Option<i64> {
    let keys = ModelKeys::new(redis.namespace(), &model());
    redis.command(&["HGET", &keys.named("inflight"), worker]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_is_exact_over_two_frontends_and_all_comes_back() {
    let redis = Redis::any();
    let store = store(redis.url(), redis.namespace());
    let _worker = worker(&store, "w", 6).await;
    let (one, two) = (admissions(store.clone()), admissions(store.clone()));
    for _ in 0..5 {
        let asks = (0..60).map(|i| {
            let admissions = if i % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move { admit(&admissions).await })
        });
        let answers: Vec<_> = futures_util::future::join_all(asks).await.into_iter().map(Result::unwrap).collect();
        let leases: Vec<_> = answers.iter().filter_map(|a| a.as_ref().ok()).collect();
        assert_eq!(leases.len(), 6, "{answers:?}");
        assert!(answers.iter().filter_map(|a| a.as_ref().err()).all(|r| r.reason == Reason::AtCapacity));
        assert!(leases.iter().all(|l| !l.degraded && &*l.url == "http://w:1"));
        drop(answers);
        eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
    }
    one.stop(Duration::from_secs(5)).await;
    assert_eq!(admit(&one).await.unwrap_err().reason, Reason::Draining);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_models_are_told_apart_and_make_no_keys() {
    let redis = Redis::own(&[]);
    let store = store(redis.url(), redis.namespace());
    let admissions = admissions(store.clone());
    let ask = |name: &str| {
        let (admissions, name) = (admissions.clone(), ModelName::parse(name).unwrap());
        async move { admissions.admit(&name, Ask::default()).await.unwrap_err().reason }
    };
    assert_eq!(ask("m").await, Reason::NoWorkers, "the index is new: nobody can tell");
    eventually("the index is old enough", async || ask("m").await == Reason::ModelNotFound).await;
    let size: i64 = redis.command(&["DBSIZE"]).await;
    for n in 0..200 {
        assert_eq!(ask(&format!("made-up-{n}")).await, Reason::ModelNotFound);
    }
    assert_eq!(redis.command::<i64>(&["DBSIZE"]).await, size);
    let _worker = worker(&store, "w", 1).await;
    eventually("the model is served", async || admit(&admissions).await.is_ok()).await;
    eventually("it is shown", async || {
        admissions.model(&model()).is_some_and(|m| m.snapshot.has_live_worker() && m.live.mode == Mode::Deciding)
    })
    .await;
    let index = tidegate::keys::models(redis.namespace());
    eventually("the index is lost", async || {
        redis.command::<i64>(&["DEL", &index]).await;
        admissions.knows(&model()).await == Ok(false)
    })
    .await;
    let reason = admit(&admissions).await.err().map(|refusal| refusal.reason);
    assert_ne!(reason, Some(Reason::ModelNotFound), "it is still served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_its_place_with_it() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    let direct = store(redis.url(), redis.namespace());
    let _worker = worker(&direct, "w", 1).await;
    let admissions = admissions(store(&proxy.url(&redis), redis.namespace()));
    drop(admit(&admissions).await.unwrap());
    proxy.set(Fault::Delay(Duration::from_millis(30), Duration::from_millis(30)));
    for _ in 0..20 {
        let wait = tokio::time::timeout(Duration::from_millis(rand::random_range(0..80)), admit(&admissions));
        drop(wait.await);
    }
    eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_a_worker_skips_it_for_all() {
    let redis = Redis::any();
    let store = store(redis.url(), redis.namespace());
    let _workers = (worker(&store, "w1", 4).await, worker(&store, "w2", 4).await);
    let (one, two) = (admissions(store.clone()), admissions(store.clone()));
    let lease = admit(&one).await.unwrap();
    let refused = lease.worker.clone();
    lease.decline(Declined::Capacity);
    eventually("the skip is known", async || {
        let keys = ModelKeys::new(redis.namespace(), &model());
        redis.command::<Option<f64>>(&["ZSCORE", &keys.named("skips"), refused.as_str()]).await.is_some()
    })
    .await;
    assert_ne!(admit(&two).await.unwrap().worker, refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_leak_nothing() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    let direct = store(redis.url(), redis.namespace());
    let _worker = worker(&direct, "w", 4).await;
    let admissions = admissions(store(&proxy.url(&redis), redis.namespace()));
    drop(admit(&admissions).await.unwrap());
    proxy.set(Fault::LoseReplies(0.05));
    let mut admitted = 0;
    for _ in 0..500 {
        match admit(&admissions).await {
            Ok(_) => admitted += 1,
            Err(e) => assert!(matches!(e.reason, Reason::StoreUnavailable | Reason::AtCapacity), "{e:?}"),
        }
    }
    assert!(proxy.lost() > 0 && admitted > 0, "lost {}, admitted {admitted}", proxy.lost());
    proxy.set(Fault::None);
    eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
    eventually("and it serves", async || admit(&admissions).await.is_ok_and(|l| !l.degraded)).await;
}

mod owned {
    use super::*;
    use crate::harness::Signal;

    #[tokio::test(flavor = "multi_thread")]
    async fn f070_a_flush_loses_no_lease() {
        let redis = Redis::own(&[]);
        let store = store(redis.url(), redis.namespace());
        let _worker = worker(&store, "w", 4).await;
        let admissions = admissions(store.clone());
        let held = [admit(&admissions).await.unwrap(), admit(&admissions).await.unwrap()];
        eventually("there is a snapshot", async || {
            admissions.model(&model()).is_some_and(|m| m.snapshot.has_live_worker())
        })
        .await;
        redis.command::<()>(&["FLUSHALL"]).await;
        eventually_within(Duration::from_secs(9), "the leases are back, and it decides", async || {
            inflight(&redis, "w").await == Some(2)
                && admissions.model(&model()).is_some_and(|m| m.live.mode == Mode::Deciding)
        })
        .await;
        let shown = || admissions.model(&model()).map(|m| m.snapshot.workers.values().map(|w| w.inflight).collect());
        eventually("the copy is whole again", async || shown() == Some(vec![2])).await;
        drop(held);
        eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
        eventually("and shown", async || shown() == Some(vec![0])).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f058_forgotten_scripts_are_sent_again() {
        let redis = Redis::own(&[]);
        let store = store(redis.url(), redis.namespace());
        let _worker = worker(&store, "w", 4).await;
        let admissions = admissions(store.clone());
        for _ in 0..50 {
            admit(&admissions).await.unwrap();
            redis.command::<()>(&["SCRIPT", "FLUSH"]).await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f082_a_frozen_redis_is_answered_for() {
        let redis = Redis::own(&[]);
        let store = store(redis.url(), redis.namespace());
        let _worker = worker(&store, "w", 4).await;
        let admissions = admissions(store.clone());
        drop(admit(&admissions).await.unwrap());
        eventually("there is a snapshot", async || {
            admissions.model(&model()).is_some_and(|m| m.snapshot.has_live_worker())
        })
        .await;
        redis.signal(Signal::STOP);
        eventually("static mode", async || admit(&admissions).await.is_ok_and(|lease| lease.degraded)).await;
        let held: Vec<_> = futures_util::future::join_all((0..10).map(|_| admit(&admissions))).await;
        assert_eq!(held.iter().filter(|a| a.is_ok()).count(), 4, "the cap holds: {held:?}");
        redis.signal(Signal::CONT);
        eventually_within(Duration::from_secs(4), "Redis is told", async || inflight(&redis, "w").await == Some(4))
            .await;
        drop(held);
        eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
        assert!(!admit(&admissions).await.unwrap().degraded);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f062_no_memory_is_a_503_and_passes() {
        let redis = Redis::own(&[]);
        let store = store(redis.url(), redis.namespace());
        let _worker = worker(&store, "w", 4).await;
        let admissions = admissions(store.clone());
        let held = [admit(&admissions).await.unwrap(), admit(&admissions).await.unwrap()];
        redis.command::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
        for _ in 0..20 {
            assert_eq!(admit(&admissions).await.unwrap_err().reason, Reason::StoreUnavailable);
        }
        drop(held);
        redis.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
        eventually("all is given back", async || inflight(&redis, "w").await == Some(0)).await;
        let all: Vec<_> = futures_util::future::join_all((0..4).map(|_| admit(&admissions))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
    }
}
