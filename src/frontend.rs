//! The HTTP frontend: admits, proxies, refuses. Holds no state that a restart would lose.

pub mod admission;
