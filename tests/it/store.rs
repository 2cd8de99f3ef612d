//! The store's promises on a Redis in every kind of trouble: each call is bounded, and each answer has its kind.

use std::time::{Duration, Instant};

use tidegate::config::redis_url::RedisUrl;
use tidegate::core::id::{FrontendId, Namespace};
use tidegate::core::op::{Caller, Fenced, Heartbeat, Hello, Reconcile, Reconciled, Snapshot};
use tidegate::scripts::IndexOp;
use tidegate::store::{CallError, Link, ServerError, Store};

use crate::admission::{admissions, admit, model, store, worker};
use crate::harness::{Fault, FaultProxy, Redis, eventually};

/// Twice the budget of a call: the machine is busy.
const BOUNDED: Duration = Duration::from_millis(500);

fn caller(seq: u64, epoch: &str) -> Caller {
    let frontend = FrontendId::parse("f-1").unwrap();
    let nonce = "n".to_owned();
    Caller { frontend, epoch: epoch.to_owned(), seq, acked: 0, seen: 0, mem: false, nonce }
}

/// Says hello and adopts the epoch; returns it. The first hello of all starts the first epoch, and is told so.
async fn adopt(link: &mut Link) -> String {
    let started = link.call(&Hello(caller(1, ""))).await.unwrap();
    if matches!(started, Fenced::Epoch { .. }) {
        let hello = link.call(&Hello(caller(2, ""))).await.unwrap();
        assert!(matches!(hello, Fenced::Done(_)), "{hello:?}");
    }
    let part = Reconcile { caller: caller(3, ""), first: true, leases: Vec::new() };
    match link.call(&part).await.unwrap() {
        Fenced::Done(Reconciled::Done { epoch, .. }) => epoch,
        other => panic!("{other:?}"),
    }
}

