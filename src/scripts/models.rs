//! The index of models and the fleet's own record: one key a call, outside any model's slot.

use redis::Value;

use super::reply::Reply;
use super::{BadReply, Invocation};
use crate::core::id::{ModelName, Namespace};
use crate::keys;

/// What is asked of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexOp {
    /// A worker of this model is alive.
    Touch(ModelName),
    /// Forgets models not seen for `retention_ms`, and lists the others.
    List {
        /// `--model-retention-s`, in milliseconds.
        retention_ms: u64,
    },
    /// The fleet's record; made if it is missing.
    Meta,
}

/// What the index answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexReply {
    /// Redis time in milliseconds.
    pub now_ms: u64,
    /// `List`: models with the time they were last seen.
    pub models: Vec<(ModelName, u64)>,
    /// `Meta`: when the record was made, in milliseconds.
    pub created_ms: u64,
    /// `Meta`: the schema; a process refuses a larger one than its own.
    pub schema: u64,
}

impl IndexOp {
    /// The script call.
    #[must_use]
    pub fn invocation(&self, namespace: &Namespace) -> Invocation {
        let (key, args) = match self {
            Self::Touch(model) => (keys::models(namespace), vec!["touch".to_owned(), model.to_string()]),
            Self::List { retention_ms } => (keys::models(namespace), vec!["list".to_owned(), retention_ms.to_string()]),
            Self::Meta => (keys::meta(namespace), vec!["meta".to_owned()]),
        };
        Invocation { script: super::index(), keys: vec![key], args }
    }

    /// Reads the script's reply.
    ///
    /// # Errors
    /// If it is not of the promised form.
    pub fn reply(&self, value: Value) -> Result<IndexReply, BadReply> {
        let mut r = Reply::new("index", value)?;
        let mut reply = IndexReply { now_ms: r.number()?, ..IndexReply::default() };
        match self {
            Self::Touch(_) => {}
            Self::List { .. } => {
                let pairs = r.list()?.rest(|m| Ok((m.text()?, m.number()?)))?;
                // Names that are none of ours were put there by hand: not shown.
                reply.models =
                    pairs.into_iter().filter_map(|(m, seen)| Some((ModelName::parse(&m).ok()?, seen))).collect();
            }
            Self::Meta => {
                reply.created_ms = r.number()?;
                reply.schema = r.number()?;
            }
        }
        Ok(reply)
    }
}
