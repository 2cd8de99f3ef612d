use super::*;
use crate::core::op::Admission;
use crate::core::op::Verdict;

/// Waits for lease `.0`; gone if `.1`.
#[derive(Debug, PartialEq)]
struct Who(&'static str, bool);

impl Waiter for Who {
    fn gone(&self) -> bool {
        self.1
    }

    fn admission(&self) -> Admission {
        Admission { id: lease(self.0), tokens: 1, pin: None, exclude: Vec::new() }
    }
}

#[derive(Default)]
struct Counter(u32);

impl Chance for Counter {
    fn frontend_id(&mut self) -> FrontendId {
        self.0 += 1;
        FrontendId::parse(&format!("f{}", self.0)).unwrap()
    }

    fn nonce(&mut self) -> String {
        "0".into()
    }

    fn seed(&mut self) -> u32 {
        1
    }

    fn jitter_ms(&mut self) -> u64 {
        0
    }
}

fn lease(id: &str) -> LeaseId {
    LeaseId::parse(id).unwrap()
}

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id).unwrap()
}

fn admitted(w: &str) -> Verdict {
    Verdict::Admitted { revision: 7, worker: worker(w), incarnation: Incarnation::new(1, "a"), url: "http://w".into() }
}

/// A session, its time, and what it said.
struct Driver {
    session: Session<Who>,
    chance: Counter,
    now: u64,
    said: Vec<Effect<Who>>,
}

impl Driver {
    fn new() -> Self {
        let settings = Settings { static_max_age_ms: Some(10_000), patience_ms: 250 };
        let mut chance = Counter::default();
        let session = Session::new(settings, chance.frontend_id());
        Self { session, chance, now: 1_000, said: Vec::new() }
    }

    /// One that has said hello, adopted an epoch and given a sign of life.
    fn settled() -> Self {
        let mut d = Self::new();
        d.hello();
        let (ticket, Call::Reconcile(part)) = d.next() else { panic!("not a reconcile") };
        assert!(part.first && part.leases.is_empty() && part.caller.epoch.is_empty());
        d.reply(ticket, Reply::Reconcile(Fenced::Done(reconciled(0))));
        let (ticket, Call::Heartbeat(_)) = d.next() else { panic!("not a heartbeat") };
        d.reply(ticket, Reply::Heartbeat(Fenced::Done(pulse(2, &[("w", 0)]))));
        assert!(d.session.is_settled());
        d
    }

    fn hello(&mut self) {
        let (ticket, Call::Hello(_)) = self.next() else { panic!("not a hello") };
        let welcome = Welcome { epoch: "e".into(), healing_ms: 0, revision: 1 };
        self.reply(ticket, Reply::Hello(Fenced::Done(welcome)));
    }

    fn maybe_next(&mut self) -> Option<(u64, Call)> {
        self.session.next(self.now, &mut self.chance).map(|(ticket, call)| (ticket, call.clone()))
    }

    fn next(&mut self) -> (u64, Call) {
        self.maybe_next().expect("a call")
    }

    fn group(&mut self) -> (u64, Decide) {
        match self.next() {
            (ticket, Call::Decide(group)) => (ticket, group),
            (_, call) => panic!("{call:?}"),
        }
    }

    fn answer(&mut self, ticket: u64, outcome: Outcome) {
        self.session.answer(self.now, ticket, outcome, &mut self.chance, &mut self.said);
        self.session.settle(self.now, &mut self.said);
    }

    fn reply(&mut self, ticket: u64, reply: Reply) {
        self.answer(ticket, Outcome::Reply(reply));
    }

    fn decided(&mut self, ticket: u64, verdicts: Vec<Verdict>) {
        let decided = Decided { revision: 7, drain_per_ks: 1_000, shed: 0, verdicts };
        self.reply(ticket, Reply::Decide(Fenced::Done(decided)));
    }

    fn ask(&mut self, id: &'static str) {
        self.session.ask(self.now, Who(id, false));
    }

