//! The fields of `P:config`: their names, kinds and ranges, and the values in force (design sections 3.1, 3.6 and 4).
//! The one table of them: flags, files, `POST /busy_threshold`, `redis-cli HSET` and `lua/include/config.lua` accept the same.
//! An accepted value is kept as the text that was given, so no number is ever reformatted.

use std::fmt;

/// The largest integer that a double, and so a Lua number, holds exactly: 2^53-1.
pub const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Longest accepted text, in bytes. Longer ones are refused unread.
pub const MAX_TEXT: usize = 64;

/// A field of `P:config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `active_decode_blocks_threshold`: busy above this share of `kv_total_blocks`.
    ActiveDecodeBlocks,
    /// `active_prefill_tokens_threshold`: busy above so many tokens.
    ActivePrefillTokens,
    /// `active_prefill_tokens_threshold_frac`: busy above this multiple of `max_num_batched_tokens`.
    ActivePrefillTokensFrac,
    /// `max_inflight`: most admitted requests of the whole model.
    MaxInflight,
    /// `router_mode`.
    RouterMode,
    /// `load_ttl_ms`: how long a signal counts, in milliseconds.
    LoadTtlMs,
    /// `track_output_blocks`: sidecars count the tokens they relay.
    TrackOutputBlocks,
    /// `track_active_blocks`: `kv` routing counts what live leases reserved.
    TrackActiveBlocks,
    /// `kv_block_size`: tokens per KV block.
    KvBlockSize,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Decimal, with or without a point or an exponent, from 0 to `most`.
    Fraction {
        /// Largest value; none = any finite one.
        most: Option<u32>,
    },
    /// Decimal digits only.
    Integer {
        /// Smallest value.
        least: u64,
        /// Largest value.
        most: u64,
    },
    /// `true` or `false`.
    Switch,
    /// The name of a [`RouterMode`].
    Mode,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction { most: Some(most) } => write!(f, "a decimal number from 0 to {most}"),
            Self::Fraction { most: None } => f.write_str("a finite decimal number of at least 0"),
            Self::Integer { least, most } => write!(f, "an integer from {least} to {most}"),
            Self::Switch => f.write_str("true or false"),
            Self::Mode => {
                f.write_str("one of")?;
                RouterMode::ALL.iter().try_for_each(|mode| write!(f, " {mode}"))
            }
        }
    }
}

/// A checked value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Of a [`Kind::Fraction`]: finite and in range.
    Fraction(f64),
    /// Of a [`Kind::Integer`]: in range.
    Integer(u64),
    /// Of a [`Kind::Switch`].
    Switch(bool),
    /// Of a [`Kind::Mode`].
    Mode(RouterMode),
}

/// Why a value was refused. The message names field and value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no such field.
    #[error("{0}: no such field")]
    Field(String),
    /// The value is not of the field's kind, or out of its range.
    #[error("{field}: {value:?} is not {wanted}", field = field.name(), wanted = field.kind())]
    Value {
        /// Which field.
        field: Field,
        /// What was given, cut at 200 bytes.
        value: String,
    },
}

impl Field {
    /// Every field, in the order of design section 4.
    pub const ALL: [Self; 9] = [
        Self::ActiveDecodeBlocks,
        Self::ActivePrefillTokens,
        Self::ActivePrefillTokensFrac,
        Self::MaxInflight,
        Self::RouterMode,
        Self::LoadTtlMs,
        Self::TrackOutputBlocks,
        Self::TrackActiveBlocks,
        Self::KvBlockSize,
    ];

    /// As in `P:config`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveDecodeBlocks => "active_decode_blocks_threshold",
            Self::ActivePrefillTokens => "active_prefill_tokens_threshold",
            Self::ActivePrefillTokensFrac => "active_prefill_tokens_threshold_frac",
            Self::MaxInflight => "max_inflight",
            Self::RouterMode => "router_mode",
            Self::LoadTtlMs => "load_ttl_ms",
            Self::TrackOutputBlocks => "track_output_blocks",
            Self::TrackActiveBlocks => "track_active_blocks",
            Self::KvBlockSize => "kv_block_size",
        }
    }

    /// The field of this name.
    ///
    /// # Errors
    /// [`Problem::Field`].
    pub fn parse(name: &str) -> Result<Self, Problem> {
        let found = Self::ALL.into_iter().find(|field| field.name() == name);
        found.ok_or_else(|| Problem::Field(cut(name)))
    }

    /// What it holds, with its range.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::ActiveDecodeBlocks => Kind::Fraction { most: Some(1) },
            Self::ActivePrefillTokensFrac => Kind::Fraction { most: None },
            Self::ActivePrefillTokens | Self::MaxInflight => Kind::Integer { least: 0, most: MAX_INTEGER },
            Self::LoadTtlMs => Kind::Integer { least: 100, most: 3_600_000 },
            Self::KvBlockSize => Kind::Integer { least: 1, most: 1_048_576 },
            Self::TrackOutputBlocks | Self::TrackActiveBlocks => Kind::Switch,
            Self::RouterMode => Kind::Mode,
        }
    }

    /// The value that `text` stands for.
    ///
    /// # Errors
    /// [`Problem::Value`]: not of the field's kind, or out of range.
    pub fn check(self, text: &str) -> Result<Value, Problem> {
        let value = match self.kind() {
            Kind::Fraction { most } => {
                decimal(text).filter(|x| most.is_none_or(|most| *x <= f64::from(most))).map(Value::Fraction)
            }
            Kind::Integer { least, most } => integer(text).filter(|x| (least..=most).contains(x)).map(Value::Integer),
            Kind::Switch => match text {
                "true" => Some(Value::Switch(true)),
                "false" => Some(Value::Switch(false)),
                _ => None,
            },
            Kind::Mode => RouterMode::parse(text).map(Value::Mode),
        };
        value.ok_or_else(|| Problem::Value { field: self, value: cut(text) })
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Checks a value by the name of its field.
///
/// # Errors
/// See [`Problem`].
pub fn check(field: &str, text: &str) -> Result<Value, Problem> {
    Field::parse(field)?.check(text)
}

/// A whole number from 0 to 2^53-1, as digits and nothing else.
#[must_use]
pub fn integer(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|x| *x <= MAX_INTEGER)
}

