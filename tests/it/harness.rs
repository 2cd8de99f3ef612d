//! What the tests stand on: a real Redis, the real `tidegate` binary as processes, scripted engines, a byte-level
//! HTTP client, and a proxy that does harm. All of it lives as long as the value that a test holds.
//!
//! ```ignore
//! #[tokio::test(flavor = "multi_thread")]
//! async fn a_held_slot_is_given_back() {
//!     let fleet = Fleet::new();                                         // Redis, a namespace, the model `m`
//!     let engine = Stub::start().await;
//!     let worker = fleet.worker("w1", &engine, &["--engine-request-limit", "1"]).await;
//!     let frontend = fleet.frontend(&[]).await;
//!     engine.script(Script::hold());
//!     let held = tokio::spawn(chat(frontend.address(), "m"));
//!     eventually("admitted", async || fleet.inflight("w1").await == 1).await;
//!     engine.open();
//!     assert_eq!(held.await.unwrap().status, 200);
//!     fleet.quiet().await;
//! }
//! ```
//!
//! **Redis.** [`Redis::any`] is a private server, or that of `TIDEGATE_TEST_REDIS_URL` with a namespace of the test's
//! own. [`Redis::own`] is always a private one: for tests that stop, flush, freeze or configure it. Such tests stand in
//! modules called `owned`, so that a run against a given server says which tests it leaves out:
//! `TIDEGATE_TEST_REDIS_URL=… cargo test --test it -- --skip owned::`. Without a `redis-server` on PATH they fail; none
//! skips itself.
//!
//! **Ports.** Every process is started on port 0 and says in its log where it listens. So `frontend`, `worker` and
//! `mock-engine` must print, once the listener is bound, a log line that contains `listening on http://ADDRESS`
//! (and `admin listening on http://ADDRESS` for `--admin-listen`), on standard output or standard error.
//!
//! **Longer runs.** `TIDEGATE_TEST_THOROUGH=1` makes tests that repeat something do it more often ([`rounds`]).
//!
//! **Logs** of the processes lie in `target/tmp/<test>/` while a test runs; they are removed when it passes. When it
//! fails, their last lines are printed and the folder stays.

#![allow(dead_code, unused_imports, reason = "a toolbox: not every test binary needs every tool")]

mod checks;
mod crowd;
mod fault_proxy;
mod fleet;
mod http;
mod logs;
mod process;
mod redis;
mod stub;
mod wait;

pub(crate) use crowd::{Crowd, with_status};
pub(crate) use fault_proxy::{Fault, FaultProxy};
pub(crate) use fleet::{Fleet, keys, metric, publish, thresholds};
pub(crate) use http::{Answer, Connection, chat, chat_body, delete, get, post, request};
pub(crate) use process::{Process, Signal, kill};
pub(crate) use redis::Redis;
pub(crate) use stub::{Act, Script, Seen, Stub};
pub(crate) use wait::{eventually, eventually_within, holds_for};

/// How often to repeat: `usual`, or `thorough` with `TIDEGATE_TEST_THOROUGH=1`.
pub(crate) fn rounds(usual: usize, thorough: usize) -> usize {
    if std::env::var_os("TIDEGATE_TEST_THOROUGH").is_some_and(|value| value == "1") { thorough } else { usual }
}
