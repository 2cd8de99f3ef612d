//! Faults that operators of comparable systems have met, one test each, named after its id.

mod identity;
mod leaks;
mod leases;
mod names;
mod numbers;
mod outage;
mod races;
mod ranks;
mod replicas;
mod stale;
mod storms;
mod thresholds;
