//! `tidegate doctor`: checks the invariants of design section 10 on live state.

use crate::core::id::ModelName;

/// What to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// This model only; none: all.
    pub model: Option<ModelName>,
    /// Print JSON.
    pub json: bool,
    /// Start a new epoch for a model whose state is broken.
    pub repair: bool,
}
