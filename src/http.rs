//! HTTP parts that frontends and sidecars share.

pub mod base_url;
