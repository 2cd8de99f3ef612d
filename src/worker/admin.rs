//! `POST /load` and `POST /limits`: for publishers beside the engine and for operators (design section 6).

mod fields;

use std::sync::Arc;

use http_body_util::BodyDataStream;
use hyper::body::{Body, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};

use crate::config::secret::Secret;
use crate::core::op::Figure;
use crate::core::refusal::Fault;
use crate::http::body::{Buffers, read};
use crate::http::dialect::json_answer;
use crate::http::serve::Peer;

use super::answer::fault;
use super::relay::AnswerBody;
use super::report::{NotTold, Push};
use super::state::State;
use fields::{Limits, Load, Wrong};

/// Largest body.
const MOST: usize = 64 * 1024;
/// All of them together.
const BUFFERS: usize = 4 * 1024 * 1024;

/// Serves both routes. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Admin {
    state: Arc<State>,
    pushes: mpsc::Sender<Push>,
    buffers: Buffers,
}

impl Admin {
    pub(super) fn new(state: Arc<State>, pushes: mpsc::Sender<Push>) -> Self {
        Self { state, pushes, buffers: Buffers::new(BUFFERS) }
    }

    /// `POST /load`: 204 when it is in Redis.
    pub(super) async fn load(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (parts, bytes) = match self.open(request).await {
            Ok(open) => open,
            Err(answer) => return *answer,
        };
        let figures = match Load::parse(&bytes).and_then(|load| load.figures(&self.state.settings)) {
            Ok(figures) => figures,
            Err(wrong) => return wrong_answer(&wrong, &parts),
        };
        self.state.load.pushed(&figures);
        let signals = figures.into_iter().filter(|figure| figure.kind.is_signal()).collect();
        self.tell(signals, &parts).await
    }

    /// `POST /limits`: in force at the gate at once, 204 when Redis knows them.
    pub(super) async fn limits(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let (parts, bytes) = match self.open(request).await {
            Ok(open) => open,
            Err(answer) => return *answer,
        };
        match Limits::parse(&bytes).and_then(|limits| limits.onto(self.state.gate.limits())) {
            Ok(limits) => {
                tracing::info!(slots = ?limits.slots, queue = limits.queue, "limits changed");
                self.state.gate.set(limits);
            }
            Err(wrong) => return wrong_answer(&wrong, &parts),
        }
        self.tell(Vec::new(), &parts).await
    }

    /// Who may, and what they say.
    async fn open(&self, request: Request<Incoming>) -> Result<(Parts, bytes::Bytes), Box<Response<AnswerBody>>> {
        let (parts, body) = request.into_parts();
        if let Err(why) = allowed(&parts, self.state.settings.admin_token.as_ref().map(Secret::reveal)) {
            return Err(Box::new(fault(why, None, &parts)));
        }
        let length = body.size_hint().exact();
        match read(BodyDataStream::new(body), length, MOST, &self.buffers).await {
            Ok(whole) => Ok((parts, whole.bytes)),
            Err(why) => Err(Box::new(fault(why, None, &parts))),
        }
    }

    async fn tell(&self, figures: Vec<Figure>, parts: &Parts) -> Response<AnswerBody> {
        let (done, told) = oneshot::channel();
        // A reporter that has ended is one that is shutting down.
        let sent = self.pushes.send(Push { figures, done }).await.is_ok();
        let outcome = if sent { told.await.unwrap_or(Err(NotTold::Store)) } else { Err(NotTold::Store) };
        match outcome {
            Ok(()) => {
                let mut answer = Response::new(AnswerBody::from(String::new()));
                *answer.status_mut() = StatusCode::NO_CONTENT;
                answer
            }
            Err(NotTold::Store) => fault(Fault::Store, None, parts),
            Err(NotTold::NotRegistered) => {
                fault(Fault::Store, Some("The worker is not registered: its engine has not answered yet"), parts)
            }
            Err(NotTold::Superseded) => {
                let detail = "Another process has this worker's id: its reports count, not these";
                fault(Fault::Conflict, Some(detail), parts)
            }
            Err(NotTold::Invalid { field, value }) => {
                wrong_answer(&Wrong::Field { field, what: format!("{value:?} was refused by the store") }, parts)
            }
        }
    }
}

fn wrong_answer(wrong: &Wrong, parts: &Parts) -> Response<AnswerBody> {
    let why = match wrong {
        Wrong::Json(_) => Fault::Body,
        Wrong::Field { .. } => Fault::Field,
    };
    fault(why, Some(&wrong.to_string()), parts)
}

/// Loopback peers, and those with the admin token.
fn allowed(parts: &Parts, token: Option<&str>) -> Result<(), Fault> {
    let local = parts.extensions.get::<Peer>().is_some_and(|peer| peer.address.ip().to_canonical().is_loopback());
    if local {
        return Ok(());
    }
    let Some(token) = token else { return Err(Fault::NotLocal) };
    let given = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    match given.and_then(|value| value.split_once(' ')) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case("bearer") && same(given.trim(), token) => Ok(()),
        _ => Err(Fault::Token),
    }
}

/// Compares in a time that does not tell how much of it is right.
fn same(given: &str, token: &str) -> bool {
    given.len() == token.len() && given.bytes().zip(token.bytes()).fold(0, |diff, (a, b)| diff | (a ^ b)) == 0
}

/// An answer with a JSON body.
pub(super) fn json(status: u16, body: &serde_json::Value) -> Response<AnswerBody> {
    json_answer(status, body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str, authorization: Option<&str>) -> Parts {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer { address: address.parse().unwrap(), beyond_cap: false });
        if let Some(value) = authorization {
            request.headers_mut().insert(AUTHORIZATION, value.parse().unwrap());
        }
        request.into_parts().0
    }

    #[test]
    fn only_local_callers_and_those_with_the_token() {
        for local in ["127.0.0.1:5", "127.9.9.9:5", "[::1]:5", "[::ffff:127.0.0.1]:5"] {
            assert_eq!(allowed(&from(local, None), Some("t")), Ok(()), "{local}");
        }
        for far in ["10.0.0.1:5", "[::ffff:10.0.0.1]:5", "[fe80::1]:5"] {
            assert_eq!(allowed(&from(far, Some("Bearer t")), None), Err(Fault::NotLocal));
            assert_eq!(allowed(&from(far, Some("bearer t")), Some("t")), Ok(()));
            for wrong in [None, Some("t"), Some("Bearer"), Some("Bearer "), Some("Bearer tt"), Some("Basic t")] {
                assert_eq!(allowed(&from(far, wrong), Some("t")), Err(Fault::Token), "{wrong:?}");
            }
        }
    }
}
