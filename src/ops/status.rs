//! `tidegate status`: models, workers, why each is busy.

use std::time::Duration;

use crate::core::id::ModelName;

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
