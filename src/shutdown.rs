//! SIGTERM and SIGINT: the first asks for a drain, the second ends the process at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Both stages of a shutdown. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// Cancelled by the first signal: take nothing new, finish what runs.
    pub drain: CancellationToken,
    /// Cancelled by the second signal: stop now.
    pub now: CancellationToken,
}

impl Shutdown {
    /// One that is driven by the signals of this process.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let mut signals = Signals::new()?;
        let shutdown = Self::default();
        let Self { drain, now } = shutdown.clone();
        tokio::spawn(async move {
            let name = signals.next().await;
            tracing::info!("{name}: draining; a second signal stops at once");
            drain.cancel();
            let name = signals.next().await;
            tracing::warn!("{name} again: stopping at once");
            now.cancel();
        });
        Ok(shutdown)
    }
}

/// Waits for the first signal, for commands that have nothing to drain.
///
/// # Errors
/// The handlers cannot be installed.
pub async fn interrupted() -> std::io::Result<()> {
    let mut signals = Signals::new()?;
    signals.next().await;
    Ok(())
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
