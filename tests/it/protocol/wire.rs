//! Connections and servers: what becomes of a call.

use tidegate::core::op::{Leave, Snapshot, Sweep};
use tidegate::core::{op, registrar, session};

use super::trace;
use super::world::{Event, Owner, World};

/// A call gives up after so long.
const BUDGET_MS: u64 = 250;

/// An ordered connection of a process to the server it believes in.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) owner: Owner,
    pub(super) server: usize,
    pub(super) alive: bool,
    /// It was made for one call, beside the committer's.
    pub(super) pooled: bool,
    last_out: u64,
    last_back: u64,
}

/// What can be asked of a server.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Session(u64, session::Call),
    Sweep(Sweep),
    Snapshot,
    Registrar(registrar::Call),
    Leave(Leave),
}

/// What came of it.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Session(session::Reply),
    Swept(op::Swept),
    Page(Box<op::Page>),
    Registrar(registrar::Answer),
    Left,
    /// An error: not applied.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// A call under way.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) connection: usize,
    pub(super) owner: Owner,
    pub(super) command: Command,
    pub(super) done: bool,
}

impl World<'_> {
    fn server_for(&self, owner: Owner) -> usize {
        match self.trouble.get(&owner).and_then(|t| t.split) {
            Some((until, server)) if self.now < until => server,
            _ => self.current,
        }
    }

    pub(super) fn connect(&mut self, owner: Owner, pooled: bool) -> usize {
        let server = self.server_for(owner);
        let now = self.now;
        self.connections.push(Connection { owner, server, alive: true, pooled, last_out: now, last_back: now });
        self.connections.len() - 1
    }

    /// Sends a call on a connection.
    pub(super) fn send(&mut self, connection: usize, command: Command) {
        let owner = self.connections[connection].owner;
        self.sent.push(Sent { connection, owner, command, done: false });
        let i = self.sent.len() - 1;
        let trouble = self.trouble.get(&owner).copied().unwrap_or_default();
        let late = if self.now < trouble.stalled { trouble.late } else { 0 };
        let delay = self.draw(1, 4) + late;
        let link = &mut self.connections[connection];
        let at = (self.now + delay).max(link.last_out);
        link.last_out = at;
        self.after(BUDGET_MS, Some(owner), Event::Timeout(i));
        self.at(at, None, Event::Arrive(i));
    }

    /// A call reaches its server.
    pub(super) fn arrive(&mut self, i: usize) {
        let link = self.sent[i].connection;
        let server = self.connections[link].server;
        if self.servers[server].dead || !self.servers[server].up {
            self.connections[link].alive = false;
            // Refused at once, or lost without a word.
            if self.draw(0, 1) == 0 && !self.sent[i].done {
                let owner = self.sent[i].owner;
                self.after(1, Some(owner), Event::Outcome(i, Answer::Failed));
            }
            return;
        }
        if self.now < self.servers[server].frozen_until {
            self.servers[server].queue.push(i);
            return;
        }
        let owner = self.sent[i].owner;
        let trouble = self.trouble.get(&owner).copied().unwrap_or_default();
        if self.now < trouble.moved {
            return self.deliver(i, 1, Answer::Failed);
        }
        let mut answer = self.run(server, i);
        if self.now < trouble.repeated {
            answer = self.run(server, i);
        }
        if self.now >= trouble.unanswered {
            let delay = self.draw(1, 4);
            self.deliver(i, delay, answer);
        }
    }

    /// Sends an answer back, in order.
    fn deliver(&mut self, i: usize, delay: u64, answer: Answer) {
        let owner = self.sent[i].owner;
        let link = &mut self.connections[self.sent[i].connection];
        let at = (self.now + delay).max(link.last_back);
        link.last_back = at;
        self.at(at, Some(owner), Event::Outcome(i, answer));
    }

    /// A caller learns what came of its call.
    pub(super) fn outcome(&mut self, i: usize, answer: Answer) {
        let sent = &self.sent[i];
        let link = &self.connections[sent.connection];
        // A broken connection carries no answers.
        let lost = !link.alive && !matches!(answer, Answer::Unknown | Answer::Failed);
        if sent.done || lost {
            return;
        }
        self.sent[i].done = true;
        if matches!(answer, Answer::Unknown) {
            let link = self.sent[i].connection;
            self.connections[link].alive = false;
        }
        let Sent { owner, command, .. } = self.sent[i].clone();
        match owner {
            Owner::Frontend(f) => self.frontend_answer(f, command, answer),
            Owner::Sidecar(p) => self.sidecar_answer(p, answer),
        }
    }

    /// Runs a call on a server, and checks what it did.
    fn run(&mut self, server: usize, i: usize) -> Answer {
        let now = self.server_time(server);
        let command = self.sent[i].command.clone();
        let before = self.before(server);
        let state = &mut self.servers[server].state;
        let answer = match &command {
            Command::Session(_, session::Call::Hello(op)) => {
                state.call(op, now, |r| r).map(|r| Answer::Session(session::Reply::Hello(r)))
            }
            Command::Session(_, session::Call::Decide(op)) => {
                state.call(op, now, |r| r).map(|r| Answer::Session(session::Reply::Decide(r)))
            }
            Command::Session(_, session::Call::Heartbeat(op)) => {
                state.call(op, now, super::verdict::sorted).map(|r| Answer::Session(session::Reply::Heartbeat(r)))
            }
            Command::Session(_, session::Call::Reconcile(op)) => {
                state.call(op, now, |r| r).map(|r| Answer::Session(session::Reply::Reconcile(r)))
            }
            Command::Sweep(op) => state.call(op, now, |r| r).map(Answer::Swept),
            Command::Snapshot => {
                let op = Snapshot { cursor: "0".into() };
                state.call(&op, now, super::verdict::sorted_page).map(|page| Answer::Page(Box::new(page)))
            }
            Command::Registrar(registrar::Call::Register(op)) => {
                state.call(op, now, |r| r).map(|r| Answer::Registrar(registrar::Answer::Registered(r)))
            }
            Command::Registrar(registrar::Call::Report(op)) => {
                state.call(op, now, |r| r).map(|r| Answer::Registrar(registrar::Answer::Reported(r)))
            }
            Command::Leave(op) => state.call(op, now, |r| r).map(|()| Answer::Left),
        };
        let answer = answer.unwrap_or_else(|difference| {
            self.violation = Some(difference);
            Answer::Unknown
        });
        self.trace_call(server, &command, &answer);
        if self.violation.is_none() && !matches!(command, Command::Snapshot) {
            self.inspect(server, &command, &answer, &before);
        }
        answer
    }

    fn trace_call(&mut self, server: usize, command: &Command, answer: &Answer) {
        if !self.tracing || matches!(command, Command::Snapshot) {
            return;
        }
        let total = self.stat(server, "inflight_total").unwrap_or_default();
        let told = format!("[{server}] {} -> {} | {total}", trace::command(command), trace::answer(answer));
        self.say(told);
    }
}
