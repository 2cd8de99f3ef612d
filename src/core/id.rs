//! Names and identifiers. A name that exists as a value has been checked.

use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Shorter than one byte or longer than `max`.
    #[error("must be 1 to {max} bytes long, is {len}")]
    Length {
        /// Bytes given.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A control character, or one that this kind of name does not allow.
    #[error("must not contain {0:?}")]
    Character(char),
}

fn check(text: &str, max: usize, allowed: impl Fn(char) -> bool) -> Result<(), NameError> {
    if text.is_empty() || text.len() > max {
        return Err(NameError::Length { len: text.len(), max });
    }
    match text.chars().find(|c| !allowed(*c)) {
        Some(c) => Err(NameError::Character(c)),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $max:expr, $allowed:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a name.
            ///
            /// # Errors
            /// Says what is wrong with it; the caller adds which field it came from.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                check(text, $max, $allowed)?;
                Ok(Self(text.into()))
            }

            /// The name as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// A model: 1 to 256 bytes of UTF-8 without control characters, compared byte by byte (design section 4).
    ModelName, 256, |c: char| !c.is_control()
);
name!(
    /// A worker, unique per model: 1 to 256 bytes of UTF-8 without control characters (design section 4).
    WorkerId, 256, |c: char| !c.is_control()
);
name!(
    /// What all keys of a fleet begin with: `[A-Za-z0-9_.-]{1,64}` (design section 4).
    Namespace, 64, |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
);
name!(
    /// A frontend process: `<host>-<8 hex>`, new whenever it was answered `gone` (design section 3.3).
    FrontendId, 256, |c: char| !c.is_control()
);
name!(
    /// A lease: made by the frontend (UUID v7), never taken from a client (design section 3.3).
    LeaseId, 64, |c: char| c.is_ascii_graphic() && c != '|'
);

/// One life of a worker: `<ms>-<nonce>`. Ordered by the time of registration, then by the nonce's bytes, so that of
/// two processes with one worker id the same one wins everywhere (recovery protocol, H15).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Incarnation(Arc<str>);

impl Incarnation {
    /// Checks the form `<ms>-<nonce>`; the nonce is 1 to 32 of `[0-9A-Za-z]`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (ms, nonce) = text.split_once('-')?;
        let digits = !ms.is_empty() && ms.len() <= 16 && ms.bytes().all(|b| b.is_ascii_digit());
        let word = !nonce.is_empty() && nonce.len() <= 32 && nonce.bytes().all(|b| b.is_ascii_alphanumeric());
        (digits && word).then(|| Self(text.into()))
    }

    /// Puts one together.
    #[must_use]
    pub fn new(ms: u64, nonce: &str) -> Self {
        Self(format!("{ms}-{nonce}").into())
    }

    /// Redis time of the registration, in milliseconds.
    #[must_use]
    pub fn ms(&self) -> u64 {
        self.0.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0)
    }

    /// The part that the process itself made.
    #[must_use]
    pub fn nonce(&self) -> &str {
        self.0.split_once('-').map_or("", |(_, nonce)| nonce)
    }

    /// As stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialOrd for Incarnation {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Incarnation {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.ms().cmp(&other.ms()).then_with(|| self.nonce().as_bytes().cmp(other.nonce().as_bytes()))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
