//! A sound state passes; every single piece of damage is found, and named.

use super::*;

fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Two workers: w1 with 2 of 4 in flight, w2 busy by its load; one frontend with both leases.
fn sound() -> Dump {
    let shared = Shared {
        now_ms: 100_000,
        lag_ms: 3_000,
        stats: fields(&[
            ("epoch", "1-e"),
            ("revision", "9"),
            ("inflight_total", "2"),
            ("live", "2"),
            ("live_busy", "1"),
            ("grace_until", "50000"),
        ]),
        applied: fields(&[("active_decode_blocks_threshold", "0.5"), ("config_version", "1")]),
    };
    let hash = |blocks: &str| {
        fields(&[
            ("draining", "0"),
            ("engine_down", "0"),
            ("data_parallel_start_rank", "0"),
            ("data_parallel_size", "1"),
            ("0.kv_total_blocks", "10"),
            ("0.active_decode_blocks", blocks),
            ("0.active_decode_blocks_ms", "99900"),
        ])
    };
    let worker = |gate: &str, inflight: &str, busy: bool, blocks: &str| WorkerState {
        gate: Some(gate.into()),
        inflight: Some(inflight.into()),
        alive_until: Some(104_000),
        skipped_until: None,
        busy,
        eligible: !busy,
        hash: hash(blocks),
    };
    let (one, two) = ("5-a|4||http://a:1", "6-b|4|b|http://b:1");
    let workers = [("w1", worker(one, "2", false, "3")), ("w2", worker(two, "0", true, "9"))];
    let key = |name: &str, has_ttl| Key { name: name.into(), has_ttl };
    Dump {
        shared,
        workers: workers.into_iter().map(|(id, state)| (id.to_owned(), state)).collect(),
        books: Books {
            gate: fields(&[("w1", one), ("w2", two)]),
            inflight: fields(&[("w1", "2"), ("w2", "0")]),
            frontends: [("f".to_owned(), 109_000)].into(),
            seq: fields(&[("f", "1-e|7|3")]),
            leases: [("f".to_owned(), fields(&[("l1", "w1|5-a|0"), ("l2", "w1|5-a|9"), ("old", "w1|4-z|0")]))].into(),
        },
        owners: Owners {
            keys: vec![key("stats", false), key("worker:w1", true), key("leases:f", false)],
            shard: ["stats".to_owned()].into(),
            workers: ["w1".to_owned(), "w2".to_owned()].into(),
            frontends: ["f".to_owned()].into(),
        },
    }
}

fn change(dump: &mut Dump, id: &str, change: impl FnOnce(&mut WorkerState)) {
    change(dump.workers.get_mut(id).unwrap());
}

fn set(fields: &mut Fields, name: &str, text: &str) {
    fields.insert(name.into(), text.into());
}

#[test]
fn a_sound_state_passes() {
    assert_eq!(check(&sound()), []);
}

#[test]
fn every_damage_is_found() {
    type Damage = fn(&mut Dump);
    let cases: [(&str, u8, &str, Damage); 24] = [
        ("w1", 1, "in flight", |d| set(&mut d.books.inflight, "w1", "3")),
        ("w1", 1, "in flight", |d| set(&mut d.books.inflight, "w1", "-5")),
        ("w2", 1, "registries of workers", |d| drop(d.books.inflight.remove("w2"))),
        ("w1", 1, "gate entry", |d| set(&mut d.books.gate, "w1", "nonsense")),
        ("inflight_total", 1, "totals", |d| set(&mut d.shared.stats, "inflight_total", "7")),
        ("inflight_total", 1, "totals", |d| drop(d.shared.stats.remove("inflight_total"))),
        ("live", 1, "totals", |d| set(&mut d.shared.stats, "live", "1")),
        ("live_busy", 1, "totals", |d| set(&mut d.shared.stats, "live_busy", "2")),
        ("f", 1, "leases of a frontend", |d| drop(d.books.leases.remove("f"))),
        ("f", 1, "registry entry", |d| set(&mut d.books.seq, "f", "nonsense")),
        ("f", 1, "registries of frontends", |d| {
            d.books.frontends.remove("f");
        }),
        ("l1", 1, "lease", |d| set(d.books.leases.get_mut("f").unwrap(), "l1", "nonsense")),
        ("w1", 2, "eligible", |d| change(d, "w1", |w| w.eligible = false)),
        ("w2", 2, "eligible", |d| change(d, "w2", |w| w.eligible = true)),
        ("w1", 2, "eligible", |d| change(d, "w1", |w| w.inflight = Some("4".into()))),
        ("w1", 2, "draining", |d| change(d, "w1", |w| set(&mut w.hash, "draining", "1"))),
        ("w1", 2, "engine down", |d| change(d, "w1", |w| set(&mut w.hash, "engine_down", "1"))),
        ("w1", 2, "expired", |d| change(d, "w1", |w| w.alive_until = Some(96_000))),
        ("w1", 2, "expired", |d| change(d, "w1", |w| w.alive_until = None)),
        ("w1", 2, "skipped", |d| change(d, "w1", |w| w.skipped_until = Some(100_500))),
        ("w1", 2, "no gate", |d| change(d, "w1", |w| w.gate = None)),
        ("w2", 3, "busy", |d| change(d, "w2", |w| set(&mut w.hash, "0.active_decode_blocks_ms", "80000"))),
        ("w2", 3, "busy set", |d| change(d, "w2", |w| w.busy = false)),
        ("leases:gone", 4, "key without an owner", |d| {
            d.owners.keys.push(Key { name: "leases:gone".into(), has_ttl: false });
        }),
    ];
    for (subject, invariant, rule, damage) in cases {
        let mut dump = sound();
        damage(&mut dump);
        let found = check(&dump);
        let wanted = Violation::new(invariant, rule, subject, "");
        assert!(found.iter().any(|violation| violation.same(&wanted)), "{rule} of {subject} is not in {found:#?}");
    }
}

#[test]
fn a_config_that_nobody_applied_yet_is_found() {
    let mut dump = sound();
    set(&mut dump.shared.applied, "active_decode_blocks_threshold", "0.1");
    assert_eq!(check(&dump).iter().map(|v| (v.invariant, v.subject.as_str())).collect::<Vec<_>>(), [(3, "w1")]);
}

#[test]
fn what_time_alone_changes_may_wait_for_the_sweep() {
    type Damage = fn(&mut Dump);
    let late: [Damage; 3] = [
        |d| change(d, "w1", |w| w.alive_until = Some(98_000)),
        |d| {
            change(d, "w1", |w| {
                (w.skipped_until, w.eligible) = (Some(98_000), false);
                w.gate = Some("5-a|4|s|http://a:1".into());
            });
        },
        |d| change(d, "w2", |w| set(&mut w.hash, "0.active_decode_blocks_ms", "94000")),
    ];
    for damage in late {
        let mut dump = sound();
        damage(&mut dump);
        assert_eq!(check(&dump), []);
        dump.shared.lag_ms = 1_000;
        assert_ne!(check(&dump), []);
        dump.shared.lag_ms = Shared::NEVER;
        assert_eq!(check(&dump), [], "nobody sweeps");
    }
}

#[test]
fn nobody_expires_while_the_absence_of_redis_is_made_up_for() {
    let mut dump = sound();
    set(&mut dump.shared.stats, "grace_until", "101000");
    change(&mut dump, "w1", |w| w.alive_until = Some(90_000));
    assert_eq!(check(&dump), []);
}
