//! Changes of the text of one mapping.

use std::ops::Range;

use serde_json::{Map, Value};

use super::spans::{SpanContent, SpanNode};
use crate::config::scalar::{Meaning, meaning_of};

/// A range of bytes with its new text.
type Replacement = (Range<usize>, String);

const MULTILINE: &str = "a value of the limit has several lines";

/// The text of a file after keys of the mapping at `limit` have changed.
pub(super) fn changed(
    text: &str,
    limit: &SpanNode,
    keys: &Map<String, Value>,
) -> Result<String, &'static str> {
    let mut replacements = match &limit.content {
        SpanContent::Map { pairs, is_flow } => {
            let mapping = Mapping { text, limit, pairs, is_flow: *is_flow, keys };
            mapping.replacements()?
        }
        SpanContent::Alias => {
            let alias = text.get(limit.range.clone()).ok_or(MULTILINE)?.trim_end();
            let end = limit.range.start.saturating_add(alias.len());
            let stated: Vec<String> = stated(keys).map(|(key, value)| format!(", {key}: {value}")).collect();
            vec![(limit.range.start..end, format!("{{<<: {alias}{}}}", stated.concat()))]
        }
        SpanContent::Scalar(_) | SpanContent::List(_) => return Err("the limit is not a mapping"),
    };
    replacements.sort_by_key(|(range, _)| range.start);
    let (mut result, mut rest) = (String::with_capacity(text.len()), 0);
    for (range, new) in replacements {
        result.push_str(text.get(rest..range.start).ok_or(MULTILINE)?);
        result.push_str(&new);
        rest = range.end;
    }
    result.push_str(text.get(rest..).ok_or(MULTILINE)?);
    Ok(result)
}

/// Keys with values, as YAML.
fn stated(keys: &Map<String, Value>) -> impl Iterator<Item = (&String, String)> {
    keys.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, yaml(value)))
}

/// The value in one line of YAML: a text is plain where it stays a text.
fn yaml(value: &Value) -> String {
    match value {
        Value::String(text) => {
            let is_simple =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
            let is_plain = !text.is_empty()
                && text.bytes().all(is_simple)
                && text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && matches!(meaning_of(text), Meaning::Text);
            if is_plain { text.clone() } else { value.to_string() }
        }
        // JSON is YAML.
        value => value.to_string(),
    }
}

/// A mapping of the file.
struct Mapping<'a> {
    text: &'a str,
    limit: &'a SpanNode,
    pairs: &'a [(SpanNode, SpanNode)],
    is_flow: bool,
    /// The keys that change.
    keys: &'a Map<String, Value>,
}

