//! How long a refused client should wait (design section 5).

/// What is known of how fast the model's requests end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Drain {
    /// Releases per second (EWMA), fleet-wide.
    pub per_second: f64,
    /// Refusals of the last 5 s, fleet-wide.
    pub shed: u64,
}
