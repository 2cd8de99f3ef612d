//! `tidegate demo`: a whole fleet in one command (design section 2). Two frontends and three workers with mock engines
//! share one Redis in this process; a load rises past what they can serve and falls again, and a table shows what the
//! gate does about it. Then the fleet stays up, to be tried by hand.

mod fleet;
mod load;
mod story;
mod table;
mod watch;

use std::io::Write;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::redis_url::RedisUrl;
use fleet::Fleet;
use load::{Curve, Load};
use story::Story;

/// The settings of `tidegate demo` (design section 8).
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// `--redis-url`: the Redis to use; none: a private server, or the in-process store.
    pub redis_url: Option<RedisUrl>,
    /// `--seconds`: when to end; none: at Ctrl-C.
    pub seconds: Option<Duration>,
}

/// Why the demo did not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A private Redis server is there but does not work.
    #[error(transparent)]
    Redis(#[from] crate::redis_server::StartError),
    /// A port, or the output.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A frontend did not start.
    #[error("frontend: {0}")]
    Frontend(#[from] crate::frontend::Error),
    /// A worker did not start.
    #[error("worker: {0}")]
    Worker(#[from] crate::worker::Error),
    /// A name or an address that is made up here is not valid.
    #[error("{0}")]
    Made(String),
    /// The fleet did not get ready.
    #[error("the fleet is not ready after {0:?}: {1}")]
    NotReady(Duration, String),
}

/// Runs the demo until `shutdown` is cancelled or its time is over; prints to `out`.
///
/// # Errors
/// See [`Error`]. A reader of `out` that has gone ends the demo.
pub async fn run(settings: Settings, shutdown: CancellationToken, out: &mut (dyn Write + Send)) -> Result<(), Error> {
    let end = shutdown.child_token();
    if let Some(seconds) = settings.seconds {
        let end = end.clone();
        tokio::spawn(async move {
            tokio::time::sleep(seconds).await;
            end.cancel();
        });
    }
    let fleet = Fleet::start(&settings).await?;
    let told = tell(&fleet, &end, out).await;
    fleet.stop().await;
    told
}

async fn tell(fleet: &Fleet, end: &CancellationToken, out: &mut (dyn Write + Send)) -> Result<(), Error> {
    write!(out, "{}", story::introduction(fleet))?;
    let ready = async {
        fleet.ready().await?;
        let load = Load::start(fleet);
        let mut story = Story::new(fleet, &load);
        story.run(Curve::default(), out).await?;
        writeln!(out, "{}", story::commands(fleet))?;
        load.set(story::RATE_AFTERWARDS);
        std::future::pending().await
    };
    tokio::select! {
        told = ready => told,
        () = end.cancelled() => {
            writeln!(out, "\nThe demo ends; what it started goes with it.")?;
            Ok(())
        }
    }
}
