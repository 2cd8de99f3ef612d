//! What goes wrong, done.

use tidegate::core::fleet::shard::Held;

use super::case::{Fault, Who};
use super::world::{Event, Later, Owner, Server, World};

impl World<'_> {
    /// The process that a fault names: the last one started in its place.
    fn owner(&self, who: Who) -> Owner {
        match who {
            Who::Frontend(f) => Owner::Frontend(f % self.frontends.len()),
            Who::Sidecar(w) => Owner::Sidecar(self.sidecar(w)),
        }
    }

    fn sidecar(&self, w: usize) -> usize {
        let url = format!("http://a{}", w % self.case.workers);
        self.sidecars.iter().rposition(|p| p.url == url).expect("every worker has had a process")
    }

    fn touch(&mut self, owner: Owner, last: u64) {
        let until = self.now + last;
        let trouble = self.trouble.entry(owner).or_default();
        trouble.touched = trouble.touched.max(until);
    }

    fn break_all(&mut self, but: &[Owner]) {
        for connection in &mut self.connections {
            if !but.contains(&connection.owner) {
                connection.alive = false;
            }
        }
    }

    pub(super) fn fault(&mut self, fault: &Fault) {
        let now = self.now;
        match fault {
            Fault::Flush => self.wipe(),
            Fault::Down(last) => {
                self.servers[self.current].up = false;
                self.break_all(&[]);
                self.after(*last, None, Event::Later(Later::Up(self.current)));
            }
            Fault::Restart(last) => {
                self.fault(&Fault::Down(*last));
                self.wipe();
            }
            Fault::Freeze(last) => {
                self.servers[self.current].frozen_until = now + last;
                self.after(*last, None, Event::Later(Later::Thaw(self.current)));
            }
            Fault::Failover { lag, away, jump, split } => {
                let server = &self.servers[self.current];
                self.replicas.push((server.state.copy(), server.tampered.clone()));
                let split = split.iter().map(|who| self.owner(*who)).collect();
                let state = self.replicas.len() - 1;
                let later = Later::Promote { state, away: *away, jump: *jump, split };
                self.after(*lag, None, Event::Later(later));
            }
            Fault::Jump(by) => {
                self.servers[self.current].offset += by;
                self.servers[self.current].revision = 0;
            }
            Fault::Stall { who, last, late } => {
                let owner = self.owner(*who);
                let trouble = self.trouble.entry(owner).or_default();
                (trouble.stalled, trouble.late) = (now + last, *late);
                self.touch(owner, last + late);
            }
            Fault::Moved { who, last } => self.bother(*who, *last, |trouble, until| trouble.moved = until),
            Fault::Repeated { who, last } => self.bother(*who, *last, |trouble, until| trouble.repeated = until),
            Fault::Unanswered { who, last } => self.bother(*who, *last, |trouble, until| trouble.unanswered = until),
            Fault::Break(who) => {
                let owner = self.owner(*who);
                self.touch(owner, 500);
                for connection in self.connections.iter_mut().filter(|c| c.owner == owner && !c.pooled) {
                    connection.alive = false;
                }
            }
            Fault::FreezeProcess { who, last } => {
                self.bother(*who, *last, |trouble, until| trouble.frozen = trouble.frozen.max(until));
            }
            Fault::Crash(f) => {
                let f = f % self.frontends.len();
                self.touch(Owner::Frontend(f), 20_000);
                if !self.frontends[f].dead {
                    self.crash_frontend(f);
                }
            }
            Fault::RestartWorker { sidecar, after } => self.restart(*sidecar, *after, false),
            Fault::Leave { sidecar, after } => self.restart(*sidecar, *after, true),
            Fault::Rival { sidecar, last } => {
                let p = self.sidecar(*sidecar);
                let (index, cap) = (self.sidecars[p].index, self.sidecars[p].cap);
                let rival = self.start_sidecar(index, format!("http://r{}", self.sidecars.len()), cap);
                self.touch(Owner::Sidecar(rival), 20_000);
                self.touch(Owner::Sidecar(p), last + 20_000);
                self.after(*last, None, Event::Later(Later::Die(rival)));
            }
            Fault::Cap { sidecar, cap } => {
                let p = self.sidecar(*sidecar);
                self.sidecars[p].cap = *cap;
            }
            Fault::Load(sidecar) => {
                let p = self.sidecar(*sidecar);
                self.sidecars[p].loaded = !self.sidecars[p].loaded;
            }
            Fault::Threshold => {
                self.threshold = !self.threshold;
                self.configure();
            }
            Fault::Most(most) => {
                self.case.most = *most;
                self.configure();
            }
            Fault::Delete { key, part } => self.delete(key, *part),
        }
    }

    fn bother(&mut self, who: Who, last: u64, set: impl FnOnce(&mut super::world::Trouble, u64)) {
        let owner = self.owner(who);
        let until = self.now + last;
        set(self.trouble.entry(owner).or_default(), until);
        self.touch(owner, last);
    }

    /// Everything is gone, but for what the operator writes again.
    fn wipe(&mut self) {
        let limits = self.limits();
        let server = &mut self.servers[self.current];
        server.state.flush(limits);
        server.tampered = None;
        server.revision = 0;
        self.losses += 1;
        self.configure();
    }

    fn restart(&mut self, sidecar: usize, after: u64, goodbye: bool) {
        let p = self.sidecar(sidecar);
        self.touch(Owner::Sidecar(p), 20_000);
        if self.sidecars[p].dead {
            return;
        }
        if goodbye {
            self.say_goodbye(p);
        }
        self.crash_sidecar(p);
        let (index, url, cap) = (self.sidecars[p].index, self.sidecars[p].url.clone(), self.sidecars[p].cap);
        self.after(after, None, Event::Later(Later::Start { worker: index, url, cap }));
    }

    pub(super) fn later(&mut self, later: Later) {
        match later {
            Later::Up(server) => self.servers[server].up = true,
            Later::Thaw(server) => {
                if self.now < self.servers[server].frozen_until {
                    return;
                }
                for i in std::mem::take(&mut self.servers[server].queue) {
                    self.arrive(i);
                }
            }
            Later::Promote { state, away, jump, split } => {
                let (state, tampered) = (self.replicas[state].0.copy(), self.replicas[state].1.clone());
                let old = self.current;
                let mut server = Server::new(state, self.servers[old].offset + jump);
                server.up = false;
                server.tampered = tampered;
                self.servers.push(server);
                self.current = self.servers.len() - 1;
                self.losses += 1;
                self.break_all(&split);
                if split.is_empty() {
                    self.servers[old].dead = true;
                } else {
                    let until = self.now + away + 1_500;
                    for owner in split {
                        self.trouble.entry(owner).or_default().split = Some((until, old));
                        self.touch(owner, away + 1_500);
                    }
                    self.at(until, None, Event::Later(Later::Kill(old)));
                }
                self.configure();
                self.after(away, None, Event::Later(Later::Up(self.current)));
            }
            Later::Kill(server) => {
                self.servers[server].dead = true;
                for connection in self.connections.iter_mut().filter(|c| c.server == server) {
                    connection.alive = false;
                }
            }
            Later::Start { worker, url, cap } => {
                let p = self.start_sidecar(worker, url, cap);
                self.touch(Owner::Sidecar(p), 10);
            }
            Later::Die(p) => self.crash_sidecar(p),
        }
    }

    fn delete(&mut self, key: &str, part: Option<usize>) {
        let server = &mut self.servers[self.current];
        let dump = server.state.model.dump();
        let names: Vec<&String> = match key {
            "worker" | "leases" => dump.keys().filter(|name| name.split(':').next() == Some(key)).collect(),
            _ => dump.keys().filter(|name| *name == key).collect(),
        };
        let part_or_0 = part.unwrap_or(0);
        let Some(name) = names.get(part_or_0 % names.len().max(1)).map(|name| (*name).clone()) else { return };
        let mut fields: Vec<String> = match &dump[&name] {
            Held::Hash(hash) => hash.keys().cloned().collect(),
            Held::Zset(scores) => scores.keys().cloned().collect(),
            Held::Set(members) => members.iter().cloned().collect(),
            Held::Stream(_) | Held::Other => Vec::new(),
        };
        // Of a worker's own hash and of the leases, the whole key or one field; of the counters only those that matter.
        let whole = part.is_none() || (matches!(key, "worker" | "leases") && part_or_0.is_multiple_of(2));
        if key == "stats" {
            let matter =
                ["epoch", "revision", "heard", "healing_until", "grace_until", "inflight_total", "live", "born"];
            fields.retain(|field| matter.contains(&field.as_str()));
        }
        let what = if whole {
            server.state.delete(&name)
        } else {
            let Some(field) = fields.get(part_or_0 % fields.len().max(1)) else { return };
            server.state.remove(&name, field);
            format!("{field} removed from {name}")
        };
        let epoch =
            dump.get("stats").and_then(|held| if let Held::Hash(h) = held { h.get("epoch").cloned() } else { None });
        server.tampered = Some(epoch.unwrap_or_default());
        server.revision = 0;
        self.losses += 1;
        self.excused = self.now + super::verdict::EXCUSED_MS;
        self.say(format_args!("   {what}"));
    }
}
