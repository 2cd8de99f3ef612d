//! The Lua scripts on a real Redis, with a clock that the test sets.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use redis::{Connection, Value};
use tidegate::core::fleet::shard::Held;
use tidegate::core::id::{ModelName, Namespace};
use tidegate::keys::{ModelKeys, SHARD};
use tidegate::scripts::{self, Operation, Script};

use crate::harness::Redis;

/// Every key of a model with its type and content, in one call.
const DUMP: &str = r"
local out = {}
for _, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local held = {}
  if kind == 'hash' then held = redis.call('HGETALL', key)
  elseif kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'set' then held = redis.call('SMEMBERS', key)
  elseif kind == 'stream' then
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+')) do held[#held + 1] = entry[2] end
  end
  out[#out + 1] = { kind, held }
end
return out";

/// A server and a connection to it.
pub(crate) struct Real {
    redis: Redis,
    connection: RefCell<Connection>,
    scripts: HashMap<&'static str, Script>,
    models: Cell<u32>,
}

impl Real {
    pub(crate) fn start() -> Self {
        let redis = Redis::any();
        let client = redis::Client::open(redis.url()).expect("a URL");
        let connection = RefCell::new(client.get_connection().expect("a connection"));
        let scripts = scripts::all().into_iter().map(|s| (s.name, scripts::with_test_clock(s))).collect();
        Self { redis, connection, scripts, models: Cell::new(0) }
    }

    /// A model that no other case uses.
    pub(crate) fn model(&self) -> Keys<'_> {
        self.models.set(self.models.get() + 1);
        let model = ModelName::parse(&format!("m{{{}}}", self.models.get())).expect("a name");
        let namespace: &Namespace = self.redis.namespace();
        Keys { real: self, keys: ModelKeys::new(namespace, &model), further: RefCell::default() }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut *self.connection.borrow_mut()).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }
}

/// One model's state on the server.
pub(crate) struct Keys<'a> {
    real: &'a Real,
    pub(crate) keys: ModelKeys,
    /// Keys beside the shard's that operations have named.
    further: RefCell<BTreeMap<String, String>>,
}

impl Keys<'_> {
    fn clock(&self) -> String {
        scripts::clock_key(&self.keys)
    }

    /// Runs an operation at a time. A server error is a text.
    pub(crate) fn call<O: Operation>(&self, op: &O, now_ms: u64) -> Result<O::Reply, String> {
        let invocation = op.invocation(&self.keys);
        let prefix = self.prefix();
        for key in invocation.keys.iter().skip(SHARD.len()) {
            let name = key.strip_prefix(&prefix).expect("a key of this model");
            self.further.borrow_mut().insert(name.to_owned(), key.clone());
        }
        let script = &self.real.scripts[invocation.script.name];
        let mut connection = self.real.connection.borrow_mut();
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(&script.sha).arg(invocation.keys.len()).arg(&invocation.keys).arg(&invocation.args);
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(self.clock()).arg(now_ms).ignore().add_command(evalsha);
        let value = match pipe.query::<Vec<Value>>(&mut *connection) {
            Ok(mut values) => values.pop().expect("one answer"),
            Err(e) if e.to_string().to_lowercase().contains("noscript") => redis::cmd("EVAL")
                .arg(&script.text)
                .arg(invocation.keys.len())
                .arg(&invocation.keys)
                .arg(&invocation.args)
                .query(&mut *connection)
                .map_err(|e| format!("server error: {e}"))?,
            Err(e) => return Err(format!("server error: {e}")),
        };
        O::reply(value).map_err(|e| e.to_string())
    }

    fn prefix(&self) -> String {
        self.keys.named("")
    }

    /// A key by its name behind `P:`; it is part of the dump from now on.
    pub(crate) fn key(&self, name: &str) -> String {
        let key = format!("{}{name}", self.prefix());
        if !SHARD.contains(&name) {
            self.further.borrow_mut().insert(name.to_owned(), key.clone());
        }
        key
    }

    pub(crate) fn command(&self, words: &[&str]) {
        self.real.command(words);
    }

    /// The whole state, as `Fleet::dump` has it.
    pub(crate) fn dump(&self) -> BTreeMap<String, Held> {
        let further = self.further.borrow();
        let names = SHARD.iter().map(|s| (*s).to_owned()).chain(further.keys().cloned());
        let keys = self.keys.shard().iter().cloned().chain(further.values().cloned());
        let keys: Vec<String> = keys.collect();
        let mut connection = self.real.connection.borrow_mut();
        let rows: Vec<(String, Value)> =
            redis::cmd("EVAL").arg(DUMP).arg(keys.len()).arg(&keys).query(&mut *connection).expect("a dump");
        let held = names.zip(rows).filter(|(_, (kind, _))| kind != "none");
        held.map(|(name, (kind, value))| (name.clone(), held_of(&name, &kind, value))).collect()
    }
}

impl Keys<'_> {
    fn all(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.keys.shard().to_vec();
        keys.extend(self.further.borrow().values().cloned());
        keys
    }

    /// Deletes all keys.
    pub(crate) fn flush(&self) {
        let mut command = redis::cmd("DEL");
        let _: Result<Value, _> = command.arg(self.all()).query(&mut *self.real.connection.borrow_mut());
    }

    /// Another model with the same state.
    pub(crate) fn copy(&self) -> Self {
        let other = self.real.model();
        let names = self.further.borrow().clone();
        let mut pipe = redis::pipe();
        for name in SHARD.into_iter().chain(names.keys().map(String::as_str)) {
            pipe.cmd("COPY").arg(self.key(name)).arg(other.key(name)).ignore();
        }
        pipe.query::<()>(&mut *self.real.connection.borrow_mut()).expect("a copy");
        other
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        self.flush();
        self.command(&["DEL", &self.clock()]);
    }
}

/// The type that a key should have.
pub(crate) fn kind_of(name: &str) -> &'static str {
    match name {
        "workers" | "eligible" | "skips" | "due" | "frontends" => "zset",
        "busy" => "set",
        "config:history" | "load" | "transitions" => "stream",
        _ => "hash",
    }
}

fn held_of(name: &str, kind: &str, value: Value) -> Held {
    if kind != kind_of(name) {
        return Held::Other;
    }
    let pairs = |value: Value| redis::from_redis_value::<Vec<(String, String)>>(value).expect("pairs");
    match kind {
        "hash" => Held::Hash(pairs(value).into_iter().collect()),
        "zset" => {
            let number = |text: String| text.parse::<f64>().expect("a score");
            Held::Zset(pairs(value).into_iter().map(|(m, s)| (m, number(s))).collect())
        }
        "set" => Held::Set(redis::from_redis_value::<Vec<String>>(value).expect("members").into_iter().collect()),
        _ => {
            let entries: Vec<Value> = redis::from_redis_value(value).expect("entries");
            Held::Stream(entries.into_iter().map(pairs).collect())
        }
    }
}
