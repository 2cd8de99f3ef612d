//! More than one call may take: leases that are asserted, taken out and given back in parts. Which ones a part takes is
//! the server's to choose, so single leases are not compared; everything else is.

use tidegate::core::fleet::Limits;
use tidegate::core::fleet::shard::Held as Shown;
use tidegate::core::id::{FrontendId, Incarnation, LeaseId, WorkerId};
use tidegate::core::op::{Caller, Fenced, Held, Hello, MAX_LEASES, Reconcile, Reconciled, Sweep, Swept};

use super::both::Both;
use super::real::Real;

const START_MS: u64 = 1_700_000_000_000;
const LEASES: usize = 2 * MAX_LEASES + 200;

struct Case<'a> {
    both: Both<'a>,
    now: u64,
    seq: u64,
    epoch: String,
}

impl Case<'_> {
    fn caller(&mut self) -> Caller {
        self.seq += 1;
        Caller {
            frontend: FrontendId::parse("f").expect("a name"),
            epoch: self.epoch.clone(),
            seq: self.seq,
            acked: self.seq - 1,
            seen: 0,
            mem: false,
            nonce: format!("r{}", self.seq),
        }
    }

    fn reconcile(&mut self, first: bool, leases: &[Held]) -> Reconciled {
        let op = Reconcile { caller: self.caller(), first, leases: leases.to_vec() };
        let Fenced::Done(done) = self.both.call(&op, self.now, |r| r).expect("the same answer") else {
            panic!("the fence lets it through")
        };
        if let Reconciled::Done { epoch, .. } = &done {
            self.epoch.clone_from(epoch);
        }
        self.same();
        done
    }

    fn same(&self) {
        let real = self.both.real.as_ref().expect("a server").dump();
        let model = self.both.model.dump();
        let names: std::collections::BTreeSet<_> = model.keys().chain(real.keys()).collect();
        for name in names {
            match (model.get(name), real.get(name)) {
                (Some(Shown::Hash(a)), Some(Shown::Hash(b))) if name.starts_with("leases:") => {
                    assert_eq!(a.len(), b.len(), "{name}");
                }
                (a, b) => assert_eq!(a, b, "{name}"),
            }
        }
        self.both.model.check().expect("a sound state");
    }
}

#[test]
fn leases_beyond_one_call_go_and_come_in_parts() {
    let real = Real::start();
    let both = Both::new(Some(real.model()), Limits::default());
    let mut case = Case { both, now: START_MS, seq: 0, epoch: String::new() };
    for _ in 0..2 {
        // The first one starts the epoch.
        let op = Hello(case.caller());
        case.both.call(&op, case.now, |r| r).expect("the same answer");
    }
    let lease = |i: usize| Held {
        id: LeaseId::parse(&format!("L{i}")).expect("an id"),
        worker: WorkerId::parse("w").expect("a name"),
        incarnation: Incarnation::new(START_MS, "n"),
        url: "http://w".into(),
        tokens: 40,
    };
    let leases: Vec<Held> = (0..LEASES).map(lease).collect();
    for (i, part) in leases.chunks(MAX_LEASES).enumerate() {
        assert!(matches!(case.reconcile(i == 0, part), Reconciled::Done { .. }));
    }
    // Said again from the start: what is there is taken out before, in parts.
    let first = leases.get(..10).expect("many");
    assert_eq!(case.reconcile(true, first), Reconciled::Again);
    assert_eq!(case.reconcile(true, first), Reconciled::Again);
    assert!(matches!(case.reconcile(true, first), Reconciled::Done { .. }));
    for part in leases.chunks(MAX_LEASES) {
        case.reconcile(false, part);
    }
    // Dead: given back in parts. The first look after a silence is forgiven, as Redis may have been away itself.
    let sweep = |nonce: &str| Sweep {
        workers: Vec::new(),
        frontends: vec![FrontendId::parse("f").expect("a name")],
        nonce: nonce.into(),
    };
    case.now += 20_000;
    let mut more = Vec::new();
    for pause in [0, 2_000, 2_000, 0, 0] {
        case.now += pause;
        // Somebody else is alive.
        let mut other = case.caller();
        other.frontend = FrontendId::parse("g").expect("a name");
        case.both.call(&Hello(other), case.now, |r| r).expect("the same answer");
        let reply = case.both.call(&sweep("s"), case.now, |r| r).expect("the same answer");
        let Swept::Done { more: named } = reply else { panic!("no new epoch") };
        more.push(named.len());
        case.same();
    }
    assert_eq!(more, [0, 0, 1, 1, 0]);
    assert!(!case.both.model.dump().contains_key("leases:f"));
}
