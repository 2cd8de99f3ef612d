//! What Redis holds as text, read into types (design section 4). Whoever looks at live state reads it through here:
//! `status`, `doctor`, the tests.

use std::collections::BTreeMap;

use super::busy::{Away, Freshness, Rank, Signal};
use super::op::FigureKind;

/// The fields of a hash.
pub type Fields = BTreeMap<String, String>;

/// A number as scripts write it: decimal digits, perhaps with a fraction, which is dropped. None for anything else.
#[must_use]
pub fn number(text: &str) -> Option<u64> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let digits = !whole.is_empty() && whole.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| whole.parse().ok()).flatten()
}

/// A numeric field; none if it is missing or no number.
#[must_use]
pub fn field(fields: &Fields, name: &str) -> Option<u64> {
    fields.get(name).and_then(|text| number(text))
}

/// An entry of `P:gate`: `incarnation|cap|closed|url`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate<'a> {
    /// As in [`super::id::Incarnation`].
    pub incarnation: &'a str,
    /// Most requests; none = no cap.
    pub cap: Option<u64>,
    /// Letters of b(usy) d(raining) e(ngine down) s(kipped) x (expired); empty = open.
    pub closed: &'a str,
    /// Where the sidecar listens.
    pub url: &'a str,
}

impl<'a> Gate<'a> {
    /// Reads one.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(4, '|');
        let (incarnation, cap, closed, url) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let cap = if cap.is_empty() { None } else { Some(number(cap)?) };
        let known = closed.chars().all(|letter| "bdesx".contains(letter));
        known.then_some(Self { incarnation, cap, closed, url })
    }

    /// Has this letter.
    #[must_use]
    pub fn has(&self, letter: char) -> bool {
        self.closed.contains(letter)
    }

    /// Neither draining, nor engine down, nor expired.
    #[must_use]
    pub fn live(&self) -> bool {
        !self.closed.contains(['d', 'e', 'x'])
    }
}

/// An entry of `P:seq`: `epoch|seq|leases`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seq<'a> {
    /// The epoch in which the frontend's leases count.
    pub epoch: &'a str,
    /// Its highest call.
    pub seq: u64,
    /// How many leases its hash holds.
    pub leases: u64,
}

impl<'a> Seq<'a> {
    /// Reads one.
    #[must_use]
    pub fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '|');
        let (leases, seq, epoch) = (number(parts.next()?)?, number(parts.next()?)?, parts.next()?);
        Some(Self { epoch, seq, leases })
    }
}

/// A lease, `worker|incarnation|tokens`, split from the right (a worker's name may hold a bar): worker and incarnation.
#[must_use]
pub fn lease(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.rsplitn(3, '|');
    let (_tokens, incarnation, worker) = (number(parts.next()?)?, parts.next()?, parts.next()?);
    Some((worker, incarnation))
}

/// The declared ranks of `P:worker:<id>`: the number of each, and what is stored of it.
#[must_use]
pub fn ranks(worker: &Fields) -> Vec<(u64, Rank)> {
    let first = field(worker, "data_parallel_start_rank").unwrap_or(0);
    let size = field(worker, "data_parallel_size").unwrap_or(1).min(1_024);
    (first..first.saturating_add(size)).map(|number| (number, rank(worker, number))).collect()
}

fn rank(worker: &Fields, rank: u64) -> Rank {
    let figure = |kind: FigureKind| field(worker, &format!("{rank}.{}", kind.field()));
    let signal = |kind: FigureKind| {
        let at_ms = field(worker, &format!("{rank}.{}_ms", kind.field()))?;
        figure(kind).map(|value| Signal { value, at_ms })
    };
    Rank {
        rank: u32::try_from(rank).unwrap_or(u32::MAX),
        active_decode_blocks: signal(FigureKind::ActiveDecodeBlocks),
        tracked_decode_blocks: signal(FigureKind::TrackedDecodeBlocks),
        active_prefill_tokens: signal(FigureKind::ActivePrefillTokens),
        tracked_prefill_tokens: signal(FigureKind::TrackedPrefillTokens),
        kv_total_blocks: figure(FigureKind::KvTotalBlocks),
        max_num_batched_tokens: figure(FigureKind::MaxNumBatchedTokens),
    }
}

/// Redis's own absence is being made up for: nobody is reaped and nothing goes stale.
#[must_use]
pub fn in_grace(stats: &Fields, now_ms: u64) -> bool {
    field(stats, "grace_until").is_some_and(|until| now_ms < until)
}

/// Until when signals count, at `now_ms` of Redis. Time in which Redis was away does not age them.
#[must_use]
pub fn freshness(stats: &Fields, load_ttl_ms: u64, now_ms: u64) -> Freshness {
    let away = in_grace(stats, now_ms).then(|| Away {
        lasted_ms: field(stats, "away_ms").unwrap_or(0),
        until_ms: field(stats, "grace_until").unwrap_or(0),
    });
    Freshness { now_ms, ttl_ms: load_ttl_ms, away }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_leases_and_registries_are_read() {
        let gate = Gate::read("17-ab|6|be|http://h:1/a|b").unwrap();
        assert_eq!((gate.incarnation, gate.cap, gate.url), ("17-ab", Some(6), "http://h:1/a|b"));
        assert!(gate.has('b') && gate.has('e') && !gate.has('x') && !gate.live());
        assert_eq!(Gate::read("17-ab|||u").map(|gate| (gate.cap, gate.live())), Some((None, true)));
        for text in ["", "17-ab", "17-ab|6|b", "17-ab|six||u", "17-ab|6|q|u"] {
            assert_eq!(Gate::read(text), None, "{text}");
        }
        assert_eq!(lease("a|b|17-ab|3"), Some(("a|b", "17-ab")));
        assert_eq!(lease("a|17-ab"), None);
        assert_eq!(Seq::read("5-x|7|2"), Some(Seq { epoch: "5-x", seq: 7, leases: 2 }));
        assert_eq!(Seq::read("5-x|7|-2"), None);
    }

    #[test]
    fn only_declared_ranks_are_read() {
        let fields = [
            ("data_parallel_start_rank", "2"),
            ("data_parallel_size", "2"),
            ("2.active_decode_blocks", "9"),
            ("2.active_decode_blocks_ms", "100"),
            ("2.kv_total_blocks", "10"),
            ("3.active_decode_blocks", "9"),
            ("0.kv_total_blocks", "7"),
        ];
        let worker: Fields = fields.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        let ranks = ranks(&worker);
        assert_eq!(ranks.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(ranks[0].1.active_decode_blocks, Some(Signal { value: 9, at_ms: 100 }));
        assert_eq!(ranks[0].1.kv_total_blocks, Some(10));
        assert_eq!(ranks[1].1, Rank { rank: 3, ..Rank::default() }, "a signal without a time does not count");
    }

    #[test]
    fn grace_stops_the_clock() {
        let mut stats = Fields::new();
        let ends = |stats: &Fields, now_ms| freshness(stats, 5_000, now_ms).ends(Signal { value: 1, at_ms: 4_000 });
        assert_eq!(ends(&stats, 10_000), 9_000);
        stats.insert("away_ms".into(), "4000".into());
        stats.insert("grace_until".into(), "12000".into());
        assert_eq!(ends(&stats, 10_000), 12_000);
        assert_eq!(ends(&stats, 12_000), 9_000);
    }
}
