//! `lua/configure.lua` and `lua/include/config.lua`: what is written to `P:config`, and what of it is in force.

use super::script::{Script, Step, Stop, cut};
use super::shard::{Entry, bump, whole};
use super::stats::unsigned;
use super::zset::double;
use crate::core::op::{Configure, Configured, Source};
use crate::core::thresholds::Field;

const NOT_A_HASH: &str = "not a hash";
/// Workers that one change marks as due.
const DUE: usize = 256;

impl Script<'_> {
    pub(super) fn configure(&mut self, op: &Configure) -> Step<Configured> {
        if !self.d.stats.is_wrong() && self.d.stats.read()?.is_empty() {
            return Ok(Configured::Unknown);
        }
        match self.prologue(false) {
            Ok(()) | Err(Stop::Epoch(_)) => {}
            Err(stop) => return Err(stop),
        }
        if self.d.config.is_wrong() {
            return Ok(Configured::Invalid { field: "config".into(), value: NOT_A_HASH.into() });
        }
        let mut changes = Vec::with_capacity(op.changes.len());
        for (name, value) in &op.changes {
            // An empty text is no value: it unsets, too.
            let text = value.as_deref().filter(|text| !text.is_empty());
            match Field::parse(name) {
                Ok(field) if text.is_none_or(|text| field.check(text).is_ok()) => changes.push((field, text)),
                _ => return Ok(Configured::Invalid { field: cut(name), value: cut(text.unwrap_or("")) }),
            }
        }
        let mut changed = false;
        for (field, text) in changes {
            let name = field.name().to_owned();
            if op.source == Source::Seed {
                let mark = format!("seeded:{name}");
                let applied = self.d.applied.write()?;
                let first = !applied.contains_key(&mark);
                applied.entry(mark).or_insert_with(|| text.unwrap_or("").to_owned());
                if !first || self.d.config.read()?.contains_key(&name) {
                    continue;
                }
            }
            let config = self.d.config.write()?;
            match text {
                Some(text) => drop(config.insert(name.clone(), text.to_owned())),
                None => drop(config.remove(&name)),
            }
            if self.d.applied.write()?.remove(&format!("error:{name}")).is_some() {
                self.s.fleet_version += 1;
            }
            changed |= self.put_in_force(field, text, op.source.name())?;
        }
        if changed {
            self.all_due()?;
        }
        let config_version = self.config_version()?;
        let in_force = &self.in_force()?.texts;
        let applied = in_force.iter().map(|(field, text)| (field.name().to_owned(), text.clone())).collect();
        Ok(Configured::Ok { config_version, applied })
    }

    pub(super) fn config_version(&self) -> Step<u64> {
        Ok(whole(self.d.applied.read()?.get("config_version")).map_or(0, unsigned))
    }

    /// Puts one value into force (none: unset), with a new version and a line of history. What the change means for each
    /// worker is recomputed by that worker's next report, or by the sweep. True if it is a change.
    fn put_in_force(&mut self, field: Field, text: Option<&str>, source: &str) -> Step<bool> {
        let old = self.in_force()?.texts.get(&field).cloned();
        if old.as_deref() == text {
            return Ok(false);
        }
        let applied = self.d.applied.write()?;
        match text {
            Some(text) => drop(applied.insert(field.name().to_owned(), text.to_owned())),
            None => drop(applied.remove(field.name())),
        }
        let version = bump(applied, "config_version", 1);
        let in_force = self.in_force.get_or_insert_default();
        match text {
            Some(text) => drop(in_force.texts.insert(field, text.to_owned())),
            None => drop(in_force.texts.remove(&field)),
        }
        let _ = in_force.config.set(field, text);
        self.revise();
        let (old, new) = (old.unwrap_or_default(), text.unwrap_or_default());
        let entry: Entry = [
            ("version", version.to_string()),
            ("field", field.name().to_owned()),
            ("old", old.clone()),
            ("new", new.to_owned()),
            ("source", source.to_owned()),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
        self.d.history.append(self.now, 1_000, entry);
        self.transition("config", field.name(), &format!("{old} -> {new}"));
        Ok(true)
    }

    /// Every worker is to be recomputed: up to 256 by the next sweep, the rest by their own reports.
    fn all_due(&mut self) -> Step<()> {
        let workers: Vec<String> = self.d.workers.read()?.iter().take(DUE).map(|(w, _)| w.to_owned()).collect();
        let now = double(self.now);
        let due = self.d.due.write()?;
        workers.iter().for_each(|w| due.insert(w, now));
        Ok(())
    }

    /// Notices what was written to `P:config` by hand. A refused value leaves the one in force, and is shown as
    /// `error:<field>`, once per value.
    pub(super) fn notice(&mut self) -> Step<()> {
        let wrong = self.d.config.is_wrong();
        let shown = self.d.applied.read()?.get("error:config").cloned();
        if shown.as_deref() != wrong.then_some(NOT_A_HASH) {
            if wrong {
                self.d.applied.write()?.insert("error:config".into(), NOT_A_HASH.into());
                self.transition("refused", "config", NOT_A_HASH);
            } else {
                self.d.applied.write()?.remove("error:config");
            }
            self.s.fleet_version += 1;
        }
        if wrong {
            return Ok(());
        }
        let (mut changed, mut told) = (false, false);
        for field in Field::ALL {
            let error = format!("error:{}", field.name());
            let refused = self.d.applied.read()?.get(&error).cloned();
            let value = self.d.config.read()?.get(field.name()).cloned();
            let in_force = self.in_force()?.texts.get(&field).cloned();
            let bad = value.as_deref().filter(|text| in_force.as_deref() != Some(text) && field.check(text).is_err());
            if let Some(bad) = bad {
                let bad = cut(bad);
                if refused.as_ref() != Some(&bad) {
                    self.d.applied.write()?.insert(error, bad.clone());
                    self.transition("refused", field.name(), &bad);
                    told = true;
                }
                continue;
            }
            changed |= self.put_in_force(field, value.as_deref(), "redis")?;
            if refused.is_some() {
                self.d.applied.write()?.remove(&error);
                told = true;
            }
        }
        if told {
            self.s.fleet_version += 1;
        }
        if changed {
            self.all_due()?;
        }
        Ok(())
    }
}
