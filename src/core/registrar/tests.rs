//! The state machine against scripted answers.

use super::*;
use crate::core::id::WorkerId;
use crate::core::op::FigureKind;

const TTL: u64 = 5_000;
const PAUSE: u64 = TTL / 3;

fn sample() -> Sample {
    Sample {
        registration: Registration {
            worker: WorkerId::parse("w").unwrap(),
            url: "http://127.0.0.1:1".into(),
            data_parallel_start_rank: 0,
            data_parallel_size: 1,
            engine_request_limit: Some(4),
            request_queue_limit: 2,
            kv_block_size: 16,
            draining: false,
            engine_down: false,
            worker_ttl_ms: TTL,
        },
        figures: vec![Figure { rank: 0, kind: FigureKind::ActiveDecodeBlocks, value: 1_000 }],
        room: true,
    }
}

fn with_blocks(value: u64) -> Sample {
    let mut s = sample();
    s.figures[0].value = value;
    s
}

fn ok_report() -> Answer {
    Answer::Reported(Reported::Ok { busy: false, config_version: 1, track_output_blocks: false })
}

fn ok_register(ms: u64, nonce: &str) -> Answer {
    Answer::Registered(Registered::Ok { incarnation: Incarnation::new(ms, nonce) })
}

fn expect_register(call: Option<Call>) -> Register {
    match call {
        Some(Call::Register(r)) => r,
        other => panic!("wanted a registration, got {other:?}"),
    }
}

fn expect_report(call: Option<Call>) -> Report {
    match call {
        Some(Call::Report(r)) => r,
        other => panic!("wanted a report, got {other:?}"),
    }
}

/// Registered at 0 as `100-aaaaaaaa`, first report answered.
fn held() -> Registrar {
    let mut r = Registrar::new("aaaaaaaa", TTL);
    expect_register(r.poll(0, &sample(), "x"));
    r.answer(0, &ok_register(100, "aaaaaaaa"));
    expect_report(r.poll(0, &sample(), "x"));
    r.answer(0, &ok_report());
    r
}

/// Lost to another process that is alive, at 10.
fn lost() -> Registrar {
    let mut r = held();
    r.hurry();
    expect_report(r.poll(10, &sample(), "x"));
    r.answer(10, &Answer::Reported(Reported::Superseded));
    assert_eq!(r.standing(), Standing::Lost);
    r
}

#[test]
fn registers_then_reports_at_once_with_rising_numbers() {
    let mut r = Registrar::new("aaaaaaaa", TTL);
    let first = expect_register(r.poll(7, &sample(), "x"));
    assert_eq!((first.nonce.as_str(), first.incarnation, first.known, first.yields), ("aaaaaaaa", None, false, false));
    assert!(r.waits() && r.poll(7, &sample(), "x").is_none(), "one call at a time");
    r.answer(8, &ok_register(100, "aaaaaaaa"));
    assert_eq!((r.standing(), r.incarnation().map(Incarnation::as_str)), (Standing::Held, Some("100-aaaaaaaa")));
    let report = expect_report(r.poll(8, &sample(), "chance"));
    assert!(report.number > first.number);
    assert_eq!((report.nonce.as_str(), report.incarnation.as_str()), ("chance", "100-aaaaaaaa"));
}

#[test]
fn an_unanswered_registration_repeats_the_nonce_at_the_next_sample() {
    let mut r = Registrar::new("aaaaaaaa", TTL);
    let first = expect_register(r.poll(0, &sample(), "x"));
    r.answer(250, &Answer::Failed);
    let second = expect_register(r.poll(500, &sample(), "y"));
    assert_eq!((second.nonce, second.known), (first.nonce, false));
}

#[test]
fn reports_when_a_figure_moved_by_more_than_a_hundredth_or_the_pause_is_over() {
    let mut r = held();
    assert!(r.poll(500, &with_blocks(1_010), "x").is_none(), "1 % is not more than 1 %");
    assert!(r.poll(500, &with_blocks(990), "x").is_none());
    expect_report(r.poll(500, &with_blocks(1_011), "x"));
    r.answer(500, &ok_report());
    assert!(r.poll(500 + PAUSE - 1, &with_blocks(1_011), "x").is_none());
    expect_report(r.poll(500 + PAUSE, &with_blocks(1_011), "x"));
}

#[test]
fn reports_when_a_flag_or_a_limit_changed_or_a_new_figure_appeared() {
    type Change = fn(&mut Sample);
    let changes: [Change; 5] = [
        |s| s.room = false,
        |s| s.registration.engine_down = true,
        |s| s.registration.draining = true,
        |s| s.registration.request_queue_limit = 3,
        |s| s.figures.push(Figure { rank: 0, kind: FigureKind::KvTotalBlocks, value: 1 }),
    ];
    for change in changes {
        let (mut r, mut s) = (held(), sample());
        change(&mut s);
        let report = expect_report(r.poll(1, &s, "x"));
        assert_eq!((report.registration, report.figures, report.room), (s.registration, s.figures, s.room));
    }
    let (mut r, mut s) = (held(), sample());
    s.figures.clear();
    assert!(r.poll(1, &s, "x").is_none(), "a figure that is not known now is no change");
}

#[test]
fn the_pause_never_exceeds_two_seconds() {
    assert_eq!(Registrar::new("a", 5_000).pause_ms(), 1_666);
    assert_eq!(Registrar::new("a", 30_000).pause_ms(), 2_000);
}

