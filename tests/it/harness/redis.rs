//! A real Redis for a test.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use tidegate::core::id::Namespace;
use tidegate::redis_server::RedisServer;
use tokio::sync::Mutex;

/// Set to run on a given server instead of private ones.
const SHARED: &str = "TIDEGATE_TEST_REDIS_URL";

/// A Redis server and a namespace of the test's own.
#[derive(Debug, Clone)]
pub(crate) struct Redis {
    url: String,
    namespace: Namespace,
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    server: Option<Arc<std::sync::Mutex<RedisServer>>>,
}

impl Redis {
    /// A private server, or the one of `TIDEGATE_TEST_REDIS_URL`. The test must keep to its namespace.
    pub(crate) fn any() -> Self {
        match std::env::var(SHARED) {
            Ok(url) if !url.is_empty() => Self::new(url, None),
            _ => Self::own(&[]),
        }
    }

    /// A private server, whatever is set; for tests in modules called `owned`. `options` go to its command line.
    pub(crate) fn own(options: &[&str]) -> Self {
        let server = RedisServer::start(options).expect("a private Redis server");
        Self::new(server.url(), Some(Arc::new(std::sync::Mutex::new(server))))
    }

    fn new(url: String, server: Option<Arc<std::sync::Mutex<RedisServer>>>) -> Self {
        let namespace = Namespace::parse(&format!("t{:016x}", rand::random::<u64>())).expect("a namespace");
        Self { url, namespace, connection: Arc::default(), server }
    }

    /// The same server with another namespace.
    pub(crate) fn other_namespace(&self) -> Self {
        Self::new(self.url.clone(), self.server.clone())
    }

    /// For `--redis-url`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// For `--namespace`.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs something on the private server: `stop`, `resume`, `pid`, `port`.
    pub(crate) fn server<T>(&self, run: impl FnOnce(&mut RedisServer) -> T) -> T {
        let server = self.server.as_ref().expect("a test that owns its server uses Redis::own");
        run(&mut server.lock().expect("no panic while locked"))
    }

    /// Sends a signal to the private server.
    pub(crate) fn signal(&self, signal: super::Signal) {
        let pid = self.server(|server| server.pid()).expect("the server runs");
        super::process::kill(pid, signal);
    }

    /// A connection of the test's own, made anew.
    pub(crate) async fn connect(&self) -> redis::RedisResult<MultiplexedConnection> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(std::time::Duration::from_secs(5)))
            .set_response_timeout(Some(std::time::Duration::from_secs(10)));
        redis::Client::open(self.url.as_str())?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Runs a command as `redis-cli` would; an error is returned.
    pub(crate) async fn try_command<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let result = command.query_async(&mut connection).await;
        // After a failure of the connection the next command makes a new one.
        if !matches!(&result, Err(error) if error.is_unrecoverable_error() || error.is_timeout()) {
            *place = Some(connection);
        }
        result
    }

    /// Runs a command that must work: `command(&["HGET", &key, "field"])`.
    pub(crate) async fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        match self.try_command(words).await {
            Ok(value) => value,
            Err(error) => panic!("{words:?}: {error}"),
        }
    }
}
