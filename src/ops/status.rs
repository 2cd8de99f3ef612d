//! `tidegate status`: models, workers, why each is busy.

mod gather;
mod text;
mod view;

use std::io::{IsTerminal, Write};
use std::time::Duration;

use serde::Serialize;

use super::Error;
use crate::core::id::ModelName;
use crate::store::Store;

pub(super) use gather::whole;
pub use view::ModelView;
pub(super) use view::{config, in_force};

/// What to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// This model only; none: all.
    pub model: Option<ModelName>,
    /// Print JSON.
    pub json: bool,
    /// Repeat until interrupted.
    pub watch: bool,
    /// Pause between two looks, 100 ms or more.
    pub interval: Duration,
}

/// Everything that `status` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct View {
    /// `--namespace`.
    pub namespace: String,
    /// Where Redis is, without a password.
    pub redis: String,
    /// What should be changed about the servers.
    pub warnings: Vec<String>,
    /// By name.
    pub models: Vec<ModelView>,
}

/// Looks once.
///
/// # Errors
/// Redis cannot be read, or the model that was asked for is not known.
pub async fn look(store: &Store, model: Option<&ModelName>) -> Result<View, Error> {
    // INFO may be forbidden to this user; then there is no advice.
    let warnings = store.warnings().await.unwrap_or_default();
    let mut models = Vec::new();
    for name in super::chosen(store, model).await? {
        let raw = gather::gather(store, &name).await.map_err(Error::redis(store))?;
        if model.is_some() && raw.page.stats.is_empty() && raw.config.is_empty() {
            return Err(Error::Model(format!("model {name:?} is not known in namespace {}", store.namespace())));
        }
        models.push(view::view(&name, &raw));
    }
    Ok(View { namespace: store.namespace().to_string(), redis: store.describe(), warnings, models })
}

/// Shows it, once or, with `watch`, until the future is dropped.
///
/// # Errors
/// The first look fails, or the output cannot be written. With `watch`, a later look that fails is shown and repeated.
pub async fn run(settings: Settings, store: &Store, out: &mut (dyn Write + Send)) -> Result<(), Error> {
    show(&look(store, settings.model.as_ref()).await?, &settings, out)?;
    if !settings.watch {
        return Ok(());
    }
    loop {
        tokio::time::sleep(settings.interval).await;
        match look(store, settings.model.as_ref()).await {
            Ok(view) => show(&view, &settings, out)?,
            Err(why) => tracing::warn!("{why}"),
        }
    }
}

fn show(view: &View, settings: &Settings, out: &mut (dyn Write + Send)) -> Result<(), Error> {
    /// Clears the screen, and goes to its upper left corner.
    const CLEAR: &str = "\x1b[2J\x1b[H";
    match (settings.json, settings.watch) {
        (true, false) => writeln!(out, "{:#}", serde_json::json!(view))?,
        (true, true) => writeln!(out, "{}", serde_json::json!(view))?,
        (false, watch) => {
            let clear = if watch && std::io::stdout().is_terminal() { CLEAR } else { "" };
            write!(out, "{clear}{}", text::text(view))?;
        }
    }
    Ok(out.flush()?)
}