/// A finite number of at least 0 in decimal notation: digits with at most one point among, before or behind them, and
/// perhaps an exponent. No sign in front, no spaces, no hex, no names.
#[must_use]
pub fn decimal(text: &str) -> Option<f64> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty());
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    (mantissa_ok && exponent_ok).then(|| text.parse::<f64>().ok()).flatten().filter(|x| x.is_finite())
}

/// The first 200 bytes at most, whole characters.
fn cut(text: &str) -> String {
    let end = (0..=text.len().min(200)).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// How a worker is chosen among the eligible ones (design section 3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum RouterMode {
    /// Least recently chosen, fleet-wide.
    RoundRobin,
    /// Any.
    Random,
    /// The less loaded of two random ones.
    PowerOfTwo,
    /// In flight / cap; ties to the least recently chosen.
    #[default]
    LeastLoaded,
    /// Least tracked KV load.
    Kv,
    /// The worker that the request names, or a refusal.
    Direct,
}

impl RouterMode {
    /// Every mode.
    pub const ALL: [Self; 6] =
        [Self::RoundRobin, Self::Random, Self::PowerOfTwo, Self::LeastLoaded, Self::Kv, Self::Direct];

    /// As in `P:config`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::PowerOfTwo => "power-of-two",
            Self::LeastLoaded => "least-loaded",
            Self::Kv => "kv",
            Self::Direct => "direct",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for RouterMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The values in force: `P:config:applied`, typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Share of `kv_total_blocks`, 0 to 1.
    pub active_decode_blocks_threshold: Option<f64>,
    /// Tokens.
    pub active_prefill_tokens_threshold: Option<u64>,
    /// Multiple of `max_num_batched_tokens`, finite, at least 0.
    pub active_prefill_tokens_threshold_frac: Option<f64>,
    /// Requests of the whole model.
    pub max_inflight: Option<u64>,
    /// How a worker is chosen.
    pub router_mode: RouterMode,
    /// How long a signal counts, 100 to 3,600,000 ms.
    pub load_ttl_ms: u64,
    /// Sidecars count the tokens they relay.
    pub track_output_blocks: bool,
    /// `kv` routing counts what live leases reserved.
    pub track_active_blocks: bool,
    /// Tokens per KV block, 1 to 1,048,576.
    pub kv_block_size: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            active_decode_blocks_threshold: None,
            active_prefill_tokens_threshold: None,
            active_prefill_tokens_threshold_frac: None,
            max_inflight: None,
            router_mode: RouterMode::LeastLoaded,
            load_ttl_ms: 5_000,
            track_output_blocks: false,
            track_active_blocks: true,
            kv_block_size: 16,
        }
    }
}

impl Config {
    /// Puts a value into force, or (none) the field's default.
    ///
    /// # Errors
    /// [`Problem::Value`]; nothing is changed then.
    pub fn set(&mut self, field: Field, text: Option<&str>) -> Result<(), Problem> {
        let value = text.map(|text| field.check(text)).transpose()?;
        let default = Self::default();
        match field {
            Field::ActiveDecodeBlocks => self.active_decode_blocks_threshold = value.and_then(fraction),
            Field::ActivePrefillTokens => self.active_prefill_tokens_threshold = value.and_then(whole),
            Field::ActivePrefillTokensFrac => self.active_prefill_tokens_threshold_frac = value.and_then(fraction),
            Field::MaxInflight => self.max_inflight = value.and_then(whole),
            Field::RouterMode => {
                self.router_mode = if let Some(Value::Mode(mode)) = value { mode } else { default.router_mode };
            }
            Field::LoadTtlMs => self.load_ttl_ms = value.and_then(whole).unwrap_or(default.load_ttl_ms),
            Field::TrackOutputBlocks => {
                self.track_output_blocks = value.and_then(switch).unwrap_or(default.track_output_blocks);
            }
            Field::TrackActiveBlocks => {
                self.track_active_blocks = value.and_then(switch).unwrap_or(default.track_active_blocks);
            }
            Field::KvBlockSize => self.kv_block_size = value.and_then(whole).unwrap_or(default.kv_block_size),
        }
        Ok(())
    }

    /// From fields and texts as in `P:config:applied`. Other fields, and values that nobody accepted, are passed over.
    #[must_use]
    pub fn of<'a>(applied: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut config = Self::default();
        for (name, text) in applied {
            if let Ok(field) = Field::parse(name) {
                let _ = config.set(field, Some(text));
            }
        }
        config
    }
}

fn fraction(value: Value) -> Option<f64> {
    if let Value::Fraction(x) = value { Some(x) } else { None }
}

fn whole(value: Value) -> Option<u64> {
    if let Value::Integer(x) = value { Some(x) } else { None }
}

fn switch(value: Value) -> Option<bool> {
    if let Value::Switch(x) = value { Some(x) } else { None }
}

#[cfg(test)]
mod tests;
