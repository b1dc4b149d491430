//! Descriptors as text: `key=value` pairs, separated by commas.

use std::fmt;

use super::{ListPair, Pair};

/// Parses the pairs of a descriptor. A value in double quotes is a JSON string, which is exact. A comma without a following
/// `key=` is part of the value before it, so that lists of addresses need no quotes. Blanks around keys and values are
/// dropped.
///
/// # Errors
/// The first part that is not a pair.
pub fn parse_pairs(text: &str) -> Result<Vec<ListPair>, String> {
    let (mut pairs, mut rest) = (Vec::new(), text);
    loop {
        let (pair, behind) = first_pair(rest)?;
        pairs.push(pair);
        match behind.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Ok(pairs),
        }
    }
}

/// The text of pairs, as [`parse_pairs`] reads it.
pub fn pairs_text(pairs: &[impl ToString]) -> String {
    pairs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Parses the first pair, and returns what follows it: nothing, or a comma and more.
fn first_pair(text: &str) -> Result<(ListPair, &str), String> {
    let pair = text.split_once('=').map(|(key, value)| (key.trim(), value.trim_start()));
    let Some((key, value)) = pair.filter(|(key, _)| !key.is_empty() && !key.contains(',')) else {
        let entry = text.split(',').next().unwrap_or_default();
        return Err(format!("`{entry}` is not an entry; expected KEY=VALUE"));
    };
    if !value.starts_with('"') {
        let (value, behind) = value.split_at(value_len(value));
        return Ok((ListPair::pattern(key, value.trim_end()), behind));
    }
    let mut texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    let exact = texts.next().and_then(Result::ok);
    let behind = value.get(texts.byte_offset()..).unwrap_or_default().trim_start();
    match exact {
        Some(exact) if behind.is_empty() || behind.starts_with(',') => {
            Ok((ListPair::exact(key, exact), behind))
        }
        _ => Err(format!("`{value}` does not begin with a JSON string; expected e.g. `\"abc\"`")),
    }
}

/// Length of a value without quotes: up to a comma before another pair, or before nothing, which is an error.
fn value_len(text: &str) -> usize {
    let is_end = |behind: &str| {
        let part = behind.split(',').next().unwrap_or_default();
        let key = part.split_once('=').map(|(key, _)| key.trim());
        key.map_or(part.trim().is_empty(), |key| !key.contains([' ', '\t', '<', '>', '"', '\'', '/']))
    };
    let mut commas = text.match_indices(',').map(|(at, _)| at);
    let ends = |at: &usize| text.get(*at..).and_then(|rest| rest.strip_prefix(',')).is_some_and(is_end);
    commas.find(ends).unwrap_or(text.len())
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
