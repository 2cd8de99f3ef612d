//! Asks the engine every report interval whether it is there, and reads its metrics page (design sections 3.5 and 6).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::http::upstream::{Failure, Upstream};

use super::engine::{self, Source};
use super::state::{Engine, State};

/// Longest wait for an answer of the engine to a probe or scrape. A busy engine may take its time.
const PATIENCE: Duration = Duration::from_secs(2);
/// Failures in a row that mean that the engine is down.
const FAILURES: u32 = 2;
/// Most of a page that is read.
const PAGE: usize = 8 * 1024 * 1024;

pub(super) struct Probe {
    state: Arc<State>,
    upstream: Upstream,
    failures: u32,
    unread: bool,
}

impl Probe {
    pub(super) fn new(state: Arc<State>, upstream: Upstream) -> Self {
        Self { state, upstream, failures: 0, unread: false }
    }

    /// Probes until `end`.
    pub(super) async fn run(mut self, end: CancellationToken) {
        let mut tick = tokio::time::interval(self.state.settings.report_interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                _ = tick.tick() => {}
            }
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                () = self.once() => {}
            }
        }
    }

    async fn once(&mut self) {
        let sources = engine::sources(self.state.settings.engine_metrics);
        let (health, scraped) = tokio::join!(self.health(), self.scrape(sources));
        match health {
            Ok(()) => {
                self.failures = 0;
                self.state.set_engine(Engine::Up);
            }
            Err(refused) => {
                self.failures = self.failures.saturating_add(1);
                if (refused || self.failures >= FAILURES) && self.state.engine() == Engine::Up {
                    self.state.set_engine(Engine::Down);
                }
            }
        }
        if let Some(read) = scraped {
            self.took(read);
        }
        self.state.changed.notify_one();
    }

    /// Any status below 500 will do. The error says whether the connection was refused.
    async fn health(&self) -> Result<(), bool> {
        let answer = self.get(&self.state.settings.engine_health_path);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok((status, _))) if status.as_u16() < 500 => Ok(()),
            Ok(Err(Failure::Connect { refused, .. })) => Err(refused),
            Ok(_) | Err(_) => Err(false),
        }
    }

    /// The outer none: there is nothing to read.
    async fn scrape(&self, sources: &[Source]) -> Option<Option<engine::Scraped>> {
        if sources.is_empty() {
            return None;
        }
        for source in sources {
            let page = tokio::time::timeout(PATIENCE, self.get(source.path)).await;
            let Ok(Ok((StatusCode::OK, page))) = page else { continue };
            let facts = std::str::from_utf8(&page).ok().and_then(source.read);
            if let Some(facts) = facts {
                return Some(Some(engine::figures(&facts, &self.state.settings)));
            }
        }
        Some(None)
    }

    fn took(&mut self, read: Option<engine::Scraped>) {
        let metrics = &self.state.metrics;
        let Some(scraped) = read else {
            metrics.scrape_failures.inc();
            if !std::mem::replace(&mut self.unread, true) {
                tracing::warn!(engine = %self.state.settings.engine_url, "the engine's metrics page cannot be read");
            }
            return;
        };
        if std::mem::take(&mut self.unread) {
            tracing::info!("the engine's metrics page can be read again");
        }
        let count = |value: Option<f64>| value.unwrap_or(0.0) as i64;
        metrics.engine_running.set(count(scraped.running));
        metrics.engine_waiting.set(count(scraped.waiting));
        self.state.load.scraped(scraped.figures);
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), Failure> {
        let broken = |what: String| Failure::Broken(what);
        let request = Request::get(self.state.settings.engine_url.join(path))
            .body(Full::default())
            .map_err(|e| broken(e.to_string()))?;
        let answer = self.upstream.send(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), PAGE).collect().await.map_err(|e| broken(e.to_string()))?;
        Ok((status, body.to_bytes()))
    }
}
