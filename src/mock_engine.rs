//! `tidegate mock-engine`: an OpenAI-compatible engine without a GPU. It has what a gate has to do with: KV blocks that
//! fill up, prefill and decode that take time, data-parallel ranks, and vLLM's `/metrics` out of the same numbers.
//! It says nothing of interest: the words of an answer are made up.

mod answer;
mod driver;
pub mod model;
mod page;
mod prompt;
mod routes;

use std::io;
use std::net::SocketAddr;

use tokio_util::sync::CancellationToken;

use crate::core::id::ModelName;
use crate::http::serve::{Control, Limits as Connections, listen, serve};

/// How long streams may still run when the process is told to end.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// The settings of `tidegate mock-engine` (design section 8).
#[derive(Debug, Clone)]
pub struct Settings {
    /// `--listen`.
    pub listen: SocketAddr,
    /// `--model`: the only one it serves.
    pub model: ModelName,
    /// The other flags.
    pub limits: model::Limits,
}

/// An engine whose port is open.
#[derive(Debug)]
pub struct MockEngine {
    settings: Settings,
    listener: tokio::net::TcpListener,
    address: SocketAddr,
}

impl MockEngine {
    /// Opens the port. Nothing is served yet.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub fn bind(settings: Settings) -> io::Result<Self> {
        let listener = listen(settings.listen)?;
        let address = listener.local_addr()?;
        Ok(Self { settings, listener, address })
    }

    /// The open port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is cancelled; streams that then run are cut after a second.
    pub async fn serve(self, shutdown: CancellationToken) {
        let driver = driver::Driver::new(model::Engine::new(self.settings.limits));
        let service = warp::service(routes::routes(self.settings.model, driver.clone()));
        let control = Control::default();
        tracing::info!("listening on http://{}", self.address);
        let leave = async {
            shutdown.cancelled().await;
            control.finish();
            tokio::time::sleep(DRAIN).await;
            control.cut();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = serve(self.listener, Connections::default(), control.clone(), service) => {}
            () = driver.run() => {}
            () = leave => {}
        }
    }
}

/// [`MockEngine::bind`] and [`MockEngine::serve`].
///
/// # Errors
/// The port cannot be opened.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> io::Result<()> {
    MockEngine::bind(settings)?.serve(shutdown).await;
    Ok(())
}
