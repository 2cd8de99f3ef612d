//! `tidegate thresholds`: reads and changes a model's fields of `P:config`. A change is in force, and every worker
//! recomputed, before the command ends (design section 9).

mod history;

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::{Error, status, table};
use crate::core::id::ModelName;
use crate::core::op::{Configure, Configured, MAX_SWEEP, Source, Sweep};
use crate::core::stored::{Fields, field};
use crate::core::thresholds::{Config, Field};
use crate::store::Store;

/// What to do, and to which model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The model; none: the only one there is.
    pub model: Option<ModelName>,
    /// Print JSON.
    pub json: bool,
    /// What to do.
    pub action: Action,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Show the values in force.
    Get,
    /// Set fields (none: unset).
    Change(Vec<(Field, Option<String>)>),
    /// Show the latest changes.
    History {
        /// At most so many.
        limit: usize,
    },
    /// Take a change back.
    Undo {
        /// The version it made; none: the last one.
        version: Option<u64>,
    },
}

/// Does it, and prints what is then in force.
///
/// # Errors
/// No such model, a refused value, Redis not there.
pub async fn run(settings: Settings, store: &Store, out: &mut (dyn Write + Send)) -> Result<(), Error> {
    let model = super::the_one(store, settings.model.as_ref()).await?;
    let changes = match settings.action {
        Action::History { limit } => return history::show(store, &model, limit, settings.json, out).await,
        Action::Get => Vec::new(),
        Action::Change(changes) => changes.into_iter().map(|(field, text)| (field.name().to_owned(), text)).collect(),
        Action::Undo { version } => history::undo(store, &model, version).await?,
    };
    let recomputed = if changes.is_empty() { None } else { Some(change(store, &model, changes).await?) };
    show(store, &model, recomputed, settings.json, out).await
}

/// Puts the changes into force and has every worker judged by them. Says how many workers that were.
async fn change(store: &Store, model: &ModelName, changes: Vec<(String, Option<String>)>) -> Result<usize, Error> {
    let op = Configure { source: Source::Cli, changes };
    match store.call(model, &op).await.map_err(Error::redis(store))? {
        Configured::Ok { .. } => recompute(store, model).await,
        Configured::Invalid { field, value } => Err(Error::Refused { field, value }),
        Configured::Unknown => Err(unknown(store, model)),
    }
}

async fn recompute(store: &Store, model: &ModelName) -> Result<usize, Error> {
    let page = status::whole(store, model).await.map_err(Error::redis(store))?;
    let workers: Vec<_> = page.workers.into_iter().map(|row| row.worker).collect();
    for part in workers.chunks(MAX_SWEEP) {
        let nonce = format!("{:08x}", rand::random::<u32>());
        let sweep = Sweep { workers: part.to_vec(), frontends: Vec::new(), nonce };
        store.call(model, &sweep).await.map_err(Error::redis(store))?;
    }
    Ok(workers.len())
}

fn unknown(store: &Store, model: &ModelName) -> Error {
    Error::Model(format!("model {model:?} is not known in namespace {}: no worker has registered", store.namespace()))
}

/// The fields: in force, written, refused.
async fn show(
    store: &Store,
    model: &ModelName,
    recomputed: Option<usize>,
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), Error> {
    let read = async |name: &str| super::fields(store, model, name).await.map_err(Error::redis(store));
    let (applied, written) = (read("config:applied").await?, read("config").await?);
    if applied.is_empty() && written.is_empty() && read("stats").await?.is_empty() {
        return Err(unknown(store, model));
    }
    if as_json {
        writeln!(out, "{:#}", as_value(model, &applied, &written, recomputed))?;
        return Ok(());
    }
    writeln!(out, "model {model}   config version {}", field(&applied, "config_version").unwrap_or(0))?;
    let rows = Field::ALL.into_iter().map(|field| {
        let written_text = written.get(field.name()).cloned().unwrap_or_else(|| "-".to_owned());
        let in_force = applied.get(field.name()).cloned().unwrap_or_else(|| default(field));
        let refused = applied.get(&format!("error:{field}")).map(|text| format!("refused: {text:?}"));
        let differs = applied.get(field.name()) != written.get(field.name());
        let note = refused.or_else(|| differs.then(|| "not yet in force".to_owned()));
        vec![field.name().to_owned(), in_force, written_text, note.unwrap_or_default()]
    });
    write!(out, "{}", table::render(&["FIELD", "IN FORCE", "WRITTEN", ""], rows))?;
    if let Some(why) = applied.get("error:config") {
        writeln!(out, "  the key that holds what is written is {why}: delete it")?;
    }
    if let Some(workers) = recomputed {
        writeln!(out, "  workers recomputed: {workers}")?;
    }
    Ok(())
}

/// What an unset field means.
fn default(field: Field) -> String {
    match status::in_force(&Config::default()).remove(field.name()) {
        Some(Value::String(word)) => format!("{word} (default)"),
        Some(Value::Null) | None => "off".to_owned(),
        Some(value) => format!("{value} (default)"),
    }
}

fn as_value(model: &ModelName, applied: &Fields, written: &Fields, recomputed: Option<usize>) -> Value {
    let refused: BTreeMap<&str, &String> =
        applied.iter().filter_map(|(name, text)| Some((name.strip_prefix("error:")?, text))).collect();
    let written: BTreeMap<&String, &String> = written.iter().filter(|(name, _)| Field::parse(name).is_ok()).collect();
    json!({
        "model": model.as_str(),
        "config_version": field(applied, "config_version").unwrap_or(0),
        "in_force": status::in_force(&status::config(applied)),
        "written": written,
        "refused_values": refused,
        "recomputed_workers": recomputed,
    })
}
