//! The Lua scripts and their typed calls. Only this module knows script text.
//!
//! A script is a file of `lua/`; `--- @include "name"` lines pull in `lua/include/name.lua`, each once, before the
//! script's own text. Scripts are sent by EVALSHA, and by EVAL where the server does not know them.

mod include;
mod models;
mod operator;
mod reply;
mod request;
mod sidecar;

use std::sync::OnceLock;

use redis::Value;

pub use models::{IndexOp, IndexReply};

use crate::core::fleet::Fleet;
use crate::keys::ModelKeys;

/// A script, ready to be sent.
#[derive(Debug)]
pub struct Script {
    /// Its file's name without `.lua`.
    pub name: &'static str,
    /// The whole text, includes resolved.
    pub text: String,
    /// SHA-1 of the text, in hex.
    pub sha: String,
}

/// One call of a script.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Which script.
    pub script: &'static Script,
    /// KEYS.
    pub keys: Vec<String>,
    /// ARGV.
    pub args: Vec<String>,
}

/// A reply that is not of the form that its script promises: another version wrote it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("unexpected reply of {script}: {what}")]
pub struct BadReply {
    /// Which script.
    pub script: &'static str,
    /// What was wrong.
    pub what: String,
}

/// An operation of `core::op`: as a script on Redis, and as a function of the pure model.
pub trait Operation: Send + Sync {
    /// What it answers.
    type Reply: Send + 'static;

    /// The script call.
    fn invocation(&self, keys: &ModelKeys) -> Invocation;

    /// Reads the script's reply.
    ///
    /// # Errors
    /// If it is not of the promised form.
    fn reply(value: Value) -> Result<Self::Reply, BadReply>;

    /// The same operation on the pure model.
    fn apply(&self, fleet: &mut Fleet, now_ms: u64) -> Self::Reply;
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        $(
            /// The script of this name.
            pub fn $name() -> &'static Script {
                static SCRIPT: OnceLock<Script> = OnceLock::new();
                SCRIPT.get_or_init(|| include::script(
                    stringify!($name),
                    include_str!(concat!("../lua/", stringify!($name), ".lua")),
                ))
            }
        )*

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
            vec![$($name()),*]
        }
    };
}

scripts!(
    configure, decide, drain, heartbeat, hello, index, leave, reconcile, register, repair, report, snapshot, sweep
);

pub use include::{clock_key, with_test_clock};