    /// Asks for and gets a lease on `w`.
    fn hold(&mut self, id: &'static str, w: &str) {
        self.ask(id);
        let (ticket, _) = self.group();
        self.decided(ticket, vec![admitted(w)]);
    }

    fn fail(&mut self, times: u32) {
        for _ in 0..times {
            self.now += 60;
            let (ticket, _) = self.next();
            self.answer(ticket, Outcome::Failed(Failure::Passing));
        }
    }
}

fn reconciled(healing_ms: u64) -> Reconciled {
    Reconciled::Done { epoch: "e".into(), healing_ms, revision: 2, frontends: 2, dropped: Vec::new() }
}

fn pulse(frontends: u64, inflight: &[(&str, u64)]) -> Pulse {
    Pulse {
        revision: 3,
        healing_ms: 0,
        frontends,
        config_version: 0,
        fleet_version: 1,
        inflight_total: inflight.iter().map(|(_, n)| n).sum(),
        inflight: inflight.iter().map(|(w, n)| (worker(w), *n)).collect(),
        due_workers: Vec::new(),
        due_frontends: Vec::new(),
    }
}

fn fleet(cap: u64) -> Arc<Fleet> {
    let place = Place { worker: worker("w"), incarnation: Incarnation::new(1, "a"), url: "http://w".into() };
    let standing = Standing { place: Arc::new(place), cap: Some(cap), closed: String::new(), inflight: 0 };
    Arc::new(Fleet { workers: vec![standing], max_inflight: None, direct: false })
}

#[test]
fn at_most_two_calls_and_the_rest_in_one_group() {
    let mut d = Driver::settled();
    d.ask("1");
    let (first, group) = d.group();
    assert_eq!(group.admissions.len(), 1);
    d.ask("2");
    let (_, group) = d.group();
    assert_eq!(group.admissions.len(), 1);
    d.ask("3");
    d.session.ask(d.now, Who("4", true));
    d.ask("5");
    assert!(d.maybe_next().is_none(), "two are under way");
    d.decided(first, vec![admitted("w")]);
    d.session.end(&lease("1"));
    let (_, group) = d.group();
    assert_eq!(group.releases, [lease("1")]);
    let ids: Vec<_> = group.admissions.iter().map(|a| a.id.as_str()).collect();
    assert_eq!(ids, ["3", "5"], "who has left is not asked for");
}

#[test]
fn a_group_is_bounded_releases_first() {
    let mut d = Driver::settled();
    let ids: Vec<&'static str> = (0..300).map(|n| &*format!("{n}").leak()).collect();
    for part in ids.chunks(200) {
        part.iter().for_each(|id| d.ask(id));
        let (ticket, group) = d.group();
        d.decided(ticket, group.admissions.iter().map(|_| admitted("w")).collect());
    }
    ids.iter().take(200).for_each(|id| d.session.end(&lease(id)));
    for id in ["a", "b"].repeat(50) {
        d.ask(id);
    }
    let (_, group) = d.group();
    assert_eq!((group.releases.len(), group.admissions.len()), (200, 56));
}

#[test]
fn after_an_unknown_outcome_all_ids_are_released() {
    let mut d = Driver::settled();
    d.hold("0", "w");
    d.session.end(&lease("0"));
    d.ask("1");
    let (one, _) = d.group();
    d.ask("2");
    let (two, _) = d.group();
    d.said.clear();
    d.answer(one, Outcome::Unknown);
    let told = d.said.iter().filter(|e| matches!(e, Effect::Refuse { denied: Denied::NoStore, .. })).count();
    assert_eq!(told, 2, "both calls are unknown");
    assert!(matches!(d.said.last(), Some(Effect::Close)));
    d.decided(two, vec![admitted("w")]);
    assert_eq!(d.session.held_count(), 0, "an answer that comes too late is none");
    d.now += 100;
    let (_, group) = d.group();
    let mut released: Vec<_> = group.releases.iter().map(LeaseId::as_str).collect();
    released.sort_unstable();
    assert_eq!(released, ["0", "1", "2"]);
}

