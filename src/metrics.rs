//! Prometheus metrics.

pub mod admission;
