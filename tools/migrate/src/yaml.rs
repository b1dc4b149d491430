//! Documents of a file of YAML.

use serde::Deserialize as _;
use serde_yaml::Value;

/// Returns every document of a file, in order; for one that does not parse, the line and the reason.
///
/// Documents are parsed one by one, so that a broken one does not hide those after it.
pub(super) fn documents(text: &str) -> Vec<Result<Value, String>> {
    let mut parts: Vec<(usize, String)> = vec![(0, String::new())];
    for (at, line) in text.lines().enumerate() {
        let separator =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        if let Some(rest) = separator {
            parts.push((at, rest.to_owned()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push('\n');
        }
    }
    parts.into_iter().filter_map(|(before, part)| parse(&part, before).transpose()).collect()
}

/// Parses the document that follows `before` lines of its file. An empty document yields `None`.
fn parse(text: &str, before: usize) -> Result<Option<Value>, String> {
    let reason = |error: serde_yaml::Error| match error.location() {
        Some(at) => format!("line {}: not valid YAML", at.line().saturating_add(before)),
        None => format!("after line {before}: not valid YAML"),
    };
    let document = Value::deserialize(serde_yaml::Deserializer::from_str(text)).map_err(reason)?;
    Ok(Some(document).filter(|document| !document.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_document_is_parsed_and_a_broken_one_is_reported_by_its_line() {
        let text = "a: 1\ntext: |\n  ---\n  x\n--- # two\n\n---\nb: [\n---\nc: {d: true, e: 1.5, 8: '1'}\n";
        let found = documents(text);
        let parsed: Vec<Option<&Value>> = found.iter().map(|document| document.as_ref().ok()).collect();
        let value = |text: &str| serde_yaml::from_str::<Value>(text).expect("valid");
        let (first, last) = (value("{a: 1, text: \"---\\nx\\n\"}"), value("c: {d: true, e: 1.5, 8: '1'}"));
        assert_eq!(parsed, [Some(&first), None, Some(&last)]);
        let error = found[1].as_ref().expect_err("broken");
        assert!(error.starts_with("line 8: ") || error.starts_with("line 9: "), "{error}");
    }

    #[test]
    fn a_document_that_expands_aliases_without_bound_is_refused() {
        let level =
            |name: char, of: char| format!("{name}: &{name} [{}]\n", vec![format!("*{of}"); 9].join(","));
        let levels: String = ('b'..='i').zip('a'..).map(|(name, of)| level(name, of)).collect();
        let found = documents(&format!("a: &a [x]\n{levels}"));
        assert!(found[0].is_err());
    }
}