#[test]
fn a_stale_reply_is_an_unknown_outcome() {
    let mut d = Driver::settled();
    d.ask("1");
    let (ticket, _) = d.group();
    d.reply(ticket, Reply::Decide(Fenced::Stale { stored: 99 }));
    d.now += 100;
    let (_, group) = d.group();
    assert!(group.caller.seq > 99);
    assert_eq!(group.releases, [lease("1")]);
}

#[test]
fn an_error_answer_is_queued_again_and_moves_no_acked() {
    let mut d = Driver::settled();
    d.ask("1");
    let (ticket, before) = d.group();
    d.answer(ticket, Outcome::Failed(Failure::NoScript));
    let (ticket, after) = d.group();
    assert_eq!(after.admissions, before.admissions);
    assert_eq!((after.caller.acked, after.caller.seq), (before.caller.acked, before.caller.seq + 1));
    d.answer(ticket, Outcome::Failed(Failure::Refused));
    assert!(matches!(d.said.last(), Some(Effect::Refuse { denied: Denied::NoStore, .. })), "no memory is said at once");
    assert!(!d.session.is_open());
}

#[test]
fn a_new_epoch_has_all_asserted_and_is_adopted_by_the_reconcile() {
    let mut d = Driver::settled();
    d.hold("1", "w");
    d.hold("2", "w");
    d.session.learn(d.now, fleet(8));
    d.ask("3");
    let (ticket, _) = d.group();
    d.reply(ticket, Reply::Decide(Fenced::Epoch { healing_ms: 4_000 }));
    assert!(matches!(d.said.last(), Some(Effect::Admit { revision: None, .. })), "static mode goes on");
    let (ticket, Call::Reconcile(part)) = d.next() else { panic!("not a reconcile") };
    assert!(part.first && part.caller.mem);
    assert_eq!(part.leases.len(), 3);
    assert!(d.maybe_next().is_none(), "it goes alone");
    d.session.end(&lease("1"));
    let done = Reconciled::Done {
        epoch: "e2".into(),
        healing_ms: 3_000,
        revision: 9,
        frontends: 1,
        dropped: vec![lease("2")],
    };
    d.reply(ticket, Reply::Reconcile(Fenced::Done(done)));
    assert_eq!(d.session.epoch(), "e2");
    assert!(d.maybe_next().is_none_or(|(_, call)| matches!(call, Call::Heartbeat(_))), "no decision while it heals");
    assert!(!d.session.learn(d.now, fleet(1)), "nor is the new state believed");
    d.now += 1_000;
    d.ask("4");
    d.session.settle(d.now, &mut d.said);
    d.session.end(&lease("2"));
    d.now += 3_000;
    // What was taken while it healed, before the first decision; ended ones are released, dropped ones never.
    let mut seen = Vec::new();
    while let Some((ticket, call)) = d.maybe_next() {
        match call {
            Call::Reconcile(part) => {
                assert!(!part.first);
                seen.push(format!("assert {}", part.leases.iter().map(|l| l.id.as_str()).collect::<String>()));
                d.reply(ticket, Reply::Reconcile(Fenced::Done(reconciled(0))));
            }
            Call::Heartbeat(_) => d.reply(ticket, Reply::Heartbeat(Fenced::Done(pulse(1, &[])))),
            Call::Decide(group) => {
                seen.push(format!("release {}", group.releases.iter().map(LeaseId::as_str).collect::<String>()));
                d.decided(ticket, Vec::new());
            }
            Call::Hello(_) => panic!("hello"),
        }
    }
    assert_eq!(seen, ["assert 4", "release 1"]);
}

#[test]
fn gone_takes_a_new_id() {
    let mut d = Driver::settled();
    d.hold("1", "w");
    d.now += HEARTBEAT_MS;
    let (ticket, Call::Heartbeat(_)) = d.next() else { panic!("not a heartbeat") };
    d.reply(ticket, Reply::Heartbeat(Fenced::Gone));
    assert_eq!(d.session.id().as_str(), "f2");
    d.hello();
    let (_, Call::Reconcile(part)) = d.next() else { panic!("not a reconcile") };
    assert!(part.first && part.leases.len() == 1 && part.caller.seq == 2 && part.caller.acked == 1);
}

