//! Redis slow, silent, busy, full, emptied or gone, as the clients of whole frontends meet it.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{
    Answer, Fault, FaultProxy, Fleet, Process, Redis, Script, Signal, Stub, chat, eventually, eventually_within, get,
    holds_for, post,
};

const GATE: [&str; 4] = ["--engine-request-limit", "2", "--request-queue-limit", "0"];

fn is_degraded(answer: &Answer) -> bool {
    answer.header("x-tidegate-degraded") == Some("1")
}

/// The frontend knows the fleet well enough to go on without Redis.
async fn has_copy(frontend: &Process) {
    eventually("the frontend has a copy", async || {
        get(frontend.address(), "/v1/models").await.text().contains("\"m\"")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f080_no_answer_of_one_model_reaches_another() {
    let redis = Redis::any();
    let proxy = FaultProxy::before(&redis).await;
    let mut fleet = Fleet::on(redis);
    let mut engines = Vec::new();
    let mut workers = Vec::new();
    for name in ["A", "B"] {
        let engine = Stub::start().await;
        engine.script(Script::json(200, &json!({"from": name})));
        fleet.model = name.into();
        let limits = ["--engine-request-limit", "1", "--request-queue-limit", "0"];
        workers.push(fleet.worker("w", &engine, &limits).await);
        engines.push(engine);
    }
    let frontend = fleet.frontend_on(&proxy.url(&fleet.redis), &["--redis-timeout-ms", "100"]).await;
    let mut served = [0, 0];
    for round in 0..400 {
        match round % 40 {
            0 => proxy.set(Fault::None),
            20 => proxy.set(Fault::Delay(Duration::from_millis(0), Duration::from_millis(150))),
            _ => {}
        }
        let model = ["A", "B"][round % 2];
        let ask = chat(frontend.address(), model);
        let leave = Duration::from_millis(if round % 4 < 2 { rand::random_range(0..200) } else { 20_000 });
        let Ok(answer) = tokio::time::timeout(leave, ask).await else { continue };
        assert!([200, 503, 529].contains(&answer.status), "{round}: {}", answer.text());
        if answer.status == 200 {
            assert_eq!(answer.json()["from"], model, "{round}");
            served[round % 2] += 1;
        }
    }
    assert!(served.iter().all(|n| *n > 10), "{served:?}");
    proxy.set(Fault::None);
    for name in ["A", "B"] {
        fleet.model = name.into();
        fleet.quiet().await;
    }
    assert!(engines.iter().all(|e| e.peak() <= 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn f066_a_start_without_redis_is_a_start() {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fleet = Fleet::new();
    let url = format!("redis://:s3cret@{}/0", deaf.local_addr().unwrap());
    let frontend = fleet.start_frontend(&url, &[], &[]).listening().await;
    assert_eq!(get(frontend.address(), "/live").await.status, 200);
    assert_eq!(get(frontend.address(), "/ready").await.status, 503);
    let answer = chat(frontend.address(), "m").await;
    assert_eq!((answer.status, answer.reason().as_str()), (503, "store_unavailable"));
    let address = deaf.local_addr().unwrap().to_string();
    eventually("the log names the address", async || frontend.log().contains(&address)).await;
    assert!(!frontend.log().contains("s3cret"));
}

mod owned {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn f082_a_frozen_redis_costs_nobody_a_timeout() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let frontend = fleet.frontend(&["--static-max-age-ms", "3000"]).await;
        has_copy(&frontend).await;
        assert_eq!(chat(frontend.address(), "m").await.status, 200);
        fleet.redis.signal(Signal::STOP);
        eventually("static mode", async || is_degraded(&chat(frontend.address(), "m").await)).await;
        let mut slow = 0;
        let mut statuses = std::collections::BTreeMap::new();
        eventually("static mode ends", async || {
            let begun = Instant::now();
            let answer = chat(frontend.address(), "m").await;
            slow += usize::from(begun.elapsed() > Duration::from_millis(100));
            *statuses.entry(answer.status).or_insert(0) += 1;
            answer.status == 503
        })
        .await;
        assert!(statuses[&200] > 10 && slow <= 2, "{slow} of {statuses:?} were slow");
        assert_eq!(get(frontend.address(), "/ready").await.status, 503);
        assert_eq!(get(frontend.address(), "/live").await.status, 200);
        fleet.redis.signal(Signal::CONT);
        eventually("served by Redis again", async || {
            let answer = chat(frontend.address(), "m").await;
            answer.status == 200 && answer.revision().is_some() && !is_degraded(&answer)
        })
        .await;
        fleet.quiet().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f084_without_redis_protection_stays() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let closed = fleet.frontend(&["--on-store-loss", "closed"]).await;
        let open = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
        for frontend in open.iter().chain([&closed]) {
            has_copy(frontend).await;
        }
        engine.script(Script::hold());
        fleet.redis.server(|s| s.stop());
        let refused = futures_util::future::join_all((0..50).map(|_| chat(closed.address(), "m"))).await;
        assert!(refused.iter().all(|a| a.status == 503 && a.reason() == "store_unavailable"));
        assert!(!refused.iter().any(is_degraded), "nobody has decided, static mode neither");
        assert_eq!(engine.count(), 0, "closed lets nobody through");

        let addresses = open.each_ref().map(Process::address);
        let asks: Vec<_> = (0..100).map(|n| tokio::spawn(chat(addresses[n % 2], "m"))).collect();
        eventually("both slots are taken", async || engine.holding() == 2).await;
        eventually("the others are refused", async || asks.iter().filter(|ask| ask.is_finished()).count() == 98).await;
        engine.open();
        let answers = futures_util::future::join_all(asks).await;
        let served: Vec<_> = answers.iter().flatten().filter(|a| a.status == 200).collect();
        assert_eq!((served.len(), engine.peak()), (2, 2));
        assert!(served.iter().all(|a| is_degraded(a) && a.revision().is_none()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f131_probes_while_redis_is_gone() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let mut frontend = fleet.frontend(&["--static-max-age-ms", "4000"]).await;
        has_copy(&frontend).await;
        fleet.redis.server(|s| s.stop());
        eventually("static mode", async || is_degraded(&chat(frontend.address(), "m").await)).await;
        assert_eq!(get(frontend.address(), "/ready").await.status, 200, "it can still serve");
        eventually("not ready when static mode is over", async || {
            assert_eq!(get(frontend.address(), "/live").await.status, 200);
            get(frontend.address(), "/ready").await.status == 503
        })
        .await;
        fleet.redis.server(|s| s.resume()).unwrap();
        // The test's own connection is of the old server.
        let _ = fleet.redis.try_command::<()>(&["PING"]).await;
        eventually("ready again", async || get(frontend.address(), "/ready").await.status == 200).await;
        eventually("served again", async || chat(frontend.address(), "m").await.status == 200).await;

        fleet.redis.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
        holds_for(Duration::from_secs(1), "alive on a read-only Redis", async || {
            let answer = chat(frontend.address(), "m").await;
            get(frontend.address(), "/live").await.status == 200 && [200, 503].contains(&answer.status)
        })
        .await;
        fleet.redis.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
        eventually("decided by Redis again", async || chat(frontend.address(), "m").await.revision().is_some()).await;
        assert!(frontend.runs());
        fleet.quiet().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn absence_of_redis_is_nobodys_death() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
        for frontend in &frontends {
            has_copy(frontend).await;
        }
        engine.script(Script::hold());
        let stream = tokio::spawn(chat(frontends[0].address(), "m"));
        eventually("one is running", async || engine.holding() == 1).await;
        let last: String = fleet
            .redis
            .command::<Vec<(String, Vec<String>)>>(&[
                "XREVRANGE",
                &fleet.keys().named("transitions"),
                "+",
                "-",
                "COUNT",
                "1",
            ])
            .await
            .remove(0)
            .0;
        // Longer than a worker lives without a sign of life.
        fleet.redis.signal(Signal::STOP);
        tokio::time::sleep(Duration::from_secs(8)).await;
        fleet.redis.signal(Signal::CONT);
        eventually_within(Duration::from_secs(4), "served", async || {
            let answer = frontends[1].address();
            tokio::time::timeout(Duration::from_millis(300), chat(answer, "m")).await.is_err() || engine.holding() == 2
        })
        .await;
        engine.open();
        assert_eq!(stream.await.unwrap().status, 200);
        fleet.quiet().await;
        let since: Vec<(String, Vec<String>)> =
            fleet.redis.command(&["XRANGE", &fleet.keys().named("transitions"), &format!("({last}"), "+"]).await;
        let deaths = since.iter().filter(|(_, fields)| ["left", "reaped", "epoch"].contains(&fields[1].as_str()));
        assert_eq!(deaths.count(), 0, "{since:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f058_a_flushed_script_cache_and_an_empty_restart() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let frontend = fleet.frontend(&[]).await;
        eventually("served", async || chat(frontend.address(), "m").await.status == 200).await;
        let flushed = async || {
            for _ in 0..20 {
                fleet.redis.command::<()>(&["SCRIPT", "FLUSH"]).await;
                let answer = chat(frontend.address(), "m").await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        };
        flushed().await;
        fleet.redis.server(|s| s.stop());
        fleet.redis.server(|s| s.resume()).unwrap();
        // The test's own connection is of the old server.
        let _ = fleet.redis.try_command::<()>(&["PING"]).await;
        eventually_within(Duration::from_secs(18), "decided by the empty Redis", async || {
            let answer = chat(frontend.address(), "m").await;
            assert!([200, 503].contains(&answer.status), "{}", answer.text());
            answer.status == 200 && answer.revision().is_some()
        })
        .await;
        flushed().await;
        fleet.quiet().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f060_a_long_script_of_somebody_else() {
        let fleet = Fleet::on(Redis::own(&["--busy-reply-threshold", "100"]));
        let engine = Stub::start().await;
        let mut worker = fleet.worker("w1", &engine, &GATE).await;
        let mut frontend = fleet.frontend(&["--on-store-loss", "closed"]).await;
        eventually("served", async || chat(frontend.address(), "m").await.status == 200).await;
        let other = fleet.redis.other_namespace();
        let script = tokio::spawn(async move { other.try_command::<()>(&["EVAL", "while true do end", "0"]).await });
        eventually("answered with 503", async || chat(frontend.address(), "m").await.status == 503).await;
        for _ in 0..20 {
            assert_eq!(chat(frontend.address(), "m").await.status, 503);
        }
        fleet.redis.other_namespace().command::<()>(&["SCRIPT", "KILL"]).await;
        assert!(script.await.unwrap().is_err());
        eventually("served again", async || chat(frontend.address(), "m").await.status == 200).await;
        crate::harness::publish(&worker, &json!({"active_decode_blocks": 1, "kv_total_blocks": 2})).await;
        assert!(frontend.runs() && worker.runs());
        fleet.quiet().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f070_f071_evictions_are_mended() {
        for policy in ["allkeys-lru", "volatile-lru"] {
            let redis = Redis::own(&["--maxmemory-policy", policy]);
            let fleet = Fleet::on(redis);
            let engine = Stub::start().await;
            let _worker = fleet.worker("w1", &engine, &GATE).await;
            let frontend = fleet.frontend(&[]).await;
            eventually("warned of the policy", async || frontend.log().contains(policy)).await;
            has_copy(&frontend).await;
            engine.script(Script::hold());
            let streams = [(); 2].map(|()| tokio::spawn(chat(frontend.address(), "m")));
            eventually("two are running", async || engine.holding() == 2).await;
            fleet.redis.command::<()>(&["CONFIG", "SET", "maxmemory", "20mb"]).await;
            let filler = "x".repeat(100_000);
            for n in 0..400 {
                let _ = fleet.redis.try_command::<()>(&["SET", &format!("filler{n}"), &filler]).await;
                if n % 20 == 0 {
                    let answer = chat(frontend.address(), "m").await;
                    assert!([503, 529].contains(&answer.status), "{policy}: {} {}", answer.status, answer.text());
                }
            }
            fleet.redis.command::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
            engine.open();
            for stream in streams {
                assert_eq!(stream.await.unwrap().status, 200, "{policy}");
            }
            eventually("listed and served again", async || {
                has_copy(&frontend).await;
                let answer = chat(frontend.address(), "m").await;
                answer.status == 200 && answer.revision().is_some()
            })
            .await;
            fleet.quiet().await;
            assert!(engine.peak() <= 2);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f072_a_flush_brings_the_thresholds_back_to_the_flags() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let _worker = fleet.worker("w1", &engine, &GATE).await;
        let flags = ["--active-decode-blocks-threshold", "0.7"];
        let frontends = [fleet.frontend(&flags).await, fleet.frontend(&flags).await];
        eventually("the flags are in force", async || {
            fleet.applied("active_decode_blocks_threshold").await == Some("0.7".into())
        })
        .await;
        let set = json!({"model": "m", "active_decode_blocks_threshold": 0.5});
        assert_eq!(post(frontends[0].address(), "/busy_threshold", &set).await.status, 200);
        for flush in ["FLUSHALL", "FLUSHDB"] {
            fleet.redis.command::<()>(&[flush]).await;
            for frontend in &frontends {
                eventually(&format!("{flush}: the flag's value everywhere"), async || {
                    let shown = get(frontend.address(), "/busy_threshold").await.text();
                    shown.contains("0.7") && !shown.contains("0.5")
                })
                .await;
                eventually(&format!("{flush}: served"), async || {
                    chat(frontend.address(), "m").await.revision().is_some()
                })
                .await;
            }
        }
        fleet.quiet().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn f074_f078_nobody_depends_on_reading_a_journal() {
        let fleet = Fleet::on(Redis::own(&[]));
        let engine = Stub::start().await;
        let worker = fleet.worker("w1", &engine, &GATE).await;
        let frontends = [fleet.frontend(&[]).await, fleet.frontend(&[]).await];
        let keys = fleet.keys();
        for journal in ["load", "transitions", "config:history"] {
            fleet
                .redis
                .command::<()>(&["XADD", &keys.named(journal), "18446744073709551615-18446744073709551615", "x", "y"])
                .await;
        }
        fleet.redis.command::<()>(&["DEL", &keys.named("transitions")]).await;
        fleet.set_config("active_decode_blocks_threshold", "0.5").await;
        for (blocks, status) in [(9, 529), (1, 200)] {
            crate::harness::publish(&worker, &json!({"active_decode_blocks": blocks, "kv_total_blocks": 10})).await;
            for frontend in &frontends {
                eventually("both follow", async || chat(frontend.address(), "m").await.status == status).await;
            }
        }
        frontends[1].signal(Signal::STOP);
        fleet.set_config("active_decode_blocks_threshold", "0.05").await;
        eventually("one follows", async || chat(frontends[0].address(), "m").await.status == 529).await;
        frontends[1].signal(Signal::CONT);
        eventually("the other does", async || chat(frontends[1].address(), "m").await.status == 529).await;
    }
}
