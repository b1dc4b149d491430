//! Metadata, which means the same in YAML and in JSON.

use serde_json::{Map, Number, Value};

use super::descriptor::Compiler;
use crate::config::{
    problem::Path,
    reader::describe,
    scalar::Meaning,
    yaml::{Content, Node},
};

impl Compiler<'_> {
    /// The mapping as JSON, unless part of it has no counterpart there.
    pub(super) fn metadata(&mut self, node: &Node, path: &Path<'_>) -> Option<Map<String, Value>> {
        match self.json(node, path)? {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    fn json(&mut self, node: &Node, path: &Path<'_>) -> Option<Value> {
        match &node.content {
            Content::Scalar(scalar) => {
                let value = match scalar.meaning() {
                    Meaning::Null => Some(Value::Null),
                    Meaning::Bool(value) => Some(Value::Bool(value)),
                    Meaning::Integer(number) => Number::from_i128(number).map(Value::Number),
                    Meaning::Float(number) => Number::from_f64(number).map(Value::Number),
                    Meaning::Text => Some(Value::String((*scalar.text).to_owned())),
                };
                if value.is_none() {
                    let message = format!("{} has no counterpart in JSON", describe(node));
                    self.error(node.at, path, message);
                }
                value
            }
            Content::List(items) => {
                let items = items.iter().enumerate();
                // All of them are looked at before one that is wrong ends it.
                let items: Vec<_> = items.map(|(at, item)| self.json(item, &path.item(at))).collect();
                items.into_iter().collect::<Option<_>>().map(Value::Array)
            }
            Content::Map(pairs) => {
                let pairs: Vec<_> = pairs.iter().map(|(key, value)| self.pair(key, value, path)).collect();
                pairs.into_iter().collect::<Option<_>>().map(Value::Object)
            }
        }
    }

    fn pair(&mut self, key: &Node, value: &Node, path: &Path<'_>) -> Option<(String, Value)> {
        let Content::Scalar(name) = &key.content else {
            let message = format!("expected a text as the key, found {}", describe(key));
            self.error(key.at, path, message);
            return None;
        };
        // JSON has texts alone as keys; others are written out as the reference does.
        let name = match name.meaning() {
            Meaning::Text => (*name.text).to_owned(),
            Meaning::Null => "<nil>".to_owned(),
            Meaning::Bool(value) => value.to_string(),
            Meaning::Integer(number) => number.to_string(),
            Meaning::Float(number) => number.to_string(),
        };
        let value = self.json(value, &path.key(&name))?;
        Some((name, value))
    }
}
