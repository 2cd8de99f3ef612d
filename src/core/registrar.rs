//! The sidecar's side of the recovery protocol, without I/O: when to register, when to report, and what an answer
//! means (recovery protocol H9, H15 and H23; design sections 3.3 and 4).
//!
//! The driver calls [`Registrar::poll`] at every sample, sends what it returns, and hands the outcome to
//! [`Registrar::answer`]; at most one call is under way. While [`Registrar::eager`] it polls again at once. Time is the caller's monotonic clock in milliseconds, chance
//! comes in as text: the same inputs give the same calls.

use super::id::Incarnation;
use super::op::{Figure, Register, Registered, Registration, Report, Reported};

/// For how long nobody must hold the worker's id before a process that lost it comes back, in milliseconds.
pub const VACANCY_MS: u64 = 5_000;
/// Least time between two registrations that are not forced by the clock, in milliseconds: a store that forgets at
/// once must not be asked in a tight loop.
const REGISTER_PAUSE_MS: u64 = 250;
/// Longest time between two reports, whatever the worker's time to live (H23), in milliseconds.
const LONGEST_PAUSE_MS: u64 = 2_000;

/// What is known of the worker at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// What it is, with its limits and flags.
    pub registration: Registration,
    /// Capacity and signals; a signal that is not known now is left out.
    pub figures: Vec<Figure>,
    /// A request would be taken: ends a skip.
    pub room: bool,
}

