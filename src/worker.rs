//! The sidecar beside one engine: registers, reports load, enforces N+Q, forwards (design section 2).
//!
//! Two tasks run beside the HTTP server: the [`probe`] asks the engine how it is, the [`report`]er tells Redis. All
//! share one [`state`]; requests go through the [`gate`] and the [`relay`].

mod admin;
mod answer;
mod engine;
pub mod gate;
mod leave;
mod load;
mod probe;
mod relay;
mod report;
mod serve;
pub mod settings;
mod state;
pub mod track;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use settings::Settings;

use crate::http::descriptors;
use crate::http::serve::{self as server, Control};
use crate::http::upstream::Upstream;
use crate::metrics::worker::WorkerMetrics;
use crate::store::Store;
use admin::Admin;
use probe::Probe;
use relay::Relay;
use report::Reporter;
use serve::Routes;
use state::State;

/// Unused connections to the engine are kept for this long: a little less than uvicorn's 5 s.
const ENGINE_IDLE: Duration = Duration::from_secs(4);
/// Publishers that wait for the reporter.
const PUSHES: usize = 64;
/// What is left of a connection after the drain may take this long.
const LAST_WORDS: Duration = Duration::from_millis(500);

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
    state: Arc<State>,
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
        let listener = server::listen(address).map_err(|source| Error::Listen { address, source })?;
        let bound = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
        let url = settings.advertised(bound)?.to_string();
        Ok(Self { state: State::new(settings, url, bound, WorkerMetrics::new()?), store, listener })
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
        let Self { state, store, listener } = self;
        let upstream = Upstream::new(ENGINE_IDLE);
        let (pushes, told) = mpsc::channel(PUSHES);
        let end = CancellationToken::new();
        // Ends the tasks also when this future is dropped.
        let _guard = end.clone().drop_guard();
        let reporter = tokio::spawn(Reporter::new(Arc::clone(&state), store.clone(), told).run(end.clone()));
        // Connections of its own: a request must not meet one that only a probe has used, and pass for reused.
        let probe = Probe::new(Arc::clone(&state), Upstream::new(ENGINE_IDLE));
        let probe = tokio::spawn(probe.run(end.clone()));
        let control = Control::default();
        let routes = Routes {
            relay: Relay::new(Arc::clone(&state), upstream),
            admin: Admin::new(Arc::clone(&state), pushes.clone()),
            state: Arc::clone(&state),
        };
        // A caller that ends its side has gone, and its slot is free at once: frontends count on it for the next one.
        let limits = server::Limits {
            connections: descriptors::connections(server::Limits::default().connections),
            tell_peer: true,
            last_words: Duration::ZERO,
            ..server::Limits::default()
        };
        let server = tokio::spawn(server::serve(listener, limits, control.clone(), routes));
        tracing::info!(
            worker = %state.settings.worker,
            model = %state.settings.model,
            engine = %state.settings.engine_url,
            url = state.url,
            "worker listening on http://{}",
            state.bound
        );
        shutdown.cancelled().await;
        leave::drain(&state, &control, &pushes).await;
        end.cancel();
        let _ = tokio::join!(reporter, probe);
        leave::leave(&state, &store).await;
        control.finish();
        if tokio::time::timeout(LAST_WORDS, control.quiet()).await.is_err() {
            tracing::warn!(requests = control.active(), "cutting off what still runs");
        }
        control.cut();
        let _ = server.await;
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
