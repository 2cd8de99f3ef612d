//! `P:stats` in memory (`lua/include/stats.lua`). Numbers are whole; what is missing or is none is `None`.

use super::script::{Script, Step};
use super::shard::{Hash, whole};

/// See the module. Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stats {
    pub(super) epoch: Option<String>,
    pub(super) revision: Option<i64>,
    pub(super) born: Option<i64>,
    pub(super) heard: Option<i64>,
    pub(super) healing_until: Option<i64>,
    pub(super) grace_until: Option<i64>,
    pub(super) inflight_total: Option<i64>,
    pub(super) live: Option<i64>,
    pub(super) live_busy: Option<i64>,
    /// Missing is 0, and is not written before it changes.
    pub(super) away_ms: i64,
    /// As `away_ms`.
    pub(super) fleet_version: i64,
    /// As `away_ms`. Releases per second.
    pub(super) drain_rate: f64,
    pub(super) drain_ms: Option<i64>,
    pub(super) shed_ms: Option<i64>,
    pub(super) shed_now: Option<i64>,
    pub(super) shed_before: Option<i64>,
}

impl Stats {
    fn read(h: &Hash) -> Self {
        let n = |name: &str| whole(h.get(name));
        let rate = h.get("drain_rate").and_then(|text| text.parse().ok()).filter(|x: &f64| x.is_finite());
        Self {
            epoch: h.get("epoch").cloned(),
            revision: n("revision"),
            born: n("born"),
            heard: n("heard"),
            healing_until: n("healing_until"),
            grace_until: n("grace_until"),
            inflight_total: n("inflight_total"),
            live: n("live"),
            live_busy: n("live_busy"),
            away_ms: n("away_ms").unwrap_or(0),
            fleet_version: n("fleet_version").unwrap_or(0),
            drain_rate: rate.unwrap_or(0.0),
            drain_ms: n("drain_ms"),
            shed_ms: n("shed_ms"),
            shed_now: n("shed_now"),
            shed_before: n("shed_before"),
        }
    }

    /// Without these the state cannot be trusted. A revision is never below the one its epoch began with.
    fn is_whole(&self) -> bool {
        let vital = [self.inflight_total, self.live, self.live_busy];
        let revision = self.revision.is_some_and(|r| r >= self.born.unwrap_or(0).saturating_mul(1_000));
        self.epoch.is_some() && revision && vital.iter().all(Option::is_some)
    }

    fn fields(&self) -> [(&'static str, Option<String>); 16] {
        let n = |x: Option<i64>| x.map(|x| x.to_string());
        [
            ("epoch", self.epoch.clone()),
            ("revision", n(self.revision)),
            ("born", n(self.born)),
            ("heard", n(self.heard)),
            ("healing_until", n(self.healing_until)),
            ("grace_until", n(self.grace_until)),
            ("inflight_total", n(self.inflight_total)),
            ("live", n(self.live)),
            ("live_busy", n(self.live_busy)),
            ("away_ms", n(Some(self.away_ms))),
            ("fleet_version", n(Some(self.fleet_version))),
            ("drain_rate", Some(format!("{:.6}", self.drain_rate))),
            ("drain_ms", n(self.drain_ms)),
            ("shed_ms", n(self.shed_ms)),
            ("shed_now", n(self.shed_now)),
            ("shed_before", n(self.shed_before)),
        ]
    }
}

impl Script<'_> {
    /// True if `P:stats` is whole.
    pub(super) fn load_stats(&mut self) -> Step<bool> {
        self.s = Stats::read(self.d.stats.read()?);
        self.stored = self.s.clone();
        Ok(self.s.is_whole())
    }

    /// Writes what has changed; after a new epoch has begun, everything.
    pub(super) fn save_stats(&mut self, everything: bool) -> Step<()> {
        if self.s == self.stored && !everything {
            return Ok(());
        }
        let stats = self.d.stats.write()?;
        for ((name, now), (_, before)) in self.s.fields().into_iter().zip(self.stored.fields()) {
            if let Some(text) = now.filter(|text| everything || before.as_ref() != Some(text)) {
                stats.insert(name.to_owned(), text);
            }
        }
        self.stored = self.s.clone();
        Ok(())
    }

    /// The epoch in force.
    pub(super) fn epoch(&self) -> String {
        self.s.epoch.clone().unwrap_or_default()
    }

    /// The revision in force.
    pub(super) fn revision(&self) -> u64 {
        unsigned(self.s.revision.unwrap_or(0))
    }

    /// One more.
    pub(super) fn revise(&mut self) {
        self.s.revision = Some(self.s.revision.unwrap_or(0) + 1);
    }

    /// A change of members, caps or flags.
    pub(super) fn revise_fleet(&mut self) {
        self.revise();
        self.s.fleet_version += 1;
    }

    /// For how long an epoch still heals, in milliseconds.
    pub(super) fn healing_left(&self) -> u64 {
        unsigned(self.s.healing_until.unwrap_or(0) - self.now)
    }

    /// Redis's own absence is being made up for: nobody is reaped.
    pub(super) fn grace(&self) -> bool {
        self.s.grace_until.is_some_and(|t| self.now < t)
    }
}

/// A number that is not negative; negative ones are 0.
pub(super) fn unsigned(x: i64) -> u64 {
    u64::try_from(x).unwrap_or(0)
}
