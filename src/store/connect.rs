//! Which node serves a key, and bounded connections to it. Standalone, Sentinel and Cluster differ only in how the
//! node is found (`resolve`): after that all is the same, plain connections that never retry or redirect a call by
//! themselves. A redirect is an error answer: the caller reports it, the node is found anew, and the call is made
//! again under a new `seq` (recovery protocol, H2).

mod cluster;
mod sentinel;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_redis::{Manager, Pool, PoolError, Runtime};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};

use super::breaker::Breaker;
use super::error::CallError;
use crate::config::redis_url::{Node, RedisUrl, Topology};
pub(super) use cluster::slot;

/// A server: its address, its pool, its breaker.
pub(super) struct Server {
    /// For messages: an address, never a password.
    pub(super) name: String,
    client: Client,
    pool: Pool,
    breaker: Mutex<Breaker>,
}

/// Finds servers, and keeps what it knows of them.
pub(super) struct Connector {
    url: RedisUrl,
    timeout: Duration,
    pool_size: usize,
    start: Instant,
    servers: Mutex<HashMap<String, Arc<Server>>>,
    map: Mutex<Option<Arc<Map>>>,
    /// Held while the map is made: many that miss it ask once.
    resolving: tokio::sync::Mutex<()>,
}

/// Slot ranges (both ends included) and who serves them.
type Map = Vec<(u16, u16, Arc<Server>)>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connector {
    pub(super) fn new(url: RedisUrl, timeout: Duration, pool_size: usize) -> Self {
        Self {
            url,
            timeout,
            pool_size: pool_size.max(1),
            start: Instant::now(),
            servers: Mutex::default(),
            map: Mutex::default(),
            resolving: tokio::sync::Mutex::default(),
        }
    }

    /// For messages: no password.
    pub(super) fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// The server of a slot, as far as it is known or can be found out.
    pub(super) async fn server(&self, slot: u16) -> Result<Arc<Server>, CallError> {
        let map = self.map().await?;
        let found = map.iter().find(|(from, to, _)| (*from..=*to).contains(&slot));
        found.map(|(_, _, server)| server.clone()).ok_or_else(|| {
            self.forget();
            CallError::NotSent(format!("slot {slot} is served by nobody"))
        })
    }

    /// Every server that is a primary.
    pub(super) async fn primaries(&self) -> Result<Vec<Arc<Server>>, CallError> {
        let mut all: Vec<Arc<Server>> = Vec::new();
        for (_, _, server) in self.map().await?.iter() {
            if !all.iter().any(|s| s.name == server.name) {
                all.push(server.clone());
            }
        }
        Ok(all)
    }

    async fn map(&self) -> Result<Arc<Map>, CallError> {
        if let Some(map) = lock(&self.map).clone() {
            return Ok(map);
        }
        let _one = self.resolving.lock().await;
        if let Some(map) = lock(&self.map).clone() {
            return Ok(map);
        }
        let map = Arc::new(self.resolve().await?);
        // Who has no part any more is forgotten, with its idle connections and its breaker.
        lock(&self.servers).retain(|name, _| map.iter().any(|(_, _, server)| server.name == *name));
        *lock(&self.map) = Some(map.clone());
        Ok(map)
    }

    /// What is known may be wrong: find out again at the next occasion.
    pub(super) fn forget(&self) {
        if matches!(self.url.topology, Topology::Sentinel { .. } | Topology::Cluster { .. }) {
            *lock(&self.map) = None;
        }
    }

    async fn resolve(&self) -> Result<Map, CallError> {
        let all = |server| vec![(0, u16::MAX, server)];
        match &self.url.topology {
            Topology::Standalone(node) => Ok(all(self.at(node)?)),
            Topology::Unix(path) => Ok(all(self.with(path.display().to_string(), ConnectionAddr::Unix(path.clone()))?)),
            Topology::Sentinel { nodes, service } => {
                let node = sentinel::primary(self, nodes, service).await?;
                tracing::info!(service, %node, "Sentinel names the primary");
                Ok(all(self.at(&node)?))
            }
            Topology::Cluster { nodes } => {
                let mut ask = nodes.clone();
                ask.extend(lock(&self.servers).keys().filter_map(|name| known_node(name)));
                let ranges = cluster::slots(self, ask).await?;
                let server = |(from, to, node): (u16, u16, Node)| Ok((from, to, self.at(&node)?));
                ranges.into_iter().map(server).collect()
            }
        }
    }

    fn at(&self, node: &Node) -> Result<Arc<Server>, CallError> {
        self.with(node.to_string(), self.addr(node))
    }

    fn with(&self, name: String, addr: ConnectionAddr) -> Result<Arc<Server>, CallError> {
        if let Some(server) = lock(&self.servers).get(&name) {
            return Ok(server.clone());
        }
        let make = || {
            let info = addr.into_connection_info()?.set_tcp_settings(tcp()).set_redis_settings(self.login());
            let client = Client::open(info.clone())?;
            // Making a connection is bounded by the pool, a command by its caller.
            let unbounded = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
            Ok((client, Manager::new_with_config(info, unbounded)?))
        };
        let (client, manager) = make().map_err(|e: redis::RedisError| CallError::of_connect(&name, &e))?;
        let pool = Pool::builder(manager)
            .max_size(self.pool_size)
            .wait_timeout(Some(self.timeout))
            .create_timeout(Some(self.timeout))
            .recycle_timeout(Some(self.timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|e| CallError::NotSent(format!("{name}: {e}")))?;
        let server = Arc::new(Server { name: name.clone(), client, pool, breaker: Mutex::default() });
        Ok(lock(&self.servers).entry(name).or_insert(server).clone())
    }

    fn addr(&self, node: &Node) -> ConnectionAddr {
        let Node { host, port } = node.clone();
        if self.url.tls {
            ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
        } else {
            ConnectionAddr::Tcp(host, port)
        }
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default().set_db(self.url.db.into()).set_skip_set_lib_name();
        if let Some(user) = &self.url.user {
            login = login.set_username(user);
        }
        if let Some(password) = &self.url.password {
            login = login.set_password(password.reveal());
        }
        login
    }

    fn bounded(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new().set_connection_timeout(Some(self.timeout)).set_response_timeout(Some(self.timeout))
    }

    /// A connection to a Sentinel or a cluster node that is asked about others; `login` says who asks.
    async fn ask(
        &self,
        node: &Node,
        login: RedisConnectionInfo,
        command: &redis::Cmd,
    ) -> Result<redis::Value, CallError> {
        let failed = |e: redis::RedisError| CallError::of_connect(&node.to_string(), &e);
        let info = self.addr(node).into_connection_info().map_err(failed)?;
        let client = Client::open(info.set_tcp_settings(tcp()).set_redis_settings(login)).map_err(failed)?;
        let mut conn = client.get_multiplexed_async_connection_with_config(&self.bounded()).await.map_err(failed)?;
        super::error::answered(conn.send_packed_command(command).await)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the server's breaker lets a call through.
    pub(super) fn allows(&self, server: &Server) -> bool {
        lock(&server.breaker).allows(self.now_ms(), rand::random_range(0..=50))
    }

    /// Takes the outcome of a call in: breaker and map.
    pub(super) fn note<T>(&self, server: &Server, outcome: &Result<T, CallError>) {
        match outcome {
            Err(e) if e.is_of_the_node() => {
                self.forget();
                if lock(&server.breaker).failed(self.now_ms(), rand::random_range(0..=50)) {
                    tracing::warn!(node = server.name, error = %e, "Redis does not answer: its breaker is open");
                }
            }
            _ => {
                let mut breaker = lock(&server.breaker);
                if breaker.is_open() {
                    tracing::info!(node = server.name, "Redis answers again");
                }
                breaker.succeeded();
            }
        }
    }

    /// Names of servers whose breaker is open.
    pub(super) fn open(&self) -> Vec<String> {
        lock(&self.servers).values().filter(|s| lock(&s.breaker).is_open()).map(|s| s.name.clone()).collect()
    }
}

impl Server {
    /// A connection of one's own.
    pub(super) async fn connect(&self, within: Duration) -> Result<MultiplexedConnection, CallError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(Some(within)).set_response_timeout(None);
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        made.map_err(|e| CallError::of_connect(&self.name, &e))
    }

    /// A pooled connection, checked to be alive.
    pub(super) async fn pooled(&self) -> Result<deadpool_redis::Connection, CallError> {
        self.pool.get().await.map_err(|e| match e {
            PoolError::Backend(e) => CallError::of_connect(&self.name, &e),
            e => CallError::NotSent(format!("{}: {e}", self.name)),
        })
    }
}

fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

fn known_node(name: &str) -> Option<Node> {
    let (host, port) = name.rsplit_once(':')?;
    Some(Node { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
}
