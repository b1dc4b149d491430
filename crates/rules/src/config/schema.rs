//! JSON Schema of the rules, for editors: the keys of [`vocabulary`](super::vocabulary) with the values of each.
//!
//! A schema cannot express relations between keys, such as `burst` that needs `token_bucket`; `tollgate check` reports them.

use serde_json::{Map, Value, json};
use tollgate_core::{descriptor::Hits, quota::Unit};

use super::vocabulary::{KeyStatus, Section, Shape};

/// Names that YAML 1.1 reads as a bool; other parsers read texts.
const BOOL_WORDS: [&str; 18] = [
    "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "True",
    "False",
];

/// Sum of numbers with a unit.
const DURATION: &str = "^([0-9]+(\\.[0-9]+)?(us|µs|μs|ms|s|m|h|d|w))+$";

/// Percentages from 0 to 100; a number may be in their place.
const PERCENTAGE: &str = "^(100(\\.0+)?|[0-9]{1,2}(\\.[0-9]+)?)\\s*%$";

/// Percentages of thresholds, from 1 to 1000, in whole numbers.
const WHOLE_PERCENTAGE: &str = "^(1000|[1-9][0-9]{0,2})%$";

/// Returns the schema of a file of rules, or of an overlay, in JSON Schema draft 7.
pub fn schema() -> Value {
    let mut definitions = Map::new();
    for section in Section::ALL.into_iter().filter(|section| *section != Section::File) {
        definitions.insert(section.name().to_owned(), mapping(section));
    }
    let mut root = mapping(Section::File);
    if let Some(root) = root.as_object_mut() {
        root.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        root.insert("title".to_owned(), json!("Rules of tollgate"));
        root.insert("definitions".to_owned(), Value::Object(definitions));
    }
    root
}

/// A mapping with the keys of a section. A key that envoyproxy/ratelimit ignores there is permitted and marked.
fn mapping(section: Section) -> Value {
    let mut properties = Map::new();
    for key in Section::ALL.into_iter().flat_map(Section::keys) {
        if let KeyStatus::Ignored(home) = section.status_of(key.name) {
            let description =
                format!("Has no effect in {}; it belongs to {}.", section.label(), home.label());
            properties.insert(key.name.to_owned(), json!({"description": description, "deprecated": true}));
        }
    }
    for key in section.keys() {
        let mut value = value_of(key.shape);
        if let Some(value) = value.as_object_mut() {
            value.insert("description".to_owned(), json!(key.help));
        }
        properties.insert(key.name.to_owned(), value);
    }
    let required: &[&str] = match section {
        Section::File => &["domain"],
        Section::Descriptor => &["key"],
        Section::LoadShedding => &["target"],
        Section::Replaces => &["name"],
        _ => &[],
    };
    let mut mapping = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if let (false, Some(mapping)) = (required.is_empty(), mapping.as_object_mut()) {
        mapping.insert("required".to_owned(), json!(required));
    }
    mapping
}

/// Schema of a value. A key without a value counts as absent, so null is permitted.
fn value_of(shape: Shape) -> Value {
    match shape {
        Shape::Text => json!({"type": ["string", "integer", "boolean", "null"]}),
        Shape::RequiredText => json!({"type": ["string", "integer", "boolean"]}),
        Shape::Texts => json!({"type": ["array", "null"], "items": value_of(Shape::RequiredText)}),
        Shape::Number => json!({"type": ["integer", "null"], "minimum": 0, "maximum": u32::MAX}),
        Shape::Hits => json!({"type": ["integer", "null"], "minimum": 0, "maximum": Hits::MAX}),
        Shape::Percentages => json!({"type": ["array", "null"], "items": {
            "type": "string", "pattern": WHOLE_PERCENTAGE,
        }}),
        Shape::Flag => json!({"anyOf": [{"type": ["boolean", "null"]}, {"enum": BOOL_WORDS}]}),
        Shape::Ratio => part_of(1),
        Shape::Percent => part_of(100),
        Shape::Duration => json!({"type": ["string", "null"], "pattern": DURATION}),
        Shape::Unit => json!({"anyOf": [
            {"enum": Unit::ALL.map(Unit::name)},
            {"type": ["string", "null"], "pattern": any_case(&Unit::ALL.map(Unit::name))},
        ]}),
        Shape::Words(words) => json!({"anyOf": [{"enum": words()}, {"type": "null"}]}),
        Shape::Mapping => json!({"type": ["object", "null"]}),
        Shape::Section(section) => json!({"anyOf": [{"$ref": reference(section)}, {"type": "null"}]}),
        Shape::FlagOrSection(section) => {
            json!({"anyOf": [{"$ref": reference(section)}, value_of(Shape::Flag)]})
        }
        Shape::Sections(section) => json!({"type": ["array", "null"], "items": {"$ref": reference(section)}}),
    }
}

/// A number up to `whole`, or a percentage.
fn part_of(whole: u32) -> Value {
    json!({"anyOf": [
        {"type": ["number", "null"], "minimum": 0, "maximum": whole},
        {"type": "string", "pattern": PERCENTAGE},
    ]})
}

/// A pattern of words in any case: regular expressions of JSON Schema have no flags.
fn any_case(words: &[&str]) -> String {
    let letter = |letter: char| format!("[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase());
    let words: Vec<String> = words.iter().map(|word| word.chars().map(letter).collect()).collect();
    format!("^({})$", words.join("|"))
}

fn reference(section: Section) -> String {
    format!("#/definitions/{}", section.name())
}
