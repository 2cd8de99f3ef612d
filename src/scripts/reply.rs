//! Reads script replies: arrays of integers and strings, a code first.

use redis::Value;

use super::BadReply;
use crate::core::id::{FrontendId, Incarnation, LeaseId, WorkerId};

/// A reply, read from front to back.
pub(super) struct Reply {
    script: &'static str,
    values: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(super) fn new(script: &'static str, value: Value) -> Result<Self, BadReply> {
        match value {
            Value::Array(values) => Ok(Self { script, values: values.into_iter() }),
            other => Err(BadReply { script, what: format!("not an array: {other:?}") }),
        }
    }

    pub(super) fn bad(&self, what: impl Into<String>) -> BadReply {
        BadReply { script: self.script, what: what.into() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.len() == 0
    }

    fn next(&mut self) -> Result<Value, BadReply> {
        self.values.next().ok_or(BadReply { script: self.script, what: "too short".into() })
    }

    pub(super) fn text(&mut self) -> Result<String, BadReply> {
        match self.next()? {
            Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|e| self.bad(format!("not UTF-8: {e}"))),
            Value::SimpleString(text) => Ok(text),
            Value::Int(n) => Ok(n.to_string()),
            Value::Double(x) => Ok(x.to_string()),
            other => Err(self.bad(format!("not a string: {other:?}"))),
        }
    }

    /// A whole number; one that does not fit is an error, a negative one is 0.
    pub(super) fn number(&mut self) -> Result<u64, BadReply> {
        match self.next()? {
            Value::Int(n) => Ok(u64::try_from(n).unwrap_or(0)),
            Value::BulkString(bytes) => std::str::from_utf8(&bytes)
                .ok()
                .and_then(whole)
                .ok_or_else(|| self.bad(format!("not a number: {bytes:?}"))),
            Value::Double(x) if x >= 0.0 => Ok(x as u64),
            other => Err(self.bad(format!("not a number: {other:?}"))),
        }
    }

    pub(super) fn flag(&mut self) -> Result<bool, BadReply> {
        Ok(self.number()? == 1)
    }

    pub(super) fn worker(&mut self) -> Result<WorkerId, BadReply> {
        let text = self.text()?;
        WorkerId::parse(&text).map_err(|e| self.bad(format!("worker {text:?} {e}")))
    }

    pub(super) fn frontend(&mut self) -> Result<FrontendId, BadReply> {
        let text = self.text()?;
        FrontendId::parse(&text).map_err(|e| self.bad(format!("frontend {text:?} {e}")))
    }

    /// A name as it stands in a set that anybody can write to: none if it is none of ours.
    pub(super) fn stray<N>(&mut self, parse: impl FnOnce(&str) -> Option<N>) -> Result<Option<N>, BadReply> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(parse)),
            other => Err(self.bad(format!("not a string: {other:?}"))),
        }
    }

    /// A worker by its name, if it is one.
    pub(super) fn stray_worker(&mut self) -> Result<Option<WorkerId>, BadReply> {
        self.stray(|text| WorkerId::parse(text).ok())
    }

    /// A frontend by its name, if it is one.
    pub(super) fn stray_frontend(&mut self) -> Result<Option<FrontendId>, BadReply> {
        self.stray(|text| FrontendId::parse(text).ok())
    }

    pub(super) fn lease(&mut self) -> Result<LeaseId, BadReply> {
        let text = self.text()?;
        LeaseId::parse(&text).map_err(|e| self.bad(format!("lease {text:?} {e}")))
    }

    pub(super) fn incarnation(&mut self) -> Result<Incarnation, BadReply> {
        let text = self.text()?;
        Incarnation::parse(&text).ok_or_else(|| self.bad(format!("incarnation {text:?}")))
    }

    /// A nested array.
    pub(super) fn list(&mut self) -> Result<Reply, BadReply> {
        match self.next()? {
            Value::Array(values) => Ok(Reply { script: self.script, values: values.into_iter() }),
            // RESP3 answers WITHSCORES and HGETALL as pairs or maps; scripts answer flat arrays in RESP2 form.
            Value::Map(pairs) => {
                let flat: Vec<Value> = pairs.into_iter().flat_map(|(k, v)| [k, v]).collect();
                Ok(Reply { script: self.script, values: flat.into_iter() })
            }
            other => Err(self.bad(format!("not an array: {other:?}"))),
        }
    }

    /// Reads the rest with `item`.
    pub(super) fn rest<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, BadReply>,
    ) -> Result<Vec<T>, BadReply> {
        let mut all = Vec::with_capacity(self.values.len());
        while !self.is_empty() {
            all.push(item(self)?);
        }
        Ok(all)
    }

    /// A string that may hold anything, such as what an operator wrote by mistake, cut at some byte.
    fn any_text(&mut self) -> Result<String, BadReply> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            other => {
                let one = vec![other].into_iter();
                Reply { script: self.script, values: one }.text()
            }
        }
    }

    /// Reads the rest as (name, text).
    pub(super) fn pairs(&mut self) -> Result<Vec<(String, String)>, BadReply> {
        self.rest(|r| Ok((r.any_text()?, r.any_text()?)))
    }
}

/// Scores come back as text, large ones perhaps with an exponent.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0).map(|x| x as u64))
}
