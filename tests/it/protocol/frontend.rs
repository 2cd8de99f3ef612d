//! Frontends: the real session, with simulated requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::core::id::{FrontendId, Incarnation, LeaseId};
use tidegate::core::op::{Admission, Page, Sweep, Swept};
use tidegate::core::session::{
    Chance, Effect, Failure, Fleet, Outcome, Place, Reply, Session, Settings, Standing, Waiter,
};

use super::wire::{Answer, Command};
use super::world::{Dice, Event, Owner, Refused, World};

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    id: LeaseId,
    /// How long its stream takes, in milliseconds.
    last: u64,
}

impl Waiter for Request {
    fn gone(&self) -> bool {
        false
    }

    fn admission(&self) -> Admission {
        Admission { id: self.id.clone(), tokens: 40, pin: None, exclude: Vec::new() }
    }
}

/// A stream that a frontend holds.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) place: Arc<Place>,
    last: u64,
    /// The process that serves it.
    pub(super) process: Option<usize>,
}

/// A frontend's process.
pub(super) struct Frontend {
    pub(super) session: Session<Request>,
    pub(super) dead: bool,
    pub(super) connection: Option<usize>,
    pub(super) streams: BTreeMap<LeaseId, Stream>,
    /// Fleet version of the last picture, and when it was asked for.
    picture: (u64, u64),
    fetching: bool,
    /// The next wake-up that is on its way.
    wake_at: u64,
    pub(super) admitted: u64,
    pub(super) refused: u64,
    pub(super) seen: u64,
}

/// The world's chance, in one frontend's name.
struct Of<'a>(&'a mut Dice, usize);

impl Chance for Of<'_> {
    fn frontend_id(&mut self) -> FrontendId {
        FrontendId::parse(&format!("F{}-{}", self.1, self.0.word())).expect("a name")
    }

    fn nonce(&mut self) -> String {
        self.0.word()
    }

    fn seed(&mut self) -> u32 {
        u32::try_from(self.0.draw(1, 2_147_483_646)).expect("31 bits")
    }

    fn jitter_ms(&mut self) -> u64 {
        self.0.draw(0, 50)
    }
}

