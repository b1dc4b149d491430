//! Variables as lines, in the forms that the usual tools print.

use serde_json::Value;

use super::source::Found;
use crate::settings::reference_variables;

/// Reads lines `KEY=VALUE`: with or without `export` and quotes, and between comments; or the JSON of `docker inspect`.
pub(super) fn read(text: &str) -> Found {
    let text = text.trim_start_matches('\u{feff}');
    match text.trim_start().starts_with(['[', '{']).then(|| serde_json::from_str(text)) {
        Some(Ok(document)) => {
            let mut found = Found::default();
            inspected(&document, &mut found);
            found
        }
        Some(Err(_)) | None => lines(text),
    }
}

/// Takes every list of texts `KEY=VALUE` that is the document, or stands under `Env` in it.
fn inspected(value: &Value, found: &mut Found) {
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

fn pair(text: &str, found: &mut Found) {
    if let Some((name, value)) = text.split_once('=')
        && is_name(name)
    {
        found.variables.insert(name.to_owned(), value.to_owned());
    }
}

fn lines(text: &str) -> Found {
    let mut found = Found::default();
    for (at, line) in text.lines().enumerate() {
        let number = at.saturating_add(1);
        let line = line.trim_start();
        if let Some(comment) = line.strip_prefix('#') {
            // `kubectl set env --list` tells so of what is in a Secret or a ConfigMap.
            if let Some((name, from)) = comment.trim().split_once(" from ")
                && is_name(name)
            {
                found.not_seen.push(format!("{name}: its value is in {from}"));
            }
            continue;
        }
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim_end()) => {
                found.variables.insert(name.trim_end().to_owned(), unquoted(value));
            }
            _ if line.trim_end().is_empty() => {}
            // The file's reader takes it from its own environment.
            None if is_known(line.trim_end()) => {
                found.not_seen.push(format!("{}: line {number} gives no value", line.trim_end()));
            }
            // It may be part of a secret.
            _ => found.unread.push(number),
        }
    }
    found
}

/// Whether that may be a variable's name, and so may be shown. A line of a key in PEM form is mixed, and is none.
pub(super) fn is_name(text: &str) -> bool {
    let usual = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let small = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && (text.chars().all(usual) || text.chars().all(small))
}

/// Whether it is a variable of the reference.
fn is_known(name: &str) -> bool {
    reference_variables().any(|variable| variable.name == name)
}

/// The value, without blanks at its end and the quotes around it.
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

    fn pairs(found: &Found) -> Vec<(&str, &str)> {
        found.variables.iter().map(|(name, value)| (&**name, &**value)).collect()
    }

    #[test]
    fn lines_are_read_in_the_forms_that_the_usual_tools_print() {
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
    fn what_has_no_value_is_told_without_its_text() {
        let found = read(
            "# REDIS_AUTH from secret redis, key password\nREDIS_URL\n-----BEGIN KEY-----\nse cret=1\nMIIEvQ7a\nMIIEvQ7a==\n",
        );
        assert_eq!(
            found.not_seen,
            ["REDIS_AUTH: its value is in secret redis, key password", "REDIS_URL: line 2 gives no value"]
        );
        assert_eq!(found.unread, [3, 4, 5, 6]);
        assert!(found.variables.is_empty());
    }

    #[test]
    fn what_docker_inspect_prints_is_read() {
        let inspected = r#"[{"Id": "x", "Config": {"Cmd": ["A=not"], "Env": ["PORT=1", "X=a=b"]}}]"#;
        for text in [inspected, r#"["PORT=1", "X=a=b"]"#] {
            assert_eq!(pairs(&read(text)), [("PORT", "1"), ("X", "a=b")], "{text}");
        }
    }
}
