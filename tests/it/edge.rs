//! The HTTP edge of a frontend, byte by byte. The frontend runs in this process on a real Redis; scripted stubs stand
//! where its workers' sidecars would, so that each side of the proxy does exactly what a test says.

mod bodies;
mod framing;
mod fuzz;
mod leaving;
mod limits;
mod pages;
mod relaying;
mod retries;
mod rig;
mod shutdown;
mod thresholds;
