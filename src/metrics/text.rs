//! Reads the text format of Prometheus pages, as far as engines use it. The crates for it do not take a colon in a
//! name, or a comma or brace in a label's value, which the engines' pages are full of.

use std::borrow::Cow;

/// One line of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Series<'a> {
    /// Its name, `_bucket` and the like included.
    pub name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Finite: lines with another value are left out.
    pub value: f64,
}

impl Series<'_> {
    /// A label's value.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(n, _)| *n == name).map(|(_, v)| &**v)
    }
}

/// The series whose name `wanted` takes. Lines that cannot be read are left out: a page may hold what we do not know.
#[must_use]
pub fn parse<'a>(page: &'a str, wanted: impl Fn(&str) -> bool) -> Vec<Series<'a>> {
    page.lines().filter_map(|line| series(line.trim(), &wanted)).collect()
}

fn series<'a>(line: &'a str, wanted: impl Fn(&str) -> bool) -> Option<Series<'a>> {
    let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    if name.starts_with('#') || !wanted(name) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(Series { name, labels, value })
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// What stands between the braces, and what stands behind them.
fn labels(mut text: &str) -> Option<(Labels<'_>, &str)> {
    let mut all = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((all, rest));
        }
        let (name, rest) = text.split_once('=')?;
        let (value, rest) = quoted(rest.trim_start().strip_prefix('"')?)?;
        all.push((name.trim(), value));
        text = rest;
    }
}

/// A value behind its opening quote, and what stands behind its closing one.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let end = text.find(['"', '\\'])?;
    let (plain, rest) = text.split_at(end);
    if let Some(rest) = rest.strip_prefix('"') {
        return Some((Cow::Borrowed(plain), rest));
    }
    let mut value = plain.to_owned();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), chars.as_str())),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_as_engines_write_them() {
        let page = concat!(
            "# HELP a:b some text {with=\"braces\"} 1\n",
            "# TYPE a:b gauge\n",
            "a:b{x=\"[]\",y=\"1,2}\", z=\"say \\\"hi\\\"\\n\\\\\",} 1.5 1700000000\n",
            "a:b 2e3\r\n",
            "  c{} 3\n",
            "c{x=\"open 4\n",
            "c{x=\"\"} NaN\n",
            "c +Inf\n",
            "c\n",
            "other 5\n",
        );
        let got = parse(page, |name| name != "other");
        let flat: Vec<_> = got.iter().map(|s| (s.name, s.value)).collect();
        assert_eq!(flat, [("a:b", 1.5), ("a:b", 2_000.0), ("c", 3.0)]);
        assert_eq!(got[0].label("x"), Some("[]"));
        assert_eq!(got[0].label("y"), Some("1,2}"));
        assert_eq!(got[0].label("z"), Some("say \"hi\"\n\\"));
        assert_eq!(got[0].label("w"), None);
    }
}
