//! What texts mean: each function checks one kind of value and says what it must be. Numbers follow the rules of
//! `P:config` ([`crate::core::thresholds`]): digits and nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::id::NameError;
use crate::core::thresholds::{Field, decimal, integer};

use super::secret::Secret;

/// An integer from `least` to `most`.
///
/// # Errors
/// Anything else: signs, spaces, points, other bases, out of range.
pub fn whole(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| {
        let found = integer(text).filter(|number| (least..=most).contains(number));
        found.ok_or_else(|| format!("must be an integer from {least} to {most}"))
    }
}

/// As [`whole`], for figures of 32 bits.
///
/// # Errors
/// As [`whole`].
pub fn small(least: u32, most: u32) -> impl Fn(&str) -> Result<u32, String> {
    move |text| {
        let number = whole(least.into(), most.into())(text)?;
        u32::try_from(number).map_err(|_| format!("must be an integer from {least} to {most}"))
    }
}

/// As [`whole`], for sizes of things in memory.
///
/// # Errors
/// As [`whole`].
pub fn size(least: usize, most: usize) -> impl Fn(&str) -> Result<usize, String> {
    move |text| {
        let found = integer(text).and_then(|number| usize::try_from(number).ok());
        let found = found.filter(|number| (least..=most).contains(number));
        found.ok_or_else(|| format!("must be an integer from {least} to {most}"))
    }
}

/// A time in whole milliseconds, in the given range.
///
/// # Errors
/// As [`whole`].
pub fn millis(least: u64, most: u64) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| whole(least, most)(text).map(Duration::from_millis)
}

/// A time in whole seconds, in the given range.
///
/// # Errors
/// As [`whole`].
pub fn seconds(least: u64, most: u64) -> impl Fn(&str) -> Result<Duration, String> {
    move |text| whole(least, most)(text).map(Duration::from_secs)
}

/// A finite number above 0, per second.
///
/// # Errors
/// Anything else, in the notation of [`crate::core::thresholds::decimal`].
pub fn rate(text: &str) -> Result<f64, String> {
    let found = decimal(text).filter(|rate| *rate > 0.0);
    found.ok_or_else(|| "must be a decimal number above 0".to_owned())
}

/// `true` or `false`; `1`/`0`, `yes`/`no` and `on`/`off` are read too, as the reference system does.
///
/// # Errors
/// Anything else.
pub fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// The address of a listener: `127.0.0.1:8000`, `[::1]:8000`, `0.0.0.0:8000`, `localhost:8000`; port 0 takes a free one.
///
/// # Errors
/// Anything else.
pub fn listen(text: &str) -> Result<SocketAddr, String> {
    let literal = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let refused = |_| "must be an address and a port, such as 127.0.0.1:8000 or [::]:8000".to_owned();
    literal.as_deref().unwrap_or(text).parse().map_err(refused)
}

/// A name with its own rules.
///
/// # Errors
/// Says which rule.
pub fn name<T>(parse: impl Fn(&str) -> Result<T, NameError>) -> impl Fn(&str) -> Result<T, String> {
    move |text| parse(text).map_err(|why| why.to_string())
}

/// One of a few words.
///
/// # Errors
/// Lists them.
pub fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&str) -> Result<T, String> {
    move |text| {
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.ok_or_else(|| format!("must be {}", words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")))
    }
}

/// A value for a field of `P:config`, kept as the text that was given.
///
/// # Errors
/// Says what the field holds.
pub fn field(field: Field) -> impl Fn(&str) -> Result<String, String> {
    move |text| match field.check(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("must be {}, or None", field.kind())),
    }
}

/// A file that holds one secret.
///
/// # Errors
/// It cannot be read, or does not hold one line of text.
pub fn secret_file(text: &str) -> Result<Secret, String> {
    Secret::read(&PathBuf::from(text)).map_err(|why| format!("cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_digits_in_range() {
        assert_eq!(whole(0, 16)("16"), Ok(16));
        assert_eq!(whole(0, 16)("007"), Ok(7));
        for text in
            ["", " 8000 ", "8000.0", "-1", "+1", "1_000", "99999999999999999999", "0x1", "1e3", "17", "None", "١"]
        {
            let refused = whole(0, 16)(text);
            assert_eq!(refused, Err("must be an integer from 0 to 16".into()), "{text:?}");
        }
    }

    #[test]
    fn listeners_need_address_and_port() {
        for (text, shown) in [
            ("127.0.0.1:8000", "127.0.0.1:8000"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::]:80", "[::]:80"),
            ("0.0.0.0:65535", "0.0.0.0:65535"),
        ] {
            assert_eq!(listen(text).map(|address| address.to_string()), Ok(shown.to_owned()));
        }
        for text in [
            "",
            "8000",
            ":8000",
            "127.0.0.1",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "127.0.0.1:-1",
            " 127.0.0.1:80",
            "127.0.0.1:80 ",
            "tcp://10.0.0.1:6379",
            "host:80",
            "::1:80",
            "127.0.0.1:8_0",
        ] {
            assert!(listen(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_and_switches() {
        let words = one_of(&[("static", 1), ("closed", 2)]);
        assert_eq!(words("closed"), Ok(2));
        assert_eq!(words("Closed"), Err("must be static, closed".into()));
        for (text, value) in
            [("true", true), ("True", true), ("on", true), ("1", true), ("no", false), ("false", false)]
        {
            assert_eq!(switch(text), Ok(value));
        }
        for text in ["", "2", "ja", " true", "truee"] {
            assert!(switch(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn fields_follow_the_rules_of_the_shared_configuration() {
        let decode = field(Field::ActiveDecodeBlocks);
        for text in ["0", "1", "0.85", "8.5e-1"] {
            assert_eq!(decode(text), Ok(text.to_owned()));
        }
        for text in ["nan", "NaN", "inf", "-inf", "-0.1", "1.0000001", "1e309", "0x1", "", "0,85", "85%"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
    }
}
