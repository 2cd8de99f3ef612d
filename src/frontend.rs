//! The HTTP frontend: admits, proxies, refuses. Holds no state that a restart would lose.

pub mod admission;
mod answer;
mod attempt;
mod away;
mod bases;
mod busy_threshold;
mod chance;
mod committer;
mod edge;
mod figures;
mod late;
mod lease;
mod models;
mod pages;
mod proxy;
mod record;
mod relay;
pub mod request;
mod routes;
pub mod settings;
mod snapshot;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use settings::Settings;

use crate::http::descriptors;
use crate::http::serve::{self, Control, Limits};
use crate::metrics;
use crate::metrics::admission::AdmissionMetrics;
use crate::metrics::fleet::FleetMetrics;
use crate::metrics::frontend::FrontendMetrics;
use crate::store::Store;
use admission::Admissions;
use edge::{Edge, Stage};
use figures::Figures;
use routes::Port;

/// How long the last leases may take to get back into Redis.
const LAST_RELEASES: Duration = Duration::from_secs(2);
/// How long idle connections may take to close.
const LAST_CONNECTIONS: Duration = Duration::from_secs(1);

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
        let Self { settings, store, public, admin } = self;
        let registry = Registry::new();
        metrics::watch_process(&registry)?;
        let metrics = FrontendMetrics::new(&registry)?;
        let figures = Figures::new(FleetMetrics::new(&registry)?, settings.max_worker_series);
        let admissions = Admissions::start(store, &settings, Arc::new(AdmissionMetrics::register(&registry)?));
        let limits = Limits { connections: descriptors::connections(settings.max_connections), ..Limits::default() };
        if limits.connections < settings.max_connections {
            tracing::warn!(connections = limits.connections, "the limit of open files allows fewer --max-connections");
        }
        if settings.admin_api && settings.admin_token.is_none() {
            tracing::warn!("no --admin-token-file: whoever reaches the port can change thresholds");
        }
        let edge = Edge::new(settings, admissions.clone(), metrics, figures);
        let control = edge.control.clone();
        let _cut = CutOnDrop(control.clone());
        tracing::info!("listening on http://{}", public.local_addr()?);
        let port = if admin.is_some() { Port::Public } else { Port::Only };
        let filters = warp::service(routes::routes(Arc::clone(&edge), port));
        let public = serve::serve(public, limits, control.clone(), filters);
        let admin = async {
            let Some(admin) = admin else { return Ok(()) };
            tracing::info!("admin listening on http://{}", admin.local_addr()?);
            let filters = warp::service(routes::routes(Arc::clone(&edge), Port::Admin));
            serve::serve(admin, Limits { connections: 256, ..limits }, control.clone(), filters).await;
            Ok(())
        };
        let serving = async {
            let listeners = async { tokio::join!(public, admin).1 };
            let mut listeners = std::pin::pin!(listeners);
            tokio::select! {
                // Only a listener that failed ends by itself.
                served = listeners.as_mut() => return served,
                () = leave(&edge, &shutdown) => {}
            }
            match tokio::time::timeout(LAST_CONNECTIONS, listeners.as_mut()).await {
                Ok(served) => served,
                Err(_) => {
                    control.cut();
                    listeners.await
                }
            }
        };
        let served = tokio::select! {
            served = serving => served,
            () = edge.figures.watch(&edge.admissions) => Ok(()),
        };
        admissions.stop(LAST_RELEASES).await;
        tracing::info!("stopped");
        served
    }
}

/// Leaves when it is asked to, in good order (design section 5).
async fn leave(edge: &Edge, shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    let control = &edge.control;
    edge.enter(Stage::Pausing);
    control.close_after_answers();
    if !edge.settings.drain_pause.is_zero() {
        tracing::info!(pause = ?edge.settings.drain_pause, "not ready any more, still taking requests");
        tokio::time::sleep(edge.settings.drain_pause).await;
    }
    edge.enter(Stage::Draining);
    edge.admissions.drain();
    tracing::info!(requests = control.active(), "taking no more requests");
    if tokio::time::timeout(edge.settings.drain, control.quiet()).await.is_err() {
        tracing::warn!(requests = control.active(), "running requests are cut");
        control.cut();
    }
    control.finish();
}

/// Connections run in tasks of their own, and end with the frontend all the same.
struct CutOnDrop(Control);

impl Drop for CutOnDrop {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// [`Frontend::bind`] and [`Frontend::serve`].
///
/// # Errors
/// See [`Error`].
pub async fn run(settings: Settings, store: Store, shutdown: CancellationToken) -> Result<(), Error> {
    Frontend::bind(settings, store).await?.serve(shutdown).await
}
