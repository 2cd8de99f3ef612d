//! The demo's load: streaming chat requests, turn about to the frontends, at a rate that changes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::task::JoinSet;

use super::fleet::{Fleet, MODEL};

/// Output of a request of the load: two and a half seconds at the demo's decode rate.
const OUTPUT: u64 = 100;
/// Text of its prompt, in bytes: 320 tokens.
const PROMPT: usize = 1_280;
/// Between two looks at how many requests are due.
const TICK: Duration = Duration::from_millis(20);

/// How the load changes: rises to `peak` requests per second, stays there, falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Curve {
    pub(super) peak: f64,
    pub(super) rise: Duration,
    pub(super) stay: Duration,
    pub(super) fall: Duration,
}

impl Default for Curve {
    /// Twice what the fleet can serve, within half a minute.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { peak: 18.0, rise: seconds(9), stay: seconds(6), fall: seconds(9) }
    }
}

impl Curve {
    /// Requests per second `at` this time from the start; none after the end.
    pub(super) fn rate(&self, at: Duration) -> Option<f64> {
        let high = self.rise + self.stay;
        let end = high + self.fall;
        let share = if at < self.rise {
            at.as_secs_f64() / self.rise.as_secs_f64()
        } else if at < high {
            1.0
        } else if at < end {
            (end - at).as_secs_f64() / self.fall.as_secs_f64()
        } else {
            return None;
        };
        Some((share * self.peak).max(1.0))
    }
}

/// What one frontend has answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) served: u64,
    /// By reason.
    pub(super) refused: BTreeMap<String, u64>,
    /// Anything that was neither.
    pub(super) failed: u64,
}

impl Answers {
    /// All refusals.
    pub(super) fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }
}

/// What a frontend said to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) status: u16,
    pub(super) revision: Option<u64>,
    pub(super) reason: Option<String>,
}

#[derive(Debug)]
struct Inner {
    client: Client<HttpConnector, Full<Bytes>>,
    frontends: Vec<SocketAddr>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rate: f64,
    answers: Vec<Answers>,
}

/// A running load. It ends when dropped, its requests too.
#[derive(Debug)]
pub(super) struct Load {
    inner: Arc<Inner>,
    task: tokio::task::JoinHandle<()>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Starts at a rate of zero.
    pub(super) fn start(fleet: &Fleet) -> Self {
        let answers = vec![Answers::default(); fleet.frontends.len()];
        let inner = Arc::new(Inner {
            client: Client::builder(TokioExecutor::new()).build_http(),
            frontends: fleet.frontends.clone(),
            state: Mutex::new(State { rate: 0.0, answers }),
        });
        let task = tokio::spawn(generate(inner.clone()));
        Self { inner, task }
    }

    /// Requests per second from now on.
    pub(super) fn set(&self, rate: f64) {
        self.inner.state().rate = rate;
    }

    /// What each frontend has answered so far.
    pub(super) fn answers(&self) -> Vec<Answers> {
        self.inner.state().answers.clone()
    }

    /// Asks the frontends beside the load.
    pub(super) fn prober(&self) -> Prober {
        Prober(self.inner.clone())
    }
}

/// Asks frontends what they say at the moment; these answers are not counted.
#[derive(Debug, Clone)]
pub(super) struct Prober(Arc<Inner>);

impl Prober {
    /// Asks every frontend at the same time; none if one of them did not answer.
    pub(super) async fn ask(&self) -> Option<Vec<Said>> {
        let all = (0..self.0.frontends.len()).map(|frontend| async move {
            let response = self.0.send(frontend, 1, 4).await?;
            self.0.said(response).await
        });
        futures_util::future::join_all(all).await.into_iter().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn generate(inner: Arc<Inner>) {
    let mut requests = JoinSet::new();
    let (mut due, mut next) = (0.0, 0);
    let mut tick = tokio::time::interval(TICK);
    loop {
        tick.tick().await;
        due += inner.state().rate * TICK.as_secs_f64();
        while due >= 1.0 {
            due -= 1.0;
            let (inner, frontend) = (inner.clone(), next % inner.frontends.len().max(1));
            next += 1;
            requests.spawn(async move {
                inner.serve(frontend).await;
            });
        }
        while requests.try_join_next().is_some() {}
    }
}

impl Inner {
    /// One request of the load: counts its answer as soon as its head is there, and reads it to the end.
    async fn serve(&self, frontend: usize) {
        let response = self.send(frontend, OUTPUT, PROMPT).await;
        let (streaming, refused) = match response {
            Some(response) if response.status() == StatusCode::OK => (Some(response), None),
            Some(response) => (None, self.said(response).await),
            None => (None, None),
        };
        if let Some(answers) = self.state().answers.get_mut(frontend) {
            match (&streaming, refused) {
                (Some(_), _) => answers.served += 1,
                (None, Some(said)) => {
                    *answers.refused.entry(said.reason.unwrap_or_else(|| said.status.to_string())).or_default() += 1;
                }
                (None, None) => answers.failed += 1,
            }
        }
        if let Some(mut response) = streaming {
            while let Some(Ok(_)) = response.frame().await {}
        }
    }

    async fn send(&self, frontend: usize, output: u64, prompt: usize) -> Option<Response<Incoming>> {
        let address = self.frontends.get(frontend)?;
        let body = json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": "tide ".repeat(prompt.div_ceil(5))}],
            "max_tokens": output,
            "stream": true,
        });
        let request = Request::post(format!("http://{address}/v1/chat/completions"))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(body.to_string()))
            .ok()?;
        self.client.request(request).await.ok()
    }

    /// Reads the head of an answer, and the body only of a refusal: a stream that is dropped is cancelled.
    async fn said(&self, response: Response<Incoming>) -> Option<Said> {
        let status = response.status();
        let revision =
            response.headers().get("x-tidegate-revision").and_then(|value| value.to_str().ok()?.parse().ok());
        let mut said = Said { status: status.as_u16(), revision, reason: None };
        if status != StatusCode::OK {
            let body = response.into_body().collect().await.ok()?.to_bytes();
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
            said.reason = value["error"]["reason"].as_str().map(str::to_owned);
        }
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_rises_stays_falls_and_ends() {
        let curve = Curve::default();
        let rate = |seconds: f64| curve.rate(Duration::from_secs_f64(seconds));
        assert_eq!(rate(0.0), Some(1.0));
        assert_eq!(rate(4.5), Some(9.0));
        assert_eq!((rate(9.0), rate(14.9)), (Some(18.0), Some(18.0)));
        assert_eq!(rate(19.5), Some(9.0));
        assert_eq!(rate(24.0), None);
    }
}
