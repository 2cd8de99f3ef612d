//! The settings of `tidegate status`, `thresholds` and `doctor`.

use crate::cli::flags;
use crate::config::{Resolved, SettingsError, parse};
use crate::core::id::ModelName;
use crate::core::thresholds::Field;
use crate::ops::thresholds::Action;
use crate::ops::{doctor, status, thresholds};

pub(super) fn status(given: &Resolved) -> Result<status::Settings, SettingsError> {
    Ok(status::Settings {
        model: model(given)?,
        json: given.required("json", parse::switch)?,
        watch: given.required("watch", parse::switch)?,
        interval: given.required("interval_ms", parse::millis(100, 3_600_000))?,
    })
}

pub(super) fn thresholds(given: &Resolved, typed: &flags::Thresholds) -> Result<thresholds::Settings, SettingsError> {
    let action = match &typed.command {
        flags::ThresholdsCommand::Get => Action::Get,
        flags::ThresholdsCommand::Set(change) => Action::Change(assignments(&change.changes)?),
        flags::ThresholdsCommand::Unset { fields } => {
            let fields = fields.iter().map(|name| Ok((field(name, name)?, None)));
            Action::Change(fields.collect::<Result<_, SettingsError>>()?)
        }
        flags::ThresholdsCommand::History { limit } => Action::History { limit: *limit },
        flags::ThresholdsCommand::Undo { version } => Action::Undo { version: *version },
    };
    Ok(thresholds::Settings { model: model(given)?, json: given.required("json", parse::switch)?, action })
}

pub(super) fn doctor(given: &Resolved, typed: &flags::Doctor) -> Result<doctor::Settings, SettingsError> {
    Ok(doctor::Settings {
        model: model(given)?,
        json: given.required("json", parse::switch)?,
        repair: typed.repair,
        pause: doctor::PAUSE,
        healing: doctor::HEALING,
    })
}

fn model(given: &Resolved) -> Result<Option<ModelName>, SettingsError> {
    given.optional("model", parse::name(ModelName::parse))
}

/// `FIELD=VALUE`, or `FIELD VALUE` as two arguments.
fn assignments(words: &[String]) -> Result<Vec<(Field, Option<String>)>, SettingsError> {
    let mut words = words.iter();
    let mut changes: Vec<(Field, Option<String>)> = Vec::new();
    while let Some(word) = words.next() {
        let (name, text) = match word.split_once('=') {
            Some((name, text)) => (name, text.to_owned()),
            None => {
                let text = words.next().cloned();
                (word.as_str(), text.ok_or_else(|| refused(word, word, "needs a value, as in FIELD=VALUE"))?)
            }
        };
        let field = field(name, word)?;
        if changes.iter().any(|(other, _)| *other == field) {
            return Err(refused(field.name(), &text, "is given twice"));
        }
        if text == "None" {
            changes.push((field, None));
        } else {
            let checked = parse::field(field)(&text).map_err(|why| refused(field.name(), &text, &why))?;
            changes.push((field, Some(checked)));
        }
    }
    Ok(changes)
}

fn field(name: &str, word: &str) -> Result<Field, SettingsError> {
    let plain = name.trim_start_matches("--").replace('-', "_");
    let known = || Field::ALL.iter().map(|field| field.name()).collect::<Vec<_>>().join(", ");
    Field::parse(&plain).map_err(|_| refused(name, word, &format!("is no field; there are {}", known())))
}

fn refused(name: &str, value: &str, reason: &str) -> SettingsError {
    SettingsError::Argument { name: name.to_owned(), value: value.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn assignments_take_both_forms() {
        let read =
            assignments(&words(&["active-decode-blocks-threshold=0.85", "max_inflight", "100", "router_mode=None"]));
        let want = vec![
            (Field::ActiveDecodeBlocks, Some("0.85".to_owned())),
            (Field::MaxInflight, Some("100".to_owned())),
            (Field::RouterMode, None),
        ];
        assert_eq!(read, Ok(want));
    }

    #[test]
    fn bad_assignments_are_named() {
        for (list, part) in [
            (vec!["decode=1"], "decode"),
            (vec!["max_inflight"], "needs a value"),
            (vec!["max_inflight=-1"], "-1"),
            (vec!["max_inflight="], "integer"),
            (vec!["active_decode_blocks_threshold=nan"], "nan"),
            (vec!["max_inflight=1", "max_inflight=2"], "twice"),
        ] {
            let message = assignments(&words(&list)).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
