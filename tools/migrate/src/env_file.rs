//! Variables as lines, in the output formats of common tools.

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate::settings::reference_variables;

/// Variables of a file.
#[derive(Default)]
pub(super) struct FileVariables {
    /// Values by name; the last occurrence of a name applies.
    pub(super) variables: BTreeMap<String, String>,
    /// Descriptions of variables with an unknown value.
    pub(super) not_seen: Vec<String>,
    /// Numbers of lines that are not KEY=VALUE.
    pub(super) unread: Vec<usize>,
}

/// Parses lines `KEY=VALUE`, with optional `export`, quotes and comments, or the JSON of `docker inspect`.
pub(super) fn read(text: &str) -> FileVariables {
    let text = text.trim_start_matches('\u{feff}');
    match text.trim_start().starts_with(['[', '{']).then(|| serde_json::from_str(text)) {
        Some(Ok(document)) => {
            let mut found = FileVariables::default();
            inspected(&document, &mut found);
            found
        }
        Some(Err(_)) | None => lines(text),
    }
}

/// Collects the lists of `KEY=VALUE` texts that are the document or the value of an `Env` key.
fn inspected(value: &Value, found: &mut FileVariables) {
    match value {
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).for_each(|item| pair(item, found));
        }
        Value::Array(items) => items.iter().for_each(|item| inspected(item, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "Env" || value.is_object() {
                    inspected(value, found);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn pair(text: &str, found: &mut FileVariables) {
    if let Some((name, value)) = text.split_once('=')
        && is_name(name)
    {
        found.variables.insert(name.to_owned(), value.to_owned());
    }
}

fn lines(text: &str) -> FileVariables {
    let mut found = FileVariables::default();
    for (at, line) in text.lines().enumerate() {
        let number = at.saturating_add(1);
        let line = line.trim_start();
        if let Some(comment) = line.strip_prefix('#') {
            // The format of `kubectl set env --list` for variables in a Secret or a ConfigMap.
            if let Some((name, from)) = comment.trim().split_once(" from ")
                && is_name(name)
            {
                found.not_seen.push(format!("{name}: value in {from}"));
            }
            continue;
        }
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim_end()) => {
                found.variables.insert(name.trim_end().to_owned(), unquoted(value));
            }
            _ if line.trim_end().is_empty() => {}
            // Docker takes the value from its own environment.
            None if reference_variables().any(|variable| variable.name == line.trim_end()) => {
                found.not_seen.push(format!("{}: no value on line {number}", line.trim_end()));
            }
            // May be part of a secret.
            _ => found.unread.push(number),
        }
    }
    found
}

/// Whether a text may be the name of a variable, and can be shown. Lines of PEM keys mix cases.
pub(super) fn is_name(text: &str) -> bool {
    let usual = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let small = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && (text.chars().all(usual) || text.chars().all(small))
}

/// The value without trailing blanks and enclosing quotes.
fn unquoted(value: &str) -> String {
    let value = value.trim_end();
    let of = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    match (of('\''), of('"')) {
        (Some(inner), _) => inner.to_owned(),
        (None, Some(inner)) => inner.replace("\\\"", "\"").replace("\\\\", "\\"),
        (None, None) => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(found: &FileVariables) -> Vec<(&str, &str)> {
        found.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn lines_are_parsed_in_the_formats_of_common_tools() {
        let found = read(
            "# a comment\n\nREDIS_URL=redis:6379\r\n  export PORT=8080\nA='x y'\nB=\"say \\\"hi\\\"\"\nC=a=b#c\nD=\n\
             PORT=8081\n",
        );
        assert_eq!(
            pairs(&found),
            [
                ("A", "x y"),
                ("B", "say \"hi\""),
                ("C", "a=b#c"),
                ("D", ""),
                ("PORT", "8081"),
                ("REDIS_URL", "redis:6379"),
            ]
        );
        assert!(found.not_seen.is_empty());
    }

    #[test]
    fn lines_without_a_value_are_reported_without_their_text() {
        let found = read(
            "# REDIS_AUTH from secret redis, key password\nREDIS_URL\n-----BEGIN KEY-----\nse cret=1\nMIIEvQ7a\nMIIEvQ7a==\n",
        );
        assert_eq!(
            found.not_seen,
            ["REDIS_AUTH: value in secret redis, key password", "REDIS_URL: no value on line 2"]
        );
        assert_eq!(found.unread, [3, 4, 5, 6]);
        assert!(found.variables.is_empty());
    }

    #[test]
    fn the_json_of_docker_inspect_is_parsed() {
        let inspected = r#"[{"Id": "x", "Config": {"Cmd": ["A=not"], "Env": ["PORT=1", "X=a=b"]}}]"#;
        for text in [inspected, r#"["PORT=1", "X=a=b"]"#] {
            assert_eq!(pairs(&read(text)), [("PORT", "1"), ("X", "a=b")], "{text}");
        }
    }
}
