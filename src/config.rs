//! Settings in layers: built-in `default.toml` < `--config FILE` < environment < flags (design section 8).
//!
//! A layer gives text, and where it stands; [`Layers::resolve`] puts them on top of one another; [`Resolved`] hands
//! out checked values. Nothing else in the program reads a settings file or an environment variable.

pub mod environment;
mod file;
pub mod parse;
pub mod redis;
pub mod redis_url;
mod resolved;
pub mod secret;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use config::builder::DefaultState;
use config::{ConfigBuilder, ConfigError, Map, Source, Value, ValueKind};

pub use resolved::{Resolved, Setting};

/// The built-in settings: layer 0 and the reference of all keys.
pub const DEFAULT: &str = include_str!("config/default.toml");

/// Which keys there are.
#[derive(Debug, Clone)]
pub struct Schema {
    /// The command that runs, as its section is called.
    pub command: String,
    /// Every command's keys, by section.
    pub keys: BTreeMap<String, BTreeSet<String>>,
}

impl Schema {
    fn own(&self, key: &str) -> bool {
        self.keys.get(&self.command).is_some_and(|keys| keys.contains(key))
    }

    fn anybodys(&self, key: &str) -> bool {
        self.keys.values().any(|keys| keys.contains(key))
    }
}

/// Why the settings are refused. The message names the key, the value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A value is not valid.
    #[error("--{}: {value:?} {reason} (from {origin})", .key.replace('_', "-"))]
    Value {
        /// The setting.
        key: String,
        /// What was given; secrets are blotted out.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// The flag, variable or file.
        origin: String,
    },
    /// A word of the command line that is not a flag's value.
    #[error("{name}: {value:?} {reason}")]
    Argument {
        /// What it is about.
        name: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting without default was not given.
    #[error("--{} is required (or {} in the environment, or {key} in the file given with --config)", .key.replace('_', "-"), environment::name(.key))]
    Missing {
        /// The setting.
        key: String,
    },
    /// The settings file has a key that nobody knows.
    #[error("unknown key {key} = {value} in {file}")]
    UnknownKey {
        /// With its section.
        key: String,
        /// What was given.
        value: String,
        /// The file.
        file: String,
    },
    /// The settings file cannot be read.
    #[error("--config {file:?}: {reason}")]
    File {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
}

/// What goes on top of the built-in settings.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// The process environment, or what a test puts in its place.
    pub environment: Vec<(OsString, OsString)>,
    /// What stands on the command line, by key.
    pub flags: BTreeMap<String, String>,
}

impl Layers {
    /// Puts the layers on top of one another.
    ///
    /// # Errors
    /// An unreadable settings file, an unknown key in it, a variable that is not UTF-8.
    pub fn resolve(&self, schema: &Schema) -> Result<Resolved, SettingsError> {
        let (environment, variables, warnings) = environment::layer(&self.environment, schema)?;
        let flags = self.flags.iter().map(|(key, text)| (key.clone(), text_value(text, &flag_origin(key))));
        let mut layers = vec![file::built_in(schema)?];
        if let Some(file) = self.config_file() {
            layers.push(file::layer(&file, schema)?);
        }
        layers.push(environment);
        layers.push(flags.collect());
        let mut builder = ConfigBuilder::<DefaultState>::default();
        for layer in layers {
            builder = builder.add_source(Layer(layer));
        }
        let merged = builder.build().and_then(|merged| merged.collect());
        let values = merged.map_err(|why| SettingsError::File { file: "settings".into(), reason: why.to_string() })?;
        Ok(Resolved::new(values, variables, warnings))
    }

    /// `--config`, or `TIDEGATE_CONFIG`.
    fn config_file(&self) -> Option<PathBuf> {
        let variable = || self.environment.iter().find(|(name, _)| name == "TIDEGATE_CONFIG").map(|(_, v)| v.into());
        self.file.clone().or_else(variable)
    }
}

/// The built-in settings alone; none if they do not fit the schema, which a test excludes.
#[must_use]
pub fn defaults(schema: &Schema) -> Option<Resolved> {
    Layers::default().resolve(schema).ok()
}

/// How origins begin.
const FLAG: &str = "flag --";
const VARIABLE: &str = "environment variable ";

fn flag_origin(key: &str) -> String {
    format!("{FLAG}{}", key.replace('_', "-"))
}

fn text_value(text: &str, origin: &str) -> Value {
    Value::new(Some(&origin.to_owned()), ValueKind::String(text.to_owned()))
}

/// A finished layer, for the merging of the `config` crate.
#[derive(Debug, Clone)]
struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}
