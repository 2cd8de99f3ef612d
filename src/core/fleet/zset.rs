//! A sorted set as Redis has it: members by score, and by their bytes where scores are equal.

use std::collections::{BTreeMap, BTreeSet};

/// A score with a total order.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Members with scores. Scores are never NaN.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Zset {
    scores: BTreeMap<String, f64>,
    order: BTreeSet<(Score, String)>,
}

impl Zset {
    /// `ZSCORE`.
    #[must_use]
    pub fn score(&self, member: &str) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// `ZADD`.
    pub fn insert(&mut self, member: &str, score: f64) {
        self.remove(member);
        self.scores.insert(member.to_owned(), score);
        self.order.insert((Score(score), member.to_owned()));
    }

    /// `ZREM`.
    pub fn remove(&mut self, member: &str) {
        if let Some((member, score)) = self.scores.remove_entry(member) {
            self.order.remove(&(Score(score), member));
        }
    }

    /// `ZCARD`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// No member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// `ZRANGE key 0 -1 WITHSCORES`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.order.iter().map(|(score, member)| (member.as_str(), score.0))
    }

    /// `ZRANK`.
    #[must_use]
    pub fn rank(&self, member: &str) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.range(..(Score(score), member.to_owned())).count())
    }

    /// `ZRANGEBYSCORE key -inf (latest LIMIT 0 most`.
    #[must_use]
    pub fn before(&self, latest: i64, most: usize) -> Vec<String> {
        self.iter().take_while(|(_, score)| *score < double(latest)).take(most).map(|(m, _)| m.to_owned()).collect()
    }

    /// `ZRANGEBYSCORE key -inf latest LIMIT 0 most`.
    #[must_use]
    pub fn until(&self, latest: i64, most: usize) -> Vec<String> {
        self.iter().take_while(|(_, score)| *score <= double(latest)).take(most).map(|(m, _)| m.to_owned()).collect()
    }

    /// Lowers the scores above `latest` to it.
    pub fn no_later(&mut self, latest: i64) {
        let late = self.iter().filter(|(_, score)| *score > double(latest));
        for member in late.map(|(m, _)| m.to_owned()).collect::<Vec<_>>() {
            self.insert(&member, double(latest));
        }
    }
}

/// Times and counts are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "times and counts are below 2^53")]
pub(super) fn double(x: i64) -> f64 {
    x as f64
}