async fn kind(store: &Store) -> Option<ServerError> {
    match store.call(&model(), &Snapshot { cursor: "0".into() }).await {
        Err(CallError::Rejected { kind, .. }) => Some(kind),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_link_arrive_in_order() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    proxy.set(Fault::Delay(Duration::ZERO, Duration::from_millis(3)));
    let store = store(&proxy.url(&redis), redis.namespace());
    let mut link = store.link(&model());
    let epoch = adopt(&mut link).await;
    for seq in 2..200 {
        // The first is polled last: the order is that of the calls.
        let one = link.call(&Heartbeat(caller(2 * seq, &epoch)));
        let two = link.call(&Heartbeat(caller(2 * seq + 1, &epoch)));
        let (two, one) = (two.await.unwrap(), one.await.unwrap());
        assert!(matches!((&one, &two), (Fenced::Done(_), Fenced::Done(_))), "{seq}: {one:?} {two:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_closes_the_link_and_is_unknown() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    let store = store(&proxy.url(&redis), redis.namespace());
    let mut link = store.link(&model());
    let epoch = adopt(&mut link).await;
    assert!(link.is_connected());
    proxy.set(Fault::SwallowReplies);
    let lost = link.call(&Heartbeat(caller(10, &epoch))).await;
    assert!(matches!(lost, Err(CallError::Unknown(_))), "{lost:?}");
    assert!(!link.is_connected());
    proxy.set(Fault::None);
    let again = link.call(&Heartbeat(caller(10, &epoch))).await.unwrap();
    assert_eq!(again, Fenced::Stale { stored: 10 }, "it had been carried out");
}

#[tokio::test(flavor = "multi_thread")]
async fn f066_a_silent_peer_is_given_up_in_time() {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = store(&format!("redis://{}/0", deaf.local_addr().unwrap()), &Namespace::parse("t").unwrap());
    for _ in 0..3 {
        let begun = Instant::now();
        let answer = silent.index(&IndexOp::Meta).await;
        assert!(matches!(answer, Err(CallError::NotSent(_) | CallError::Unknown(_))), "{answer:?}");
        assert!(begun.elapsed() < BOUNDED, "{:?}", begun.elapsed());
    }
    assert_eq!(silent.open_breakers().len(), 1);
    let mut link = silent.link(&model());
    let begun = Instant::now();
    let answer = link.call(&Hello(caller(1, ""))).await;
    assert!(answer.is_err() && begun.elapsed() < BOUNDED, "{answer:?} {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_answers_at_once_and_closes_by_itself() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    let store = store(&proxy.url(&redis), redis.namespace());
    store.index(&IndexOp::Meta).await.unwrap();
    proxy.set(Fault::Freeze);
    eventually("the breaker is open", async || {
        store.index(&IndexOp::Meta).await.unwrap_err();
        !store.open_breakers().is_empty()
    })
    .await;
    // One of several calls at once may be the probe, the others do not wait.
    let begun = Instant::now();
    let quick = (0..20).map(|_| async {
        store.index(&IndexOp::Meta).await.unwrap_err();
        begun.elapsed()
    });
    let times = futures_util::future::join_all(quick).await;
    assert!(times.iter().filter(|t| **t < Duration::from_millis(100)).count() >= 19, "{times:?}");
    proxy.set(Fault::None);
    eventually("it closes", async || store.index(&IndexOp::Meta).await.is_ok()).await;
    assert!(store.open_breakers().is_empty());
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn passwords_and_permissions() {
        let redis = Redis::own(&[]);
        let port = redis.server(|s| s.port());
        let at = |user: &str| store(&format!("redis://{user}127.0.0.1:{port}/0"), redis.namespace());
        let acl = [
            "ACL",
            "SETUSER",
            "limited",
            "on",
            ">s3cret",
            "~*",
            "+@all",
            "-eval",
            "-evalsha",
            "-eval_ro",
            "-evalsha_ro",
        ];
        redis.command::<()>(&acl).await;
        assert_eq!(kind(&at("limited:s3cret@")).await, Some(ServerError::Auth), "NOPERM");
        redis.command::<()>(&["CONFIG", "SET", "requirepass", "p:w@d"]).await;
        at(":p%3Aw%40d@").index(&IndexOp::Meta).await.unwrap();
        for (user, secret) in [("", "nothing"), (":wr0ng@", "wr0ng"), ("limited:wr0ng@", "wr0ng")] {
            let store = at(user);
            let error = store.index(&IndexOp::Meta).await.unwrap_err();
            let said = format!("{error} {error:?} {store:?} {}", store.describe());
            assert!(!said.contains(secret), "{said}");
            assert!(["NOAUTH", "WRONGPASS", "uthentication"].iter().any(|word| said.contains(word)), "{said}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f060_a_busy_server_passes() {
        let redis = Redis::own(&["--busy-reply-threshold", "50"]);
        let store = store(redis.url(), redis.namespace());
        store.index(&IndexOp::Meta).await.unwrap();
        let endless = redis.clone();
        let script = tokio::spawn(async move { endless.try_command::<()>(&["EVAL", "while true do end", "0"]).await });
        eventually("it is busy", async || kind(&store).await == Some(ServerError::State)).await;
        redis.other_namespace().command::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        eventually("it is not", async || store.index(&IndexOp::Meta).await.is_ok()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_without_free_connections_passes() {
        let redis = Redis::own(&["--maxclients", "10"]);
        let store = store(redis.url(), redis.namespace());
        let mut others = Vec::new();
        while let Ok(connection) = redis.connect().await {
            others.push(connection);
        }
        let error = store.index(&IndexOp::Meta).await.unwrap_err();
        assert!(error.is_of_the_node(), "{error:?}");
        drop(others);
        eventually("there is room", async || store.index(&IndexOp::Meta).await.is_ok()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_made_a_replica_is_not_written_to() {
        let redis = Redis::own(&[]);
        let store = store(redis.url(), redis.namespace());
        let _worker = worker(&store, "w", 4).await;
        let admissions = admissions(store.clone());
        let held = admit(&admissions).await.unwrap();
        redis.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        assert!(kind(&store).await.is_none(), "reading goes on");
        let write = store.index(&IndexOp::Meta).await.unwrap_err();
        assert!(matches!(write, CallError::Rejected { kind: ServerError::ReadOnly, .. }), "{write:?}");
        redis.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        drop(held);
        eventually("it serves again", async || admit(&admissions).await.is_ok_and(|lease| !lease.degraded)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn settings_that_lose_state_are_warned_of() {
        let redis = Redis::own(&["--maxmemory-policy", "allkeys-lru"]);
        let warnings = store(redis.url(), redis.namespace()).warnings().await.unwrap();
        assert!(warnings.iter().any(|w| w.contains("allkeys-lru")), "{warnings:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_without_tls_is_an_error_of_rediss() {
        let redis = Redis::own(&[]);
        let url = redis.url().replacen("redis://", "rediss://", 1);
        let error = store(&url, redis.namespace()).index(&IndexOp::Meta).await.unwrap_err();
        assert!(matches!(error, CallError::NotSent(_)), "{error:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_unix_socket_will_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.sock");
        let redis = Redis::own(&["--unixsocket", path.to_str().unwrap()]);
        let url = RedisUrl::parse(&format!("redis+unix://{}", path.display())).unwrap();
        let store = Store::redis(url, redis.namespace().clone(), Duration::from_millis(250), 4);
        store.index(&IndexOp::Meta).await.unwrap();
        let mut link = store.link(&model());
        assert!(!adopt(&mut link).await.is_empty());
    }
}
