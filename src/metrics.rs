//! Prometheus metrics: one registry per process object, handles made once (design section 7).

pub mod admission;
pub mod fleet;
pub mod frontend;
pub mod text;
pub mod worker;

use prometheus::core::Collector;
use prometheus::{Encoder, Registry, TextEncoder};

/// The content type of [`page`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Registers a collector and hands it back.
///
/// # Errors
/// The registry has one of that name.
pub fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

/// All series of a registry as Prometheus reads them.
///
/// # Errors
/// A series cannot be written; none of ours can fail.
pub fn page(registry: &Registry) -> Result<String, prometheus::Error> {
    let mut page = Vec::new();
    TextEncoder::new().encode(&registry.gather(), &mut page)?;
    String::from_utf8(page).map_err(|e| prometheus::Error::Msg(e.to_string()))
}

/// Registers what the system knows of this process: memory, processor time, descriptors.
///
/// # Errors
/// The registry has them already.
pub fn watch_process(registry: &Registry) -> Result<(), prometheus::Error> {
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    let _ = registry;
    Ok(())
}
