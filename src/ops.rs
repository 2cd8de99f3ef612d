//! The operator's view: `status`, `thresholds`, `doctor`.
