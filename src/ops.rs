//! The operator's view (design section 9): `status`, `thresholds`, `doctor`.

pub mod doctor;
pub mod status;
pub mod thresholds;