#[test]
fn three_failures_open_the_breaker_and_static_mode_keeps_to_its_share() {
    let mut d = Driver::settled();
    d.hold("1", "w");
    d.session.learn(d.now, fleet(6));
    d.now += HEARTBEAT_MS;
    let (ticket, Call::Heartbeat(_)) = d.next() else { panic!("not a heartbeat") };
    // It had 1 of 2 in flight under a cap of 6, and there are 2 frontends: it may go to 1 + 4/2.
    d.reply(ticket, Reply::Heartbeat(Fenced::Done(pulse(2, &[("w", 2)]))));
    d.ask("2");
    d.fail(3);
    assert!(d.session.is_open() && d.session.is_static(d.now));
    for id in ["3", "4"] {
        d.ask(id);
    }
    d.said.clear();
    d.session.settle(d.now, &mut d.said);
    let said: Vec<_> = d.said.iter().map(|e| matches!(e, Effect::Admit { .. })).collect();
    assert_eq!(said, [true, false], "with the one that had waited it has 3");
    d.now += 20_000;
    d.ask("5");
    d.session.settle(d.now, &mut d.said);
    assert!(matches!(d.said.last(), Some(Effect::Refuse { denied: Denied::NoStore, .. })), "too old");
    let (ticket, Call::Heartbeat(_)) = d.next() else { panic!("a probe is a heartbeat") };
    assert!(d.maybe_next().is_none());
    d.reply(ticket, Reply::Heartbeat(Fenced::Done(pulse(2, &[("w", 2)]))));
    let (_, Call::Reconcile(part)) = d.next() else { panic!("not a reconcile") };
    assert!(!part.first && part.leases.len() == 2, "what was taken meanwhile, before the next decision");
}

#[test]
fn more_leases_than_a_call_takes_are_asserted_in_parts() {
    let mut d = Driver::settled();
    let ids: Vec<&'static str> = (0..1_100).map(|n| &*format!("{n}").leak()).collect();
    for part in ids.chunks(MAX_GROUP) {
        part.iter().for_each(|id| d.ask(id));
        let (ticket, group) = d.group();
        d.decided(ticket, group.admissions.iter().map(|_| admitted("w")).collect());
    }
    d.ask("x");
    let (ticket, _) = d.group();
    d.reply(ticket, Reply::Decide(Fenced::Epoch { healing_ms: 0 }));
    let mut sizes = Vec::new();
    while let (ticket, Call::Reconcile(part)) = d.next() {
        if sizes.is_empty() {
            // Old leases are taken out first: the same part again.
            d.reply(ticket, Reply::Reconcile(Fenced::Done(Reconciled::Again)));
            let (ticket, Call::Reconcile(again)) = d.next() else { panic!("not a reconcile") };
            assert!(part.first && again.first && again.leases == part.leases);
            d.reply(ticket, Reply::Reconcile(Fenced::Done(reconciled(0))));
        } else {
            assert!(!part.first);
            d.reply(ticket, Reply::Reconcile(Fenced::Done(reconciled(0))));
        }
        sizes.push(part.leases.len());
    }
    assert_eq!(sizes, [500, 500, 100]);
}

#[test]
fn it_never_asks_to_be_called_again_at_once_for_nothing() {
    let mut d = Driver::new();
    let mut idle = 0;
    for step in 0..2_000u32 {
        if step % 7 == 0 {
            d.ask("1");
        }
        match d.maybe_next() {
            Some((ticket, _)) if step % 3 == 0 => d.answer(ticket, Outcome::Failed(Failure::Passing)),
            Some((ticket, _)) if step % 5 == 0 => d.answer(ticket, Outcome::Unknown),
            Some(_) => {}
            None => idle += 1,
        }
        let due = d.session.due(d.now);
        if d.session.next(d.now, &mut d.chance).is_none() {
            assert!(due > d.now, "step {step}: {:?}", d.session);
        }
        d.now += 1;
    }
    assert!(idle > 0);
}
