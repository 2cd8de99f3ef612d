//! Figures of the committers.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Registry};

/// Handles, made once per process.
#[derive(Debug)]
pub struct AdmissionMetrics {
    /// Releases and admissions of one call.
    pub group_size: Histogram,
    /// Time from a committer's call to its outcome, in seconds.
    pub call_seconds: Histogram,
    /// Connections given up because a call's outcome was unknown.
    pub unknown_outcomes: IntCounter,
    /// Times that a model's breaker opened.
    pub breaker_opened: IntCounter,
    /// Leases held now.
    pub leases: IntGauge,
    /// Leases taken in static mode.
    pub static_leases: IntCounter,
    /// Leases that Redis did not have, and was told.
    pub healed: IntCounter,
}

impl AdmissionMetrics {
    /// Makes and registers all of them.
    ///
    /// # Errors
    /// One is registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let sizes = vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let times = vec![0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5];
        let histogram = |name: &str, help: &str, buckets| {
            let made = Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let counter = |name: &str, help: &str| {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let leases = IntGauge::new("tidegate_leases", "Leases that this frontend holds")?;
        registry.register(Box::new(leases.clone()))?;
        Ok(Self {
            group_size: histogram("tidegate_group_size", "Releases and admissions in one call to Redis", sizes)?,
            call_seconds: histogram("tidegate_redis_call_seconds", "Time of a committer's call to Redis", times)?,
            unknown_outcomes: counter("tidegate_redis_unknown_outcomes_total", "Calls of unknown outcome")?,
            breaker_opened: counter("tidegate_breaker_opened_total", "Times that a breaker opened")?,
            leases,
            static_leases: counter("tidegate_static_leases_total", "Leases taken without Redis, in static mode")?,
            healed: counter("tidegate_healed_leases_total", "Leases that Redis did not have and was told again")?,
        })
    }
}
