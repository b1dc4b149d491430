//! YAML that is no configuration of ours, such as a manifest, as JSON.

use serde_json::{Map, Number, Value};

use super::{
    scalar::Meaning,
    yaml::{Content, Node, parse},
};

/// Every document of a file, in order; of one that can't be read, where and why.
pub(crate) fn documents(text: &str) -> Vec<Result<Value, String>> {
    let mut parts: Vec<(usize, String)> = vec![(0, String::new())];
    for (at, line) in text.lines().enumerate() {
        let begins =
            line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r']));
        if let Some(rest) = begins {
            parts.push((at, rest.to_owned()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push('\n');
        }
    }
    let parsed = parts.into_iter().map(|(before, part)| match parse(part.as_bytes()) {
        Ok(document) => Ok(document.root.map(|root| json(&root))),
        Err(mistake) => {
            Err(format!("line {}: {}", mistake.at.line().saturating_add(before), mistake.message))
        }
    });
    parsed.filter_map(Result::transpose).collect()
}

/// What has no counterpart in JSON is null there.
fn json(node: &Node) -> Value {
    match &node.content {
        Content::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Bool(value) => Value::Bool(value),
            Meaning::Integer(number) => Number::from_i128(number).map_or(Value::Null, Value::Number),
            Meaning::Float(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            Meaning::Text => Value::String((*scalar.text).to_owned()),
        },
        Content::List(items) => items.iter().map(json).collect(),
        Content::Map(pairs) => {
            let pairs = pairs.iter().filter_map(|(key, value)| match &key.content {
                Content::Scalar(name) => Some(((*name.text).to_owned(), json(value))),
                Content::List(_) | Content::Map(_) => None,
            });
            Value::Object(pairs.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_document_is_read_and_a_broken_one_is_told_by_its_line() {
        let text = "a: 1\ntext: |\n  ---\n  x\n--- # two\n\n---\nb: [\n---\nc: {d: yes, e: 1.5, f: '1'}\n";
        let found = documents(text);
        let json: Vec<Option<&Value>> = found.iter().map(|document| document.as_ref().ok()).collect();
        assert_eq!(
            json,
            [
                Some(&json!({"a": 1, "text": "---\nx\n"})),
                None,
                Some(&json!({"c": {"d": true, "e": 1.5, "f": "1"}}))
            ]
        );
        let told = found[1].as_ref().expect_err("broken");
        assert!(told.starts_with("line 8: ") || told.starts_with("line 9: "), "{told}");
    }
}
