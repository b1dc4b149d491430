//! Descriptors as text: `key=value` pairs, separated by commas.

/// A pair of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairText {
    /// Key.
    pub key: String,
    /// Value, without its quotes.
    pub value: String,
    /// Whether the value was in quotes, and so is no pattern.
    pub is_quoted: bool,
}

/// Parses the pairs of a descriptor. A value in double quotes is a JSON string, which is exact. A comma without a following
/// `key=` is part of the value before it, so that lists of addresses need no quotes. Blanks around keys and values are
/// dropped.
///
/// # Errors
/// The first part that is not a pair.
pub fn pairs(text: &str) -> Result<Vec<PairText>, String> {
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

/// Parses the first pair, and returns what follows it: nothing, or a comma and more.
fn first_pair(text: &str) -> Result<(PairText, &str), String> {
    let pair = text.split_once('=').map(|(key, value)| (key.trim(), value.trim_start()));
    let Some((key, value)) = pair.filter(|(key, _)| !key.is_empty() && !key.contains(',')) else {
        let entry = text.split(',').next().unwrap_or_default();
        return Err(format!("`{entry}` is not an entry; expected KEY=VALUE"));
    };
    let pair = |value, is_quoted| PairText { key: key.to_owned(), value, is_quoted };
    if !value.starts_with('"') {
        let (value, behind) = value.split_at(value_len(value));
        return Ok((pair(value.trim_end().to_owned(), false), behind));
    }
    let mut texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    let exact = texts.next().and_then(Result::ok);
    let behind = value.get(texts.byte_offset()..).unwrap_or_default().trim_start();
    match exact {
        Some(exact) if behind.is_empty() || behind.starts_with(',') => Ok((pair(exact, true), behind)),
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
