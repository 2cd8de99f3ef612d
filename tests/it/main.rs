//! The integration tests: one binary, a real Redis per test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the log of a failed test")]

mod admission;
mod cluster;
mod contract;
mod demo;
mod edge;
mod faults;
mod harness;
mod loss;
mod mock_engine;
mod ops;
mod parity;
mod protocol;
mod scripts;
mod sentinel;
mod soak;
mod store;
mod tidy;
mod worker;
