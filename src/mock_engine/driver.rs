//! Runs the engine model against the clock and hands its events to the requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::model::{Engine, Event, Figures, Job, Limits, Micros, RequestId, Unfit};

/// The engine of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Driver(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
    began: Instant,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    requests: HashMap<RequestId, mpsc::UnboundedSender<Event>>,
}

impl Shared {
    fn now(&self) -> Micros {
        Micros::try_from(self.began.elapsed().as_micros()).unwrap_or(Micros::MAX)
    }

    /// The lock is held for a few microseconds and never across an await; nothing panics under it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Brings the model up to `now` and tells the requests.
    fn advance(&mut self, now: Micros) {
        let mut events = Vec::new();
        self.engine.advance(now, &mut events);
        for event in events {
            match event {
                Event::Token(id) => {
                    if let Some(request) = self.requests.get(&id) {
                        let _ = request.send(event);
                    }
                }
                Event::Finished(id, _) => {
                    if let Some(request) = self.requests.remove(&id) {
                        let _ = request.send(event);
                    }
                }
            }
        }
    }
}

impl Driver {
    pub(super) fn new(engine: Engine) -> Self {
        let state = Mutex::new(State { engine, requests: HashMap::new() });
        Self(Arc::new(Shared { state, wake: Notify::new(), began: Instant::now() }))
    }

    /// Takes a request; its events come out of the [`Generation`].
    pub(super) fn submit(&self, job: &Job) -> Result<Generation, Unfit> {
        let (sender, events) = mpsc::unbounded_channel();
        let id = {
            let now = self.0.now();
            let mut state = self.0.lock();
            state.advance(now);
            let id = state.engine.submit(now, job)?;
            state.requests.insert(id, sender);
            id
        };
        self.0.wake.notify_one();
        Ok(Generation { id, events, shared: self.0.clone() })
    }

    /// What each rank shows of itself.
    pub(super) fn figures(&self) -> (Limits, Vec<Figures>) {
        let state = self.0.lock();
        (state.engine.limits().clone(), state.engine.figures().collect())
    }

    /// Lets virtual time follow the clock. Does not return.
    pub(super) async fn run(&self) {
        loop {
            let next = {
                let now = self.0.now();
                let mut state = self.0.lock();
                state.advance(now);
                state.engine.next_at()
            };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(self.0.began + Duration::from_micros(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.0.wake.notified() => {}
            }
        }
    }
}

/// A request in the engine: taken out when dropped before its end.
#[derive(Debug)]
pub(super) struct Generation {
    id: RequestId,
    events: mpsc::UnboundedReceiver<Event>,
    shared: Arc<Shared>,
}

impl Generation {
    /// What happened next; none after the end.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        if state.requests.remove(&self.id).is_some() {
            state.advance(now);
            state.engine.cancel(now, self.id);
            drop(state);
            self.shared.wake.notify_one();
        }
    }
}