#[test]
fn a_failed_report_is_sent_again_at_the_next_sample_with_a_higher_number() {
    let mut r = held();
    r.hurry();
    let first = expect_report(r.poll(500, &sample(), "x"));
    r.answer(750, &Answer::Failed);
    let second = expect_report(r.poll(1_000, &sample(), "x"));
    assert!(second.number > first.number);
    r.answer(1_001, &Answer::Reported(Reported::Ignored));
    assert!(expect_report(r.poll(1_500, &sample(), "x")).number > second.number);
}

#[test]
fn a_forgotten_worker_registers_again_as_the_same_incarnation_at_once() {
    let mut r = held();
    r.hurry();
    expect_report(r.poll(500, &sample(), "x"));
    r.answer(500, &Answer::Reported(Reported::Register));
    let again = expect_register(r.poll(500, &sample(), "x"));
    assert_eq!(again.incarnation.map(|i| i.to_string()), Some("100-aaaaaaaa".into()));
    assert_eq!((again.nonce.as_str(), again.known, again.yields), ("aaaaaaaa", true, false));
}

#[test]
fn a_store_that_forgets_at_once_is_not_asked_in_a_tight_loop() {
    let mut r = held();
    let mut calls = Vec::new();
    r.hurry();
    while r.eager() {
        let call = r.poll(500, &sample(), "x").expect("eager");
        let reply = match call {
            Call::Register(_) => ok_register(100, "aaaaaaaa"),
            Call::Report(_) => Answer::Reported(Reported::Register),
        };
        calls.push(matches!(call, Call::Register(_)));
        r.answer(500, &reply);
        assert!(calls.len() < 10, "loops");
    }
    assert_eq!(calls, [false, true, false]);
    expect_register(r.poll(1_000, &sample(), "x"));
}

#[test]
fn a_state_started_anew_is_registered_in_at_once_but_only_once_a_sample() {
    let mut r = Registrar::new("aaaaaaaa", TTL);
    let first = expect_register(r.poll(0, &sample(), "x"));
    r.answer(0, &Answer::Registered(Registered::Again));
    assert!(r.eager());
    let second = expect_register(r.poll(0, &sample(), "x"));
    assert_eq!((second.nonce, second.incarnation), (first.nonce, None));
    r.answer(0, &Answer::Registered(Registered::Again));
    assert!(!r.eager());
    expect_register(r.poll(500, &sample(), "x"));
    r.answer(500, &ok_register(100, "aaaaaaaa"));
    assert_eq!(r.standing(), Standing::Held);
}

#[test]
fn a_loser_asks_on_and_never_takes_the_id_from_the_living() {
    let mut r = lost();
    for step in 1..=20 {
        let now = 10 + step * PAUSE;
        let report = expect_report(r.poll(now, &sample(), "fresh"));
        assert_eq!(report.incarnation.as_str(), "100-aaaaaaaa");
        r.answer(now, &Answer::Reported(Reported::Superseded));
    }
    assert_eq!(r.standing(), Standing::Lost);
    assert_eq!(r.incarnation().map(Incarnation::as_str), Some("100-aaaaaaaa"), "its old streams are still its own");
}

#[test]
fn after_five_seconds_of_vacancy_it_comes_back_with_a_new_nonce_and_yields() {
    for vacancy in [Reported::Vacant, Reported::Register] {
        let mut r = lost();
        let (mut now, since) = (10 + PAUSE, 10 + PAUSE);
        while now < since + VACANCY_MS {
            expect_report(r.poll(now, &sample(), "bbbbbbbb"));
            r.answer(now, &Answer::Reported(vacancy.clone()));
            assert_eq!(r.standing(), Standing::Lost, "at {now}");
            now += PAUSE;
        }
        expect_report(r.poll(now, &sample(), "bbbbbbbb"));
        r.answer(now, &Answer::Reported(vacancy));
        assert_eq!((r.standing(), r.incarnation()), (Standing::Unknown, None));
        let again = expect_register(r.poll(now, &sample(), "cccccccc"));
        assert_eq!((again.nonce.as_str(), again.incarnation, again.yields), ("cccccccc", None, true));
        r.answer(now, &Answer::Registered(Registered::Superseded));
        assert_eq!(r.standing(), Standing::Unknown, "it has no incarnation that could be lost");
        let later = expect_register(r.poll(now + PAUSE, &sample(), "dddddddd"));
        assert_eq!((later.nonce.as_str(), later.yields), ("cccccccc", true));
        r.answer(now + PAUSE, &ok_register(900, "cccccccc"));
        assert_eq!(r.incarnation().map(Incarnation::as_str), Some("900-cccccccc"));
    }
}

#[test]
fn a_vacancy_that_is_taken_meanwhile_starts_anew() {
    let mut r = lost();
    for (step, reply) in [Reported::Vacant, Reported::Vacant, Reported::Superseded, Reported::Vacant].iter().enumerate()
    {
        let now = 10 + (step as u64 + 1) * 2_000;
        expect_report(r.poll(now, &sample(), "x"));
        r.answer(now, &Answer::Reported(reply.clone()));
        assert_eq!(r.standing(), Standing::Lost);
    }
}

#[test]
fn a_registration_with_an_old_incarnation_can_be_lost_too() {
    for (reply, since) in [(Registered::Superseded, None), (Registered::Vacant, Some(500))] {
        let mut r = held();
        r.hurry();
        expect_report(r.poll(500, &sample(), "x"));
        r.answer(500, &Answer::Reported(Reported::Register));
        expect_register(r.poll(500, &sample(), "x"));
        r.answer(500, &Answer::Registered(reply));
        assert_eq!((r.standing(), r.vacant_since, r.yields), (Standing::Lost, since, true));
    }
}

#[test]
fn an_answer_that_nobody_waits_for_changes_nothing() {
    let mut r = held();
    r.answer(1, &Answer::Reported(Reported::Superseded));
    assert_eq!(r.standing(), Standing::Held);
}
