//! The operator's view (design section 9): `status`, `thresholds`, `doctor`. They read live state, and change it only
//! through the same scripts as everybody else.

pub mod doctor;
pub mod status;
mod table;
pub mod thresholds;

use std::io;

use crate::core::id::ModelName;
use crate::core::stored::Fields;
use crate::scripts::IndexOp;
use crate::store::{CallError, Store};

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Redis did not do what was asked.
    #[error("{redis}: {source}")]
    Redis {
        /// Where it is, without a password.
        redis: String,
        /// What happened.
        source: CallError,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// No model is known, or not this one.
    #[error("{0}")]
    Model(String),
    /// A value was refused; nothing was changed.
    #[error("{field}: {value:?} is refused; nothing was changed")]
    Refused {
        /// Which field.
        field: String,
        /// Its value.
        value: String,
    },
    /// There is no such change to take back.
    #[error("{0}")]
    Undo(String),
}

impl Error {
    fn redis(store: &Store) -> impl FnOnce(CallError) -> Self {
        let redis = store.describe();
        move |source| Self::Redis { redis, source }
    }

    /// The reader of our output has gone: not an error.
    #[must_use]
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(why) if why.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The models of this namespace, by name. Nothing is forgotten by asking.
async fn models(store: &Store) -> Result<Vec<ModelName>, Error> {
    // The longest retention: an operator's look must not remove what frontends still keep.
    const NEVER: u64 = (1 << 53) - 1;
    let reply = store.index(&IndexOp::List { retention_ms: NEVER }).await.map_err(Error::redis(store))?;
    let mut models: Vec<ModelName> = reply.models.into_iter().map(|(model, _)| model).collect();
    models.sort();
    Ok(models)
}

/// This model, or all.
async fn chosen(store: &Store, model: Option<&ModelName>) -> Result<Vec<ModelName>, Error> {
    match model {
        Some(model) => Ok(vec![model.clone()]),
        None => models(store).await,
    }
}

/// This model, or the only one there is.
async fn the_one(store: &Store, model: Option<&ModelName>) -> Result<ModelName, Error> {
    if let Some(model) = model {
        return Ok(model.clone());
    }
    let models = models(store).await?;
    let names = models.iter().map(ModelName::as_str).collect::<Vec<_>>().join(", ");
    match models.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Error::Model(format!("no model is known in namespace {}", store.namespace()))),
        _ => Err(Error::Model(format!("there are several models; name one with --model: {names}"))),
    }
}

/// All fields of one of the model's hashes. One that is of another type has none: whose fault that is, the scripts say
/// (`error:config`), or they have mended it by the next look.
async fn fields(store: &Store, model: &ModelName, name: &str) -> Result<Fields, CallError> {
    match store.hash(model, name).await {
        Err(CallError::Rejected { message, .. }) if message.starts_with("WRONGTYPE") => Ok(Fields::new()),
        fields => Ok(fields?.into_iter().collect()),
    }
}

/// A time span for people: `0.3 s`, `12 s`, `5 min`, `3.0 h`.
#[must_use]
fn span(ms: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one decimal of a span of time")]
    let seconds = ms as f64 / 1_000.0;
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.1} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_are_short() {
        for (ms, text) in [
            (0, "0.0 s"),
            (340, "0.3 s"),
            (12_400, "12 s"),
            (300_000, "5 min"),
            (10_800_000, "3.0 h"),
            (172_800_000, "2.0 d"),
        ] {
            assert_eq!(span(ms), text);
        }
    }
}
