//! `tidegate thresholds`: reads and changes a model's fields of `P:config`.

use crate::core::id::ModelName;
use crate::core::thresholds::Field;

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