impl World<'_> {
    pub(super) fn start_frontend(&mut self) {
        let f = self.frontends.len();
        let settings = Settings { static_max_age_ms: Some(10_000), patience_ms: 1_000 };
        let id = Of(&mut self.dice, f).frontend_id();
        self.frontends.push(Frontend {
            session: Session::new(settings, id),
            dead: false,
            connection: None,
            streams: BTreeMap::new(),
            picture: (0, 0),
            fetching: false,
            wake_at: u64::MAX,
            admitted: 0,
            refused: 0,
            seen: 0,
        });
        let delay = self.draw(1, 50);
        self.wake(f, self.now + delay);
    }

    /// Not later than this.
    fn wake(&mut self, f: usize, time: u64) {
        if time < self.frontends[f].wake_at {
            self.frontends[f].wake_at = time;
            self.at(time, Some(Owner::Frontend(f)), Event::Wake(Owner::Frontend(f)));
        }
    }

    /// A wake-up; one that another has overtaken does nothing.
    pub(super) fn woken(&mut self, f: usize) {
        if self.now >= self.frontends[f].wake_at {
            self.frontends[f].wake_at = u64::MAX;
            self.pump(f);
        }
    }

    /// Does what there is to do: as the committer's loop.
    pub(super) fn pump(&mut self, f: usize) {
        if self.frontends[f].dead {
            return;
        }
        let now = self.now;
        let mut effects = Vec::new();
        self.frontends[f].session.settle(now, &mut effects);
        self.apply(f, effects);
        loop {
            let mut chance = Of(&mut self.dice, f);
            let next = self.frontends[f].session.next(now, &mut chance).map(|(ticket, call)| (ticket, call.clone()));
            let Some((ticket, call)) = next else { break };
            let alive = self.frontends[f].connection.filter(|c| self.connections[*c].alive);
            let connection = match alive {
                Some(connection) => connection,
                None => self.connect(Owner::Frontend(f), false),
            };
            self.frontends[f].connection = Some(connection);
            self.send(connection, Command::Session(ticket, call));
        }
        self.fetch(f);
        let due = self.frontends[f].session.due(now).max(now + 1);
        self.wake(f, due);
    }

    /// A picture for static mode, when the fleet has changed, at most every second.
    fn fetch(&mut self, f: usize) {
        let frontend = &mut self.frontends[f];
        let Some(pulse) = frontend.session.pulse() else { return };
        let (version, asked) = frontend.picture;
        if frontend.fetching || pulse.fleet_version == version || self.now < asked + 1_000 {
            return;
        }
        frontend.fetching = true;
        frontend.picture.1 = self.now;
        let connection = self.connect(Owner::Frontend(f), true);
        self.send(connection, Command::Snapshot);
    }

    fn apply(&mut self, f: usize, effects: Vec<Effect<Request>>) {
        for effect in effects {
            match effect {
                Effect::Admit { waiter, place, .. } => self.start_stream(f, &waiter, place),
                Effect::Refuse { .. } => self.frontends[f].refused += 1,
                Effect::Sweep { workers, frontends } => {
                    let nonce = self.word();
                    self.send_sweep(f, Sweep { workers, frontends, nonce });
                }
                Effect::Close => {
                    if let Some(connection) = self.frontends[f].connection.take() {
                        self.connections[connection].alive = false;
                    }
                }
            }
        }
    }

    fn send_sweep(&mut self, f: usize, sweep: Sweep) {
        let connection = self.connect(Owner::Frontend(f), true);
        self.send(connection, Command::Sweep(sweep));
    }

    pub(super) fn request(&mut self, f: usize, id: LeaseId, last: u64) {
        if self.frontends[f].dead || !self.loading {
            return;
        }
        self.frontends[f].session.ask(self.now, Request { id, last });
        self.pump(f);
    }

    fn start_stream(&mut self, f: usize, request: &Request, place: Arc<Place>) {
        let process = self.sidecars.iter().rposition(|p| *p.url == *place.url);
        let stream = Stream { place, last: request.last, process };
        self.frontends[f].admitted += 1;
        self.frontends[f].streams.insert(request.id.clone(), stream);
        let delay = self.draw(1, 3);
        let owner = process.map(Owner::Sidecar);
        self.after(delay, owner, Event::Reach(f, request.id.clone()));
    }

    /// A request reaches its sidecar.
    pub(super) fn reach(&mut self, f: usize, id: LeaseId) {
        let Some(stream) = self.frontends[f].streams.get(&id).cloned() else { return };
        if self.frontends[f].dead {
            return;
        }
        let refused = match stream.process {
            None => Some(Refused::Elsewhere),
            Some(p) => self.sidecars[p].refuses(&stream.place.incarnation),
        };
        match (refused, stream.process) {
            (None, Some(p)) => {
                self.sidecars[p].running.insert(id.clone(), (f, stream.place.incarnation.clone()));
                self.after(stream.last, Some(Owner::Sidecar(p)), Event::Finish(p, id));
            }
            _ => self.after(2, Some(Owner::Frontend(f)), Event::End(f, id, refused)),
        }
    }

    /// A frontend sees the end of a request.
    pub(super) fn end(&mut self, f: usize, id: LeaseId, refused: Option<Refused>) {
        let now_dead = self.frontends[f].dead;
        let Some(stream) = self.frontends[f].streams.remove(&id) else { return };
        if let Some(p) = stream.process {
            self.sidecars[p].running.remove(&id);
        }
        if now_dead {
            return;
        }
        let session = &mut self.frontends[f].session;
        if refused == Some(Refused::Capacity) {
            session.skip(stream.place.worker.clone(), stream.place.incarnation.clone());
        }
        session.end(&id);
        self.pump(f);
    }

    /// An answer to a frontend's call.
    pub(super) fn frontend_answer(&mut self, f: usize, command: Command, answer: Answer) {
        if self.frontends[f].dead {
            return;
        }
        match (command, answer) {
            (Command::Session(ticket, _), answer) => {
                let outcome = match answer {
                    Answer::Session(reply) => {
                        self.watch_revision(f, &reply);
                        Outcome::Reply(reply)
                    }
                    Answer::Failed => Outcome::Failed(Failure::Passing),
                    _ => Outcome::Unknown,
                };
                let mut chance = Of(&mut self.dice, f);
                let mut effects = Vec::new();
                let now = self.now;
                self.frontends[f].session.answer(now, ticket, outcome, &mut chance, &mut effects);
                self.apply(f, effects);
            }
            (Command::Sweep(_), Answer::Swept(Swept::Done { more })) if !more.is_empty() => {
                let nonce = self.word();
                self.send_sweep(f, Sweep { workers: Vec::new(), frontends: more, nonce });
            }
            (Command::Snapshot, answer) => {
                self.frontends[f].fetching = false;
                if let Answer::Page(page) = answer {
                    self.learn(f, &page);
                }
            }
            _ => {}
        }
        self.pump(f);
    }

    fn learn(&mut self, f: usize, page: &Page) {
        let number = |name: &str| page.stats.iter().find(|(n, _)| n == name).and_then(|(_, v)| v.parse().ok());
        let standing = |row: &tidegate::core::op::WorkerRow| Standing {
            place: Arc::new(Place {
                worker: row.worker.clone(),
                incarnation: row.incarnation.clone(),
                url: row.url.as_str().into(),
            }),
            cap: row.cap,
            closed: row.closed.clone(),
            inflight: row.inflight,
        };
        let most = page.applied.iter().find(|(n, _)| n == "max_inflight").and_then(|(_, v)| v.parse().ok());
        let fleet = Fleet { workers: page.workers.iter().map(standing).collect(), max_inflight: most, direct: false };
        let now = self.now;
        let frontend = &mut self.frontends[f];
        frontend.picture.0 = number("fleet_version").unwrap_or(0);
        frontend.session.learn(now, Arc::new(fleet));
    }

    /// Revisions never fall for an observer.
    fn watch_revision(&mut self, f: usize, reply: &Reply) {
        use tidegate::core::op::Fenced::Done;
        let revision = match reply {
            Reply::Decide(Done(decided)) => decided.revision,
            Reply::Heartbeat(Done(pulse)) => pulse.revision,
            _ => return,
        };
        let seen = self.frontends[f].seen;
        if revision < seen {
            self.violation = Some(format!("F{f} saw revision {seen}, and now {revision}"));
        }
        self.frontends[f].seen = seen.max(revision);
    }

    pub(super) fn crash_frontend(&mut self, f: usize) {
        self.frontends[f].dead = true;
        if let Some(connection) = self.frontends[f].connection {
            self.connections[connection].alive = false;
        }
        let ids: Vec<LeaseId> = self.frontends[f].streams.keys().cloned().collect();
        for id in ids {
            self.after(3, None, Event::End(f, id, None));
        }
        if self.frontends.iter().all(|f| f.dead) {
            self.start_frontend();
        }
    }
}

impl super::sidecar::Sidecar {
    /// Why it does not take a request for this incarnation.
    fn refuses(&self, incarnation: &Incarnation) -> Option<Refused> {
        if self.dead || self.registrar.incarnation() != Some(incarnation) {
            return Some(Refused::Elsewhere);
        }
        (self.running.len() as u64 >= self.cap).then_some(Refused::Capacity)
    }
}
