//! Sidecars: the real registrar, with a simulated engine.

use std::collections::BTreeMap;

use tidegate::core::id::{Incarnation, LeaseId, WorkerId};
use tidegate::core::op::{Figure, FigureKind, Leave, Registration};
use tidegate::core::registrar::{self, Registrar, Sample};

use super::wire::{Answer, Command};
use super::world::{Event, Owner, World};

/// How often a sidecar samples.
const SAMPLE_MS: u64 = 500;

/// A sidecar's process.
pub(super) struct Sidecar {
    pub(super) worker: WorkerId,
    /// Which worker it is, as a number.
    pub(super) index: usize,
    pub(super) url: String,
    pub(super) cap: u64,
    /// Its load is above the threshold.
    pub(super) loaded: bool,
    pub(super) dead: bool,
    pub(super) registrar: Registrar,
    pub(super) running: BTreeMap<LeaseId, (usize, Incarnation)>,
    connection: Option<usize>,
}

impl Sidecar {
    fn sample(&self) -> Sample {
        let figure = |kind, value| Figure { rank: 0, kind, value };
        Sample {
            registration: Registration {
                worker: self.worker.clone(),
                url: self.url.clone(),
                data_parallel_start_rank: 0,
                data_parallel_size: 1,
                engine_request_limit: Some(self.cap),
                request_queue_limit: 0,
                kv_block_size: 16,
                draining: false,
                engine_down: false,
                worker_ttl_ms: 5_000,
            },
            figures: vec![
                figure(FigureKind::KvTotalBlocks, 100),
                figure(FigureKind::ActiveDecodeBlocks, if self.loaded { 90 } else { 10 }),
            ],
            room: (self.running.len() as u64) < self.cap,
        }
    }
}

impl World<'_> {
    pub(super) fn start_sidecar(&mut self, index: usize, url: String, cap: u64) -> usize {
        let nonce = self.word();
        self.sidecars.push(Sidecar {
            worker: WorkerId::parse(&format!("w{index}")).expect("a name"),
            index,
            url,
            cap,
            loaded: false,
            dead: false,
            registrar: Registrar::new(&nonce, 5_000),
            running: BTreeMap::new(),
            connection: None,
        });
        let p = self.sidecars.len() - 1;
        let delay = self.draw(1, 300);
        self.after(delay, Some(Owner::Sidecar(p)), Event::Wake(Owner::Sidecar(p)));
        p
    }

    /// A sample is due.
    pub(super) fn sample(&mut self, p: usize) {
        if self.sidecars[p].dead {
            return;
        }
        self.poll(p);
        self.after(SAMPLE_MS, Some(Owner::Sidecar(p)), Event::Wake(Owner::Sidecar(p)));
    }

    fn poll(&mut self, p: usize) {
        let chance = self.word();
        let now = self.now;
        let sidecar = &mut self.sidecars[p];
        let sample = sidecar.sample();
        let Some(call) = sidecar.registrar.poll(now, &sample, &chance) else { return };
        let alive = sidecar.connection.filter(|c| self.connections[*c].alive);
        let connection = match alive {
            Some(connection) => connection,
            None => self.connect(Owner::Sidecar(p), false),
        };
        self.sidecars[p].connection = Some(connection);
        self.send(connection, Command::Registrar(call));
    }

    pub(super) fn sidecar_answer(&mut self, p: usize, answer: Answer) {
        if self.sidecars[p].dead {
            return;
        }
        let answer = match answer {
            Answer::Registrar(answer) => answer,
            Answer::Left => return,
            _ => registrar::Answer::Failed,
        };
        let now = self.now;
        let registrar = &mut self.sidecars[p].registrar;
        registrar.answer(now, &answer);
        if registrar.eager() {
            self.poll(p);
        }
    }

    /// A stream has been sent whole.
    pub(super) fn finish(&mut self, p: usize, id: LeaseId) {
        if let Some((f, _)) = self.sidecars[p].running.remove(&id) {
            self.after(1, Some(Owner::Frontend(f)), Event::End(f, id, None));
        }
    }

    pub(super) fn crash_sidecar(&mut self, p: usize) {
        let sidecar = &mut self.sidecars[p];
        sidecar.dead = true;
        let running = std::mem::take(&mut sidecar.running);
        if let Some(connection) = sidecar.connection {
            self.connections[connection].alive = false;
        }
        for (id, (f, _)) in running {
            self.after(2, Some(Owner::Frontend(f)), Event::End(f, id, None));
        }
    }

    pub(super) fn say_goodbye(&mut self, p: usize) {
        if let Some(incarnation) = self.sidecars[p].registrar.incarnation().cloned() {
            let worker = self.sidecars[p].worker.clone();
            let connection = self.connect(Owner::Sidecar(p), true);
            self.send(connection, Command::Leave(Leave { worker, incarnation }));
        }
    }
}