/// What is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Makes the worker known.
    Register(Register),
    /// Load and a sign of life.
    Report(Report),
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Call::Register`].
    Registered(Registered),
    /// To [`Call::Report`].
    Reported(Reported),
    /// An unknown outcome, an error, or it was never sent.
    Failed,
}

/// Where the process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Not known to Redis, or not any more: it registers.
    Unknown,
    /// Known: its incarnation is the one in force.
    Held,
    /// Another process has the worker's id. It goes on asking.
    Lost,
}

/// The state machine. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Registrar {
    pause_ms: u64,
    nonce: String,
    incarnation: Option<Incarnation>,
    standing: Standing,
    /// Since when nobody has held the id, as far as the answers tell.
    vacant_since: Option<u64>,
    /// Lost for good: the next registration is a new process's, with a new nonce.
    renew: bool,
    known: bool,
    yields: bool,
    number: u64,
    /// Sent as soon as possible, without waiting for a change or the clock.
    soon: bool,
    sent_at: Option<u64>,
    registered_at: Option<u64>,
    /// The last call had no answer, or one that asks for a repetition at the next sample.
    unanswered: bool,
    /// The last registration found a state that contradicted itself.
    again: bool,
    in_flight: Option<Sample>,
    /// What Redis has, as far as we know.
    told: Option<Sample>,
}

impl Registrar {
    /// A process that has not said a word. `nonce` is 8 hex digits; `worker_ttl_ms` is 5,000 or more.
    #[must_use]
    pub fn new(nonce: &str, worker_ttl_ms: u64) -> Self {
        Self {
            pause_ms: (worker_ttl_ms / 3).min(LONGEST_PAUSE_MS),
            nonce: nonce.to_owned(),
            incarnation: None,
            standing: Standing::Unknown,
            vacant_since: None,
            renew: false,
            known: false,
            yields: false,
            number: 0,
            soon: true,
            sent_at: None,
            registered_at: None,
            unanswered: false,
            again: false,
            in_flight: None,
            told: None,
        }
    }

    /// Where the process stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Its incarnation: requests that name another one are not for this process (H16). None before the first
    /// registration, and while it comes back after it was lost.
    #[must_use]
    pub fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref()
    }

    /// A call is under way.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The next call must not wait for the next sample. After a failure there is no such hurry.
    #[must_use]
    pub fn eager(&self) -> bool {
        self.soon && self.in_flight.is_none()
    }

    /// The next poll sends, changed or not.
    pub fn hurry(&mut self) {
        self.soon = true;
    }

    /// Longest time between two reports, in milliseconds.
    #[must_use]
    pub fn pause_ms(&self) -> u64 {
        self.pause_ms
    }

    /// What is to be sent now, if anything. `chance` is random text (8 hex digits): the nonce of a new life, or of the
    /// epoch that the call may have to start.
    pub fn poll(&mut self, now: u64, sample: &Sample, chance: &str) -> Option<Call> {
        if self.in_flight.is_some() || !self.is_due(now, sample) {
            return None;
        }
        if self.renew {
            self.renew = false;
            chance.clone_into(&mut self.nonce);
        }
        self.soon = false;
        self.unanswered = true;
        self.sent_at = Some(now);
        self.number += 1;
        self.in_flight = Some(sample.clone());
        match (self.standing, &self.incarnation) {
            (Standing::Held | Standing::Lost, Some(incarnation)) => Some(Call::Report(Report {
                registration: sample.registration.clone(),
                incarnation: incarnation.clone(),
                number: self.number,
                room: sample.room,
                figures: sample.figures.clone(),
                nonce: chance.to_owned(),
            })),
            _ => {
                self.registered_at = Some(now);
                Some(Call::Register(Register {
                    registration: sample.registration.clone(),
                    nonce: self.nonce.clone(),
                    incarnation: self.incarnation.clone(),
                    known: self.known,
                    yields: self.yields,
                    number: self.number,
                    figures: sample.figures.clone(),
                }))
            }
        }
    }

    fn is_due(&self, now: u64, sample: &Sample) -> bool {
        let Some(sent_at) = self.sent_at else { return true };
        let silent = now.saturating_sub(sent_at) >= self.pause_ms;
        let changed = self.standing == Standing::Held && self.told.as_ref().is_none_or(|told| moved(told, sample));
        silent || self.soon || self.unanswered || changed
    }

    /// Takes the outcome of the call that is under way.
    pub fn answer(&mut self, now: u64, answer: &Answer) {
        let Some(sample) = self.in_flight.take() else { return };
        match answer {
            Answer::Failed => return,
            Answer::Registered(reply) => self.registered(now, reply, sample),
            Answer::Reported(reply) => self.reported(now, reply, sample),
        }
        self.known = true;
    }

    fn registered(&mut self, now: u64, reply: &Registered, sample: Sample) {
        self.unanswered = false;
        let again = std::mem::take(&mut self.again);
        match reply {
            Registered::Ok { incarnation } => {
                self.incarnation = Some(incarnation.clone());
                self.standing = Standing::Held;
                self.yields = false;
                self.vacant_since = None;
                self.told = Some(sample);
                self.soon = true;
            }
            Registered::Superseded => self.lose(None),
            Registered::Vacant => self.lose(Some(now)),
            Registered::Again => {
                self.soon = !again;
                self.again = true;
                self.unanswered = true;
            }
            Registered::Invalid { .. } => {}
        }
    }

    fn reported(&mut self, now: u64, reply: &Reported, sample: Sample) {
        self.unanswered = false;
        match (reply, self.standing) {
            (Reported::Ok { .. }, _) => {
                self.standing = Standing::Held;
                self.vacant_since = None;
                self.told = Some(sample);
            }
            // A later call of ours ran before this one. Said again, under a number that is higher still.
            (Reported::Ignored, _) => self.unanswered = true,
            (Reported::Superseded, _) => self.lose(None),
            (Reported::Register | Reported::Vacant, Standing::Lost) => {
                let since = *self.vacant_since.get_or_insert(now);
                if now.saturating_sub(since) >= VACANCY_MS {
                    self.incarnation = None;
                    self.standing = Standing::Unknown;
                    self.vacant_since = None;
                    self.renew = true;
                    self.soon = true;
                }
            }
            (Reported::Vacant, _) => self.lose(Some(now)),
            (Reported::Register, _) => {
                self.standing = Standing::Unknown;
                self.told = None;
                self.soon = self.registered_at.is_none_or(|at| now.saturating_sub(at) >= REGISTER_PAUSE_MS);
                self.unanswered = true;
            }
            (Reported::Invalid { .. }, _) => {}
        }
    }

    /// Another process has, or had, a larger incarnation. A process without one of its own just asks again later.
    fn lose(&mut self, vacant_since: Option<u64>) {
        if self.incarnation.is_some() {
            self.standing = Standing::Lost;
        }
        self.yields = true;
        self.vacant_since = vacant_since;
        self.told = None;
    }
}

/// A figure moved by more than 1 %, or something else than a figure changed.
fn moved(told: &Sample, now: &Sample) -> bool {
    told.registration != now.registration
        || told.room != now.room
        || now.figures.iter().any(|figure| {
            let before = told.figures.iter().find(|f| f.rank == figure.rank && f.kind == figure.kind);
            before.is_none_or(|f| f.value.abs_diff(figure.value).saturating_mul(100) > f.value)
        })
}

#[cfg(test)]
#[path = "registrar/tests.rs"]
mod tests;
