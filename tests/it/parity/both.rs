//! The state twice: in the pure model, and (perhaps) on a real Redis. Whatever is done is done to both, and must come
//! to the same.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};

use tidegate::core::fleet::{Fleet, Limits};
use tidegate::scripts::Operation;

use super::real::Keys;

/// See the module.
pub(crate) struct Both<'a> {
    pub(crate) model: Fleet,
    pub(crate) real: Option<Keys<'a>>,
}

impl<'a> Both<'a> {
    pub(crate) fn new(real: Option<Keys<'a>>, limits: Limits) -> Self {
        Self { model: Fleet::new(limits), real }
    }

    /// Runs an operation; the answers must be the same. `normal` puts into order what has none.
    pub(crate) fn call<O: Operation>(
        &mut self,
        op: &O,
        now_ms: u64,
        normal: impl Fn(O::Reply) -> O::Reply,
    ) -> Result<O::Reply, String>
    where
        O::Reply: Debug + PartialEq,
    {
        let of_model = normal(op.apply(&mut self.model, now_ms));
        if let Some(real) = &self.real {
            let of_redis = real.call(op, now_ms).map(normal);
            if of_redis.as_ref() != Ok(&of_model) {
                return Err(format!("answers differ\n  model: {of_model:?}\n  redis: {of_redis:?}"));
            }
        }
        Ok(of_model)
    }

    /// The whole state must be the same.
    pub(crate) fn same_state(&self) -> Result<(), String> {
        let Some(real) = &self.real else { return Ok(()) };
        let (model, redis) = (self.model.dump(), real.dump());
        if model == redis {
            return Ok(());
        }
        let mut out = String::from("states differ");
        let names: BTreeSet<_> = model.keys().chain(redis.keys()).collect();
        for name in names {
            let (a, b) = (model.get(name), redis.get(name));
            if a != b {
                let _ = write!(out, "\n  {name}\n    model: {a:?}\n    redis: {b:?}");
            }
        }
        Err(out)
    }

    /// As of now, as a replica has it.
    pub(crate) fn copy(&self) -> Self {
        Self { model: self.model.clone(), real: self.real.as_ref().map(Keys::copy) }
    }

    /// `FLUSHALL`, as far as this model is concerned.
    pub(crate) fn flush(&mut self, limits: Limits) {
        self.model = Fleet::new(limits);
        if let Some(real) = &self.real {
            real.flush();
        }
    }
}
