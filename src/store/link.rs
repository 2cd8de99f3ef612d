//! One ordered connection, for a committer: what is called first reaches Redis first. Nothing is retried here.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::time::{Instant, timeout_at};

use super::connect::Server;
use super::error::{self, CallError, ServerError};
use super::memory::Memory;
use super::redis::{self as backend, Redis};
use crate::core::id::ModelName;
use crate::keys::ModelKeys;
use crate::scripts::{Invocation, Operation};

/// A call under way.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send>>;

/// An ordered connection for one model. Calls are sent in the order in which they are made; several may be under way.
#[derive(Debug)]
pub struct Link {
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Memory(Arc<Memory>, ModelName),
    Redis(RedisLink),
}

impl Link {
    pub(super) fn memory(memory: Arc<Memory>, model: ModelName) -> Self {
        Self { backend: Backend::Memory(memory, model) }
    }

    pub(super) fn redis(redis: Arc<Redis>, keys: ModelKeys) -> Self {
        let slot = backend::slot_of(&keys);
        Self { backend: Backend::Redis(RedisLink { redis, keys, slot, wire: Arc::default() }) }
    }

    /// Makes a call. It is on its way when this returns, before any later one; if there is no connection yet, the
    /// future makes it first, so that until it is done ([`Self::is_connected`]) no other call may be made.
    ///
    /// A call that takes longer than its budget is [`CallError::Unknown`] and closes the connection: all else in
    /// flight on it is unknown too, and its answers should be dropped.
    pub fn call<O: Operation>(&mut self, op: &O) -> Answer<O::Reply> {
        match &mut self.backend {
            Backend::Memory(memory, model) => Box::pin(std::future::ready(Ok(memory.call(model, op)))),
            Backend::Redis(link) => {
                let value = link.call(op.invocation(&link.keys));
                Box::pin(async move { O::reply(value.await?).map_err(|e| CallError::Unknown(e.to_string())) })
            }
        }
    }

    /// A call can be sent without connecting first.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        match &self.backend {
            Backend::Memory(..) => true,
            Backend::Redis(link) => link.wire().conn.is_some(),
        }
    }

    /// Closes the connection; the next call makes a new one.
    pub fn close(&mut self) {
        if let Backend::Redis(link) = &mut self.backend {
            let mut wire = link.wire();
            wire.life += 1;
            wire.conn = None;
        }
    }
}

struct RedisLink {
    redis: Arc<Redis>,
    keys: ModelKeys,
    slot: u16,
    wire: Arc<Mutex<Wire>>,
}

#[derive(Default)]
struct Wire {
    conn: Option<Conn>,
    /// Counts closes: a call of an earlier life must not close, or set up, a later one's connection.
    life: u64,
}

#[derive(Clone)]
struct Conn {
    redis: MultiplexedConnection,
    server: Arc<Server>,
    /// Scripts whose text went over this connection. The first call of each is an EVAL, so that no answer makes a
    /// call be sent again behind a later one.
    said: Vec<&'static str>,
}

impl std::fmt::Debug for RedisLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisLink").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl RedisLink {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }

    fn call(&mut self, invocation: Invocation) -> Answer<Value> {
        let deadline = Instant::now() + self.redis.timeout();
        let (wire, redis, slot) = (self.wire.clone(), self.redis.clone(), self.slot);
        let life = self.wire().life;
        let name = invocation.script.name;
        let ready = self.wire().conn.as_mut().map(|conn| (conn.clone(), conn.command(&invocation)));
        let call = async move {
            let (mut conn, command) = match ready {
                Some(ready) => ready,
                None => {
                    let mut conn = connect(&redis, slot, deadline).await?;
                    let command = conn.command(&invocation);
                    let mut wire = lock(&wire);
                    if wire.life != life {
                        return Err(CallError::NotSent("the connection was given up meanwhile".into()));
                    }
                    wire.conn = Some(conn.clone());
                    (conn, command)
                }
            };
            let answer = match timeout_at(deadline, conn.redis.send_packed_command(&command)).await {
                Ok(answer) => error::answered(answer),
                Err(_) => Err(CallError::Unknown(format!("{}: no answer in time", conn.server.name))),
            };
            redis.connector().note(&conn.server, &answer);
            if let Err(e) = &answer {
                failed(&mut lock(&wire), life, name, e);
            }
            answer
        };
        // Polled once, so that the command is queued on the connection before this returns. It must not be put off
        // because the task has used up its share of time: then a later call could overtake it.
        let mut call: Answer<Value> = Box::pin(tokio::task::unconstrained(call));
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Box::pin(std::future::ready(done)),
            Poll::Pending => call,
        }
    }
}

fn failed(wire: &mut Wire, life: u64, script: &'static str, error: &CallError) {
    if wire.life != life {
        return;
    }
    match error {
        CallError::Rejected { kind: ServerError::NoScript, .. } => {
            if let Some(conn) = &mut wire.conn {
                conn.said.retain(|name| *name != script);
            }
        }
        // The node may not be the right one any more. What else is in flight is answered over the old connection.
        CallError::Rejected { kind, .. } if kind.is_of_the_node() => wire.conn = None,
        CallError::Rejected { .. } => {}
        CallError::Unknown(_) | CallError::NotSent(_) => wire.conn = None,
    }
}

async fn connect(redis: &Redis, slot: u16, deadline: Instant) -> Result<Conn, CallError> {
    let late = || CallError::NotSent(format!("{}: no connection in time", redis.connector().url()));
    let Ok(server) = timeout_at(deadline, redis.connector().server(slot)).await else {
        redis.connector().forget();
        return Err(late());
    };
    let server = server?;
    let left = deadline.saturating_duration_since(Instant::now());
    let made = timeout_at(deadline, server.connect(left)).await.unwrap_or_else(|_| Err(late()));
    if made.is_err() {
        redis.connector().note(&server, &made);
    }
    Ok(Conn { redis: made?, server, said: Vec::new() })
}

impl Conn {
    fn command(&mut self, invocation: &Invocation) -> Cmd {
        let name = invocation.script.name;
        let known = self.said.contains(&name);
        if !known {
            self.said.push(name);
        }
        backend::command(invocation, !known)
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}
