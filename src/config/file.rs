//! The layers of the built-in settings and of the file given with `--config`: TOML, keys at the top for every command
//! that knows them, and a section per command.

use std::path::Path;

use config::{Config, File, FileFormat, Map, Source, Value, ValueKind};

use super::{DEFAULT, Schema, SettingsError};

/// What layer 0 is called in messages.
pub(super) const BUILT_IN: &str = "the built-in default.toml";

/// Layer 0.
pub(super) fn built_in(schema: &Schema) -> Result<Map<String, Value>, SettingsError> {
    let root = read(Config::builder().add_source(File::from_str(DEFAULT, FileFormat::Toml)), BUILT_IN)?;
    flatten(root, BUILT_IN, schema)
}

/// Layer 1.
pub(super) fn layer(path: &Path, schema: &Schema) -> Result<Map<String, Value>, SettingsError> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|why| SettingsError::File { file: name.clone(), reason: why.to_string() })?;
    flatten(read(Config::builder().add_source(File::from_str(&text, FileFormat::Toml)), &name)?, &name, schema)
}

fn read(
    builder: config::ConfigBuilder<config::builder::DefaultState>,
    file: &str,
) -> Result<Map<String, Value>, SettingsError> {
    let error = |why: config::ConfigError| SettingsError::File { file: file.to_owned(), reason: why.to_string() };
    builder.build().map_err(error)?.collect().map_err(error)
}

/// One flat layer of the keys that the running command knows; its own section goes over the top.
fn flatten(root: Map<String, Value>, file: &str, schema: &Schema) -> Result<Map<String, Value>, SettingsError> {
    let (mut top, mut own) = (Map::new(), Map::new());
    for (key, value) in root {
        match (value.kind.clone(), schema.keys.get(&key)) {
            (ValueKind::Table(section), Some(known)) => {
                for (inner, value) in section {
                    if !known.contains(&inner) {
                        return Err(unknown(&format!("{key}.{inner}"), &value, file));
                    }
                    if key == schema.command {
                        own.insert(inner.clone(), at(value, &format!("{key}.{inner} in {file}")));
                    }
                }
            }
            _ if !schema.anybodys(&key) => return Err(unknown(&key, &value, file)),
            _ if schema.own(&key) => {
                let value = at(value, &format!("{key} in {file}"));
                top.insert(key, value);
            }
            _ => {}
        }
    }
    top.extend(own);
    Ok(top)
}

fn at(value: Value, origin: &str) -> Value {
    Value::new(Some(&origin.to_owned()), value.kind)
}

fn unknown(key: &str, value: &Value, file: &str) -> SettingsError {
    SettingsError::UnknownKey { key: key.to_owned(), value: value.to_string(), file: file.to_owned() }
}