impl Mapping<'_> {
    /// Whether a pair remains, with any value.
    fn is_kept(&self, (key, _): &(SpanNode, SpanNode)) -> bool {
        !key.text().and_then(|name| self.keys.get(name)).is_some_and(Value::is_null)
    }

    fn replacements(&self) -> Result<Vec<Replacement>, &'static str> {
        let (mut replacements, mut added) = (Vec::new(), Vec::new());
        for (name, value) in self.keys {
            let known = self.pairs.iter().rposition(|(key, _)| key.text() == Some(name));
            match (known.and_then(|at| Some((at, self.pairs.get(at)?))), value.is_null()) {
                (Some((at, _)), true) => replacements.push((self.removal(at)?, String::new())),
                (Some((_, (key, old))), false) => {
                    replacements.push(self.replacement(key, old, &yaml(value))?);
                }
                (None, true) => {}
                (None, false) => added.push(format!("{name}: {}", yaml(value))),
            }
        }
        if !added.is_empty() {
            replacements.push(self.insertion(&added)?);
        }
        Ok(replacements)
    }

    /// Puts a new value in place of an old one.
    fn replacement(&self, key: &SpanNode, old: &SpanNode, new: &str) -> Result<Replacement, &'static str> {
        let stated = self.text.get(old.range.clone()).ok_or(MULTILINE)?.trim_end();
        if stated.is_empty() {
            // `key:` without a value.
            let behind = self.text.get(key.range.end..).ok_or(MULTILINE)?;
            let colon = behind.find(':').ok_or(MULTILINE)?;
            let at = key.range.end.saturating_add(colon).saturating_add(1);
            return Ok((at..at, format!(" {new}")));
        }
        let is_flow_or_scalar = match &old.content {
            SpanContent::Map { is_flow, .. } => *is_flow,
            SpanContent::Scalar(_) | SpanContent::Alias => !stated.contains('\n'),
            SpanContent::List(_) => stated.starts_with('['),
        };
        match is_flow_or_scalar {
            true => Ok((old.range.start..old.range.start.saturating_add(stated.len()), new.to_owned())),
            false => Err(MULTILINE),
        }
    }

    /// Adds keys behind the last one that has its value in its line.
    fn insertion(&self, added: &[String]) -> Result<Replacement, &'static str> {
        let (first, last) = (self.pairs.first(), self.pairs.last());
        if self.is_flow {
            return Ok(match last {
                Some((_, value)) => {
                    let at = self.end_of(value)?;
                    (at..at, format!(", {}", added.join(", ")))
                }
                None => {
                    let at = self.limit.range.end.saturating_sub(1);
                    (at..at, added.join(", "))
                }
            });
        }
        let ((first, _), end) = (first.ok_or(MULTILINE)?, self.line_end(self.text.len()));
        let indent = self.indent(first)?;
        let in_line = |(key, value): &&(SpanNode, SpanNode)| {
            matches!(value.content, SpanContent::Scalar(_) | SpanContent::Alias)
                && self
                    .text
                    .get(key.range.start..value.range.end)
                    .is_some_and(|pair| !pair.trim_end().contains('\n'))
        };
        let mut kept = self.pairs.iter().rev().filter(|pair| self.is_kept(pair));
        let (key, _) = kept.find(in_line).ok_or(MULTILINE)?;
        let at = self.line_end(key.range.start).min(end);
        let line_break =
            if self.text.get(..at).is_some_and(|before| before.ends_with('\r')) { "\r\n" } else { "\n" };
        let at = if line_break == "\r\n" { at.saturating_sub(1) } else { at };
        let lines: Vec<String> = added.iter().map(|pair| format!("{line_break}{indent}{pair}")).collect();
        Ok((at..at, lines.concat()))
    }

    /// The range of a pair with what separates it from the next.
    fn removal(&self, at: usize) -> Result<Range<usize>, &'static str> {
        const ALONE: &str = "the key shares its line with others";
        let (key, value) = self.pairs.get(at).ok_or(MULTILINE)?;
        if !self.pairs.iter().any(|pair| self.is_kept(pair)) {
            return Err("the limit has no other key");
        }
        if self.is_flow {
            // The separator behind it, unless no other key follows.
            let (before, behind) = self.pairs.split_at_checked(at).ok_or(MULTILINE)?;
            return Ok(match (behind.iter().any(|pair| self.is_kept(pair)), behind.get(1), before.last()) {
                (true, Some((next, _)), _) => key.range.start..next.range.start,
                (_, _, Some((_, before))) => self.last_of_flow((before, key, value))?,
                (_, _, None) => return Err("the limit has no other key"),
            });
        }
        let begin = self.text.get(..key.range.start).and_then(|before| before.rfind('\n'));
        let begin = begin.map_or(0, |at| at.saturating_add(1));
        let is_alone = self.text.get(begin..key.range.start).is_some_and(|before| before.trim().is_empty());
        if !is_alone {
            return Err(ALONE);
        }
        let end = self.line_end(self.end_of(value)?.max(key.range.end));
        Ok(begin..end.saturating_add(1).min(self.text.len()))
    }

    /// The range of the last pair in braces with the separator before it.
    fn last_of_flow(
        &self,
        (before, key, value): (&SpanNode, &SpanNode, &SpanNode),
    ) -> Result<Range<usize>, &'static str> {
        let range = self.end_of(before)?..self.end_of(value)?;
        let beside = [range.start..key.range.start, range.end..self.line_end(range.end)];
        let has_comment =
            beside.into_iter().filter_map(|part| self.text.get(part)).any(|part| part.contains('#'));
        // The comment behind the pair before would be lost, and that behind this one would follow the pair before.
        if has_comment && self.text.get(range.clone()).is_some_and(|text| text.contains('\n')) {
            return Err("the key is the last one in braces, beside a comment");
        }
        Ok(range)
    }

    /// The white space before a key, which begins its line.
    fn indent(&self, key: &SpanNode) -> Result<String, &'static str> {
        let before = self.text.get(..key.range.start).ok_or(MULTILINE)?;
        let line = before.rsplit('\n').next().unwrap_or_default();
        Ok(line.chars().map(|_| ' ').collect())
    }

    /// The end of a value without white space behind it.
    fn end_of(&self, value: &SpanNode) -> Result<usize, &'static str> {
        let text = self.text.get(value.range.clone()).ok_or(MULTILINE)?;
        Ok(value.range.start.saturating_add(text.trim_end().len()))
    }

    /// The end of the line, without its line feed.
    fn line_end(&self, from: usize) -> usize {
        let rest = self.text.get(from..).and_then(|rest| rest.find('\n'));
        rest.map_or(self.text.len(), |at| from.saturating_add(at))
    }
}
