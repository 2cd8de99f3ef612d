//! The sidecar as a process, beside a scripted engine, spoken to directly: no frontend takes part.

mod gate;
mod life;
mod load;
mod relay;
mod settings;

use std::net::SocketAddr;

use crate::harness::{Answer, chat, get};
use tokio::task::JoinHandle;

/// A figure of the metrics page.
async fn figure(address: SocketAddr, series: &str) -> f64 {
    let page = get(address, "/metrics").await.text();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in:\n{page}")).parse().unwrap()
}

/// A chat request in the background.
fn send(address: SocketAddr) -> JoinHandle<Answer> {
    tokio::spawn(async move { chat(address, "m").await })
}
