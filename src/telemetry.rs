//! Logs: to standard error, as text or JSON, filtered by `--log`, `TIDEGATE_LOG` or `RUST_LOG`.

use tracing_subscriber::EnvFilter;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For log collectors: one JSON object a line.
    Json,
}

/// What is logged, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Checked by [`check_filter`]; none: [`DEFAULT_FILTER`].
    pub filter: Option<String>,
    /// How lines look.
    pub format: Format,
}

/// What is logged if nobody says.
pub const DEFAULT_FILTER: &str = "info";

/// A level, or a filter as `tracing` knows it.
///
/// # Errors
/// Says what is wrong with it.
pub fn check_filter(text: &str) -> Result<String, String> {
    let level = !text.is_empty() && text.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let directive = text.contains(['=', ',']) && EnvFilter::try_new(text).is_ok();
    if level || directive {
        return Ok(text.to_owned());
    }
    Err("must be error, warn, info, debug, trace or off, or a filter such as info,tidegate=debug".into())
}

/// Sets up the log of this process. A second call changes nothing.
pub fn init(settings: &Settings) {
    let filter = EnvFilter::try_new(settings.filter.as_deref().unwrap_or(DEFAULT_FILTER));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let _already = match settings.format {
        Format::Text => builder.with_ansi(colour).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_checked() {
        for text in ["info", "DEBUG", "off", "info,tidegate=debug", "tidegate::store=trace"] {
            assert!(check_filter(text).is_ok(), "{text}");
        }
        for text in ["", "loud", "info,tidegate=loud", "tidegate=="] {
            assert!(check_filter(text).is_err(), "{text}");
        }
    }
}
