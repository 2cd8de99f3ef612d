//! The worker sidecar: registers, reports load, enforces N+Q, forwards.
