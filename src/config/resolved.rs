//! The merged settings, and the way to checked values.

use std::collections::BTreeMap;

use config::{Map, Value, ValueKind};

use super::SettingsError;
use super::file::BUILT_IN;
use super::redis_url::redacted;

/// All settings of the running command, as text with its origin.
#[derive(Debug, Clone)]
pub struct Resolved {
    values: Map<String, Value>,
    variables: BTreeMap<&'static str, String>,
    /// What an operator should know although it stops nothing; to be logged once the log is set up.
    pub warnings: Vec<String>,
}

/// One setting as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The text.
    pub text: String,
    /// The flag, variable or file key.
    pub origin: String,
}

impl Resolved {
    pub(super) fn new(
        values: Map<String, Value>,
        variables: BTreeMap<&'static str, String>,
        warnings: Vec<String>,
    ) -> Self {
        Self { values, variables, warnings }
    }

    /// A variable of the reference system that has no flag.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// A setting as given; none if it is not set (`None` in any layer).
    ///
    /// # Errors
    /// A list or table where a single value should be.
    pub fn setting(&self, key: &str) -> Result<Option<Setting>, SettingsError> {
        let Some(value) = self.values.get(key) else { return Ok(None) };
        let origin = value.origin().unwrap_or("an unknown place").to_owned();
        let text = match &value.kind {
            ValueKind::String(text) => text.clone(),
            ValueKind::Nil => return Ok(None),
            ValueKind::Table(_) | ValueKind::Array(_) => {
                return Err(error(key, &value.to_string(), "must be a single value", &origin));
            }
            ValueKind::Float(_)
            | ValueKind::Boolean(_)
            | ValueKind::I64(_)
            | ValueKind::I128(_)
            | ValueKind::U64(_)
            | ValueKind::U128(_) => value.to_string(),
        };
        Ok((text != "None").then_some(Setting { text, origin }))
    }

    /// Some layer names this setting, if only to say that it is not set.
    #[must_use]
    pub fn defined(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Somebody gave this setting: it is not the built-in one.
    #[must_use]
    pub fn given(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| !value.origin().unwrap_or("").ends_with(BUILT_IN))
    }

    /// It was given by a flag or a variable of its own, which win over a file and over other names for it.
    #[must_use]
    pub fn given_at_start(&self, key: &str) -> bool {
        let origin = self.values.get(key).and_then(Value::origin).unwrap_or("");
        origin.starts_with(super::FLAG) || origin.starts_with(super::VARIABLE)
    }

    /// A setting that need not be set.
    ///
    /// # Errors
    /// `check` refuses the text.
    pub fn optional<T>(
        &self,
        key: &str,
        check: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SettingsError> {
        let Some(Setting { text, origin }) = self.setting(key)? else { return Ok(None) };
        let checked = if text.is_empty() { Err("must not be empty".to_owned()) } else { check(&text) };
        checked.map(Some).map_err(|reason| error(key, &text, &reason, &origin))
    }

    /// A setting that has a default or must be given.
    ///
    /// # Errors
    /// It is not set, or `check` refuses the text.
    pub fn required<T>(&self, key: &str, check: impl FnOnce(&str) -> Result<T, String>) -> Result<T, SettingsError> {
        self.optional(key, check)?.ok_or_else(|| SettingsError::Missing { key: key.to_owned() })
    }
}

/// Refuses a value; anything that looks like a URL with credentials is blotted out.
pub(crate) fn error(key: &str, value: &str, reason: &str, origin: &str) -> SettingsError {
    let value = if value.contains('@') { redacted(value) } else { value.to_owned() };
    SettingsError::Value { key: key.to_owned(), value, reason: reason.to_owned(), origin: origin.to_owned() }
}
