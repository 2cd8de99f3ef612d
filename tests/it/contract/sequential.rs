//! Design section 10.5: decisions ordered by revision are those of one sequential gate. The checker replays the answers
//! of a run, whichever frontend gave them, and is itself shown to find what it looks for.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::Answer;

/// One decided answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Created by an admission; seen by a refusal.
    pub(super) revision: u64,
    /// The worker of an admission, the reason of a refusal.
    pub(super) decision: Result<String, String>,
}

impl Record {
    /// Of an answer with status 200 or 529.
    pub(super) fn of(answer: &Answer) -> Self {
        let revision = answer.revision().expect("every decided answer has a revision");
        let decision = match answer.status {
            200 => Ok(answer.worker().expect("a proxied answer names its worker").to_owned()),
            529 => Err(answer.reason()),
            other => panic!("not a decision: {other} {}", answer.text()),
        };
        Self { revision, decision }
    }
}

/// Replays a run in which nothing was given back: the gate lets in what has room, and refuses only when nothing has.
/// `caps`: places of each worker, all empty before the run.
pub(super) fn replay(records: &[Record], caps: &BTreeMap<String, u64>) -> Result<(), String> {
    let mut inflight: BTreeMap<&str, u64> = caps.keys().map(|worker| (worker.as_str(), 0)).collect();
    let mut ordered: Vec<&Record> = records.iter().collect();
    // An admission makes the state that a refusal of the same revision was decided on.
    ordered.sort_by_key(|record| (record.revision, record.decision.is_err()));
    let mut last = 0;
    for record in ordered {
        match &record.decision {
            Ok(worker) => {
                if record.revision == last {
                    return Err(format!("two admissions created revision {last}"));
                }
                last = record.revision;
                let count = inflight.get_mut(worker.as_str()).ok_or_else(|| format!("unknown worker {worker}"))?;
                *count += 1;
                if *count > caps[worker] {
                    return Err(format!("{worker} was full at revision {}: {record:?}", record.revision));
                }
            }
            Err(reason) => {
                let room: Vec<&&str> = inflight
                    .iter()
                    .filter(|(worker, count)| **count < caps[**worker])
                    .map(|(worker, _)| worker)
                    .collect();
                if !room.is_empty() {
                    return Err(format!("refused for {reason} at revision {} with room on {room:?}", record.revision));
                }
            }
        }
    }
    Ok(())
}

/// For runs with releases and changes in between: the answer is a function of the revision. So one revision refuses for
/// one reason, no two admissions create the same revision, and none was decided on a revision that refused.
pub(super) fn one_answer_per_revision(records: &[Record]) -> Result<(), String> {
    let mut refusing: BTreeMap<u64, &str> = BTreeMap::new();
    let mut created = BTreeSet::new();
    for record in records {
        match &record.decision {
            Ok(_) if !created.insert(record.revision) => {
                return Err(format!("two admissions created revision {}", record.revision));
            }
            Ok(_) => {}
            Err(reason) => {
                if let Some(other) = refusing.insert(record.revision, reason)
                    && other != reason
                {
                    return Err(format!("revision {} refused for {other} and for {reason}", record.revision));
                }
            }
        }
    }
    match created.iter().find(|revision| refusing.contains_key(&(**revision - 1))) {
        Some(revision) => Err(format!("revision {} refused, and admitted as {revision}", revision - 1)),
        None => Ok(()),
    }
}

fn admitted(revision: u64, worker: &str) -> Record {
    Record { revision, decision: Ok(worker.into()) }
}

fn refused(revision: u64) -> Record {
    Record { revision, decision: Err("at_capacity".into()) }
}

/// A run of two workers with two places each: four let in, two refused.
fn honest() -> (Vec<Record>, BTreeMap<String, u64>) {
    let records =
        vec![refused(14), admitted(11, "a"), admitted(13, "a"), admitted(12, "b"), refused(14), admitted(14, "b")];
    (records, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 2)]))
}

#[test]
fn the_checkers_accept_an_honest_record() {
    let (records, caps) = honest();
    assert_eq!(replay(&records, &caps), Ok(()));
    assert_eq!(one_answer_per_revision(&records), Ok(()));
    // A place was given back at revision 15.
    let more = [records, vec![admitted(16, "a")]].concat();
    assert_eq!(one_answer_per_revision(&more), Ok(()));
}

#[test]
fn the_replay_finds_every_doctored_record() {
    let (records, caps) = honest();
    let doctored = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = records.clone();
        change(&mut records);
        replay(&records, &caps)
    };
    let found = |result: Result<(), String>, words: &str| {
        let error = result.expect_err(words);
        assert!(error.contains(words), "{error}");
    };
    found(doctored(&|records| records.push(admitted(15, "a"))), "a was full at revision 15");
    found(doctored(&|records| records[3].decision = Ok("a".into())), "a was full");
    found(doctored(&|records| records[0].revision = 13), "with room on");
    found(doctored(&|records| records[1].revision = 12), "two admissions created revision 12");
    found(doctored(&|records| records[1].decision = Ok("c".into())), "unknown worker c");
}

#[test]
fn the_function_of_the_revision_is_missed_when_it_is_broken() {
    let (records, _) = honest();
    let doctored = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut records = records.clone();
        change(&mut records);
        one_answer_per_revision(&records)
    };
    // Two replicas, one state, two answers: what the reference system does.
    assert!(doctored(&|records| records.push(admitted(15, "a"))).is_err());
    assert!(doctored(&|records| records[0].decision = Err("no_workers".into())).is_err());
    assert!(doctored(&|records| records[1].revision = 12).is_err());
}
