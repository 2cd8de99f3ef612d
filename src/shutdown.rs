//! Signals and the order of leaving.
