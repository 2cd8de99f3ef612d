//! The integration tests: one binary, a real Redis per test.

mod harness;
mod tidy;
