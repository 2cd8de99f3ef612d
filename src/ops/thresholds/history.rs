//! Who changed what: `P:config:history`, and taking a change back.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::json;

use crate::core::id::ModelName;
use crate::core::stored::{Fields, field, number};
use crate::ops::{Error, table};
use crate::store::{Journal, Record, Store};

/// About as many as the journal keeps.
const ALL: usize = 1_000;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Redis time in milliseconds. All fields of one change have the same.
    at_ms: u64,
    version: u64,
    field: String,
    /// None: it was not set.
    old: Option<String>,
    /// None: it was unset.
    new: Option<String>,
    source: String,
}

impl Entry {
    fn read(record: &Record) -> Option<Self> {
        let fields: Fields = record.fields.iter().cloned().collect();
        let set = |name: &str| fields.get(name).cloned().filter(|text| !text.is_empty());
        Some(Self {
            at_ms: record.id.split_once('-').and_then(|(ms, _)| number(ms))?,
            version: field(&fields, "version")?,
            field: set("field")?,
            old: set("old"),
            new: set("new"),
            source: set("source").unwrap_or_default(),
        })
    }
}

/// Newest first.
async fn entries(store: &Store, model: &ModelName, limit: usize) -> Result<Vec<Entry>, Error> {
    let records = store.journal(model, Journal::History, limit).await.map_err(Error::redis(store))?;
    Ok(records.iter().filter_map(Entry::read).collect())
}

/// Prints the latest changes.
pub(super) async fn show(
    store: &Store,
    model: &ModelName,
    limit: usize,
    as_json: bool,
    out: &mut (dyn Write + Send),
) -> Result<(), Error> {
    let entries = entries(store, model, limit.clamp(1, ALL)).await?;
    if as_json {
        let list = entries.iter().map(|e| {
            json!({
                "at_ms": e.at_ms, "version": e.version, "field": e.field, "old": e.old, "new": e.new, "source": e.source,
            })
        });
        writeln!(out, "{:#}", json!({ "model": model.as_str(), "history": list.collect::<Vec<_>>() }))?;
        return Ok(());
    }
    writeln!(out, "model {model}")?;
    if entries.is_empty() {
        writeln!(out, "  nothing has been changed")?;
        return Ok(());
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let rows = entries.iter().map(|e| {
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(e.at_ms)).to_string();
        vec![e.version.to_string(), at, e.source.clone(), e.field.clone(), text(&e.old), text(&e.new)]
    });
    write!(out, "{}", table::render(&["VERSION", "AT", "BY", "FIELD", "OLD", "NEW"], rows))?;
    Ok(())
}

/// What must be set to take back a change: the last one, or that of `version`.
pub(super) async fn undo(
    store: &Store,
    model: &ModelName,
    version: Option<u64>,
) -> Result<Vec<(String, Option<String>)>, Error> {
    let entries = entries(store, model, ALL).await?;
    let applied = store.hash(model, "config:applied").await.map_err(Error::redis(store))?.into_iter().collect();
    reverse(&entries, &applied, version).map_err(|why| Error::Undo(format!("model {model}: {why}")))
}

/// All fields that one call changed go back together. A field that was changed again since is not touched.
fn reverse(entries: &[Entry], applied: &Fields, version: Option<u64>) -> Result<Vec<(String, Option<String>)>, String> {
    let wanted = |entry: &&Entry| version.is_none_or(|version| entry.version == version);
    let Some(chosen) = entries.iter().find(wanted) else {
        return Err(match version {
            Some(version) => format!("the history has no version {version}"),
            None => "nothing has been changed yet".to_owned(),
        });
    };
    let together = |entry: &&Entry| entry.at_ms == chosen.at_ms && entry.source == chosen.source;
    // Oldest last: of a field that changed twice within the change, the first old value is the one to go back to.
    let mut changes: Vec<(String, Option<String>)> = Vec::new();
    for entry in entries.iter().filter(together) {
        match changes.iter_mut().find(|(field, _)| *field == entry.field) {
            Some(change) => change.1.clone_from(&entry.old),
            None if applied.get(&entry.field) == entry.new.as_ref() => {
                changes.push((entry.field.clone(), entry.old.clone()));
            }
            None => {
                let now = applied.get(&entry.field).map_or("not set", String::as_str);
                let made = entry.new.as_deref().unwrap_or("not set");
                return Err(format!(
                    "version {} made {} {made}, but now it is {now}: it was changed again; set it by name",
                    entry.version, entry.field
                ));
            }
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at_ms: u64, version: u64, field: &str, old: &str, new: &str) -> Entry {
        let fields = [
            ("version", version.to_string().as_str()),
            ("field", field),
            ("old", old),
            ("new", new),
            ("source", "cli"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()));
        Entry::read(&Record { id: format!("{at_ms}-0"), fields: fields.into() }).unwrap()
    }

    fn applied(list: &[(&str, &str)]) -> Fields {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_last_change_goes_back_whole() {
        let entries = [entry(9, 3, "b", "1", ""), entry(9, 2, "a", "", "7"), entry(5, 1, "b", "", "1")];
        let changes = reverse(&entries, &applied(&[("a", "7")]), None);
        assert_eq!(changes, Ok(vec![("b".into(), Some("1".into())), ("a".into(), None)]));
    }

    #[test]
    fn an_older_change_goes_back_only_if_nobody_changed_it_since() {
        let entries = [entry(9, 3, "b", "1", "2"), entry(8, 2, "a", "", "7"), entry(5, 1, "b", "", "1")];
        let now = applied(&[("a", "7"), ("b", "2")]);
        assert_eq!(reverse(&entries, &now, Some(2)), Ok(vec![("a".into(), None)]));
        let refused = reverse(&entries, &now, Some(1)).unwrap_err();
        assert!(refused.contains("changed again"), "{refused}");
        assert!(reverse(&entries, &now, Some(7)).unwrap_err().contains("no version 7"));
        assert!(reverse(&[], &now, None).is_err());
    }

    #[test]
    fn garbled_lines_are_passed_over() {
        assert_eq!(Entry::read(&Record { id: "x".into(), fields: Vec::new() }), None);
        assert_eq!(Entry::read(&Record { id: "5-0".into(), fields: vec![("field".into(), "a".into())] }), None);
    }
}
