//! Values that never appear in a log, an error message or a page.

use std::fmt;
use std::io;
use std::path::Path;

/// A password or token. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Reads a file that holds one secret, such as a mounted Kubernetes secret. One trailing line break is not part
    /// of it.
    ///
    /// # Errors
    /// The file cannot be read, is not UTF-8, is empty, or has several lines or control characters.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text = text.strip_suffix('\r').unwrap_or(text);
        if text.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "is empty"));
        }
        if text.chars().any(char::is_control) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "must hold one line without control characters"));
        }
        Ok(Self::new(text))
    }

    /// The value itself: for the peer that asks for it, and nobody else.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_stars() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(secret.reveal(), "hunter2");
    }

    #[test]
    fn a_file_holds_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        for (text, want) in [
            ("hunter2\n", Some("hunter2")),
            ("hunter2\r\n", Some("hunter2")),
            ("hunter2", Some("hunter2")),
            (" spaced ", Some(" spaced ")),
            ("", None),
            ("\n", None),
            ("a\nb\n", None),
            ("a\0b", None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Secret::read(&path).ok().as_ref().map(Secret::reveal), want, "{text:?}");
        }
        assert!(Secret::read(&dir.path().join("absent")).is_err());
    }
}
