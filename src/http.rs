//! HTTP/1.1 as all processes of a fleet speak it: an accept loop with limits and a drain, sockets that notice a client
//! that has gone, bodies with a bound, and headers that end at each hop.

pub mod base_url;
pub mod body;
pub mod descriptors;
pub mod dialect;
pub mod headers;
pub mod prompt;
pub mod serve;
pub mod upstream;

mod connection;
mod socket;
