//! One line of the live table: text out of figures.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::load::Answers;
use crate::core::op::{Page, WorkerRow};

/// Places of a worker's bar.
const BAR: u64 = 12;
/// Columns of a worker, and of a frontend.
const WORKER: usize = 24;
const FRONTEND: usize = 14;

/// The heading, and a line under it.
pub(super) fn heading(workers: usize, frontends: usize) -> String {
    let mut names = format!("{:>4} {:>6}  ", "time", "load");
    for worker in 1..=workers {
        let _ = write!(names, "{:WORKER$}", format!("w{worker} in flight / cap"));
    }
    for name in ('A'..).take(frontends) {
        let _ = write!(names, "{:FRONTEND$}", format!("{name}: 200  529"));
    }
    names.push_str("refused because");
    let line = "─".repeat(names.chars().count());
    format!("{names}\n{line}")
}

/// One line: the state of the workers, and what the frontends have answered since the last line.
pub(super) fn line(second: u64, rate: f64, page: &Page, before: &[Answers], now: &[Answers]) -> String {
    let mut text = format!("{:>4} {:>6}  ", format!("{second}s"), format!("{rate:.0}/s"));
    for worker in &page.workers {
        let _ = write!(text, "{:WORKER$}", bar(worker));
    }
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (frontend, answers) in now.iter().enumerate() {
        let old = before.get(frontend).cloned().unwrap_or_default();
        let served = answers.served - old.served.min(answers.served);
        let refused = answers.refusals() - old.refusals().min(answers.refusals());
        let _ = write!(text, "{:FRONTEND$}", format!("{served:>6} {refused:>4}"));
        for (reason, count) in &answers.refused {
            let more = count - old.refused.get(reason).copied().unwrap_or(0).min(*count);
            if more > 0 {
                *reasons.entry(reason).or_default() += more;
            }
        }
        let failed = answers.failed - old.failed.min(answers.failed);
        if failed > 0 {
            *reasons.entry("no answer").or_default() += failed;
        }
    }
    let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} ×{count}")).collect();
    text.push_str(&reasons.join(", "));
    text.trim_end().to_owned()
}

/// `██████······  6/12`, and what closes the worker if something does.
fn bar(worker: &WorkerRow) -> String {
    let (inflight, cap) = (worker.inflight, worker.cap.unwrap_or(worker.inflight.max(1)));
    let full = usize::try_from((inflight * BAR).div_ceil(cap.max(1)).min(BAR)).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - full;
    let why: Vec<&str> = worker
        .closed
        .chars()
        .map(|letter| match letter {
            'b' => "busy",
            'd' => "drain",
            'e' => "down",
            's' => "skip",
            _ => "gone",
        })
        .collect();
    format!("{}{} {inflight:>2}/{cap} {}", "█".repeat(full), "·".repeat(empty), why.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::{Incarnation, WorkerId};

    fn worker(inflight: u64, closed: &str) -> WorkerRow {
        WorkerRow {
            worker: WorkerId::parse("w1").unwrap(),
            incarnation: Incarnation::new(1, "a"),
            cap: Some(12),
            closed: closed.into(),
            url: "http://127.0.0.1:1".into(),
            inflight,
        }
    }

    fn answers(served: u64, busy: u64) -> Answers {
        let refused = BTreeMap::from([("all_workers_busy".to_owned(), busy)]);
        Answers { served, refused, failed: 0 }
    }

    #[test]
    fn a_line_says_what_is_full_and_what_was_answered() {
        let page = Page { workers: vec![worker(6, ""), worker(12, "b")], ..Page::default() };
        let text = line(3, 8.4, &page, &[answers(10, 0), answers(10, 2)], &[answers(14, 3), answers(13, 2)]);
        let words: Vec<&str> = text.split_whitespace().collect();
        let expected = "3s 8/s ██████······ 6/12 ████████████ 12/12 busy 4 3 3 0 all_workers_busy ×3";
        assert_eq!(words.join(" "), expected);
        assert!(heading(2, 2).starts_with("time   load  w1 in flight / cap"));
    }
}
