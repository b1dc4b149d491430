//! Descriptors as text: `key=value` pairs, separated by commas.

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_flags::PairText;
use tollgate_rules::ValueMatch;

/// A key and a value of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    pub key: String,
    pub value: String,
}

/// A key and a value of a list entry's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPair {
    pub key: String,
    pub value: String,
    /// Meaning of the value. A pattern is not stored as such, so that releases without exact values read it too; they
    /// omit and report entries with exact ones.
    #[serde(default, rename = "match", skip_serializing_if = "is_pattern")]
    pub value_match: ValueMatch,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The form that serde calls.
const fn is_pattern(value_match: &ValueMatch) -> bool {
    matches!(value_match, ValueMatch::Pattern)
}

impl ListPair {
    /// The value as a pattern.
    pub fn pattern(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), value_match: ValueMatch::Pattern }
    }

    /// The pair as three texts, which no other pair has.
    pub(crate) fn texts(&self) -> [&str; 3] {
        let value_match = if is_pattern(&self.value_match) { "pattern" } else { "exact" };
        [&self.key, &self.value, value_match]
    }

    /// The value as a text.
    pub fn exact(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), value_match: ValueMatch::Exact }
    }
}

impl fmt::Display for ListPair {
    /// `key=pattern`, or `key="text"` with `"`, `\` and control characters escaped as in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value_match {
            ValueMatch::Pattern => write!(f, "{}={}", self.key, self.value),
            ValueMatch::Exact => write!(f, "{}={}", self.key, serde_json::Value::from(&*self.value)),
        }
    }
}

/// Parses the pairs of a descriptor, in the syntax of [`tollgate_flags::pairs`]: a value in quotes is exact, another one is a
/// pattern.
///
/// # Errors
/// The first part that is not a pair.
pub fn parse_pairs(text: &str) -> Result<Vec<ListPair>, String> {
    let listed = |PairText { key, value, is_quoted }| {
        if is_quoted { ListPair::exact(&key, value) } else { ListPair::pattern(&key, &value) }
    };
    Ok(tollgate_flags::pairs(text)?.into_iter().map(listed).collect())
}

/// The text of pairs, as [`parse_pairs`] reads it.
pub fn pairs_text(pairs: &[impl ToString]) -> String {
    pairs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// `key=value`, with a value in quotes where [`parse_pairs`] needs them.
impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value } = self;
        let is_plain = !value.starts_with('"')
            && !value.contains(|letter: char| letter == ',' || letter.is_control())
            && value.trim() == value;
        match is_plain {
            true => write!(f, "{key}={value}"),
            false => write!(f, "{key}={}", serde_json::Value::from(&**value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_patterns_or_quoted_texts() {
        let exact = |key: &str, value: &str| ListPair::exact(key, value);
        let pattern = |key: &str, value: &str| ListPair::pattern(key, value);
        for (text, expected) in [
            ("k=a*,l=,m=x=y", vec![pattern("k", "a*"), pattern("l", ""), pattern("m", "x=y")]),
            (r#"k="*""#, vec![exact("k", "*")]),
            (r#"k="a,b=c",l=d"#, vec![exact("k", "a,b=c"), pattern("l", "d")]),
            (r#"k="\"\\\u00fc""#, vec![exact("k", "\"\\ü")]),
            (r#"k="",l="ü""#, vec![exact("k", ""), exact("l", "ü")]),
            (" k = a b , l = \" c \" ", vec![pattern("k", "a b"), exact("l", " c ")]),
            ("xff=1.2.3.4, ::1,k=v", vec![pattern("xff", "1.2.3.4, ::1"), pattern("k", "v")]),
            (
                "ua=M/5.0 (X, like b=c, d),k=v",
                vec![pattern("ua", "M/5.0 (X, like b=c, d)"), pattern("k", "v")],
            ),
        ] {
            assert_eq!(parse_pairs(text), Ok(expected), "{text}");
        }
        for text in
            ["", "k", "=v", "k=v,", "k=v,,l=w", "k=v, ", "k=v,=w", ",k=v", "a,b=c", r#"k=""#, r#"k="a"b"#]
        {
            assert!(parse_pairs(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_descriptor_can_be_entered_as_it_is_shown() {
        for value in ["*", "a,b=c", "", "ü\n\u{1}", r"\", "\"", " a", "a,"] {
            let listed = vec![ListPair::exact("k", value), ListPair::pattern("l", "a*")];
            let shown: Vec<String> = listed.iter().map(ToString::to_string).collect();
            assert_eq!(parse_pairs(&shown.join(",")), Ok(listed));
            let pair = Pair { key: "k".into(), value: value.into() };
            let read = parse_pairs(&format!("{pair},l=m")).expect("valid");
            assert_eq!((&*read[0].value, read.len()), (value, 2), "{pair}");
        }
    }
}
