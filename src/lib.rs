//! tidegate: request admission for LLM inference fleets. Many stateless frontends, one shared state in Redis, one
//! answer. `ARCHITECTURE.md` has the map.

pub mod cli;
pub mod config;
pub mod core;
pub mod demo;
pub mod frontend;
pub mod http;
pub mod keys;
pub mod metrics;
pub mod mock_engine;
pub mod ops;
pub mod redis_server;
pub mod scripts;
pub mod shutdown;
pub mod store;
pub mod telemetry;
pub mod worker;
