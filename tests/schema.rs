//! The JSON Schema of the rules against the parser: examples, one mistake each, and random documents.

use jsonschema::Validator;
use proptest::sample::{select, subsequence};
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use serde_json::Map;
use tollgate_rules::config::{Options, load, schema::schema};

use crate::support::prelude::*;

/// Random documents.
const DOCUMENTS: usize = 2_000;

/// Problems that a schema has to find. The parser reports others too: relations of keys, duplicates, ranges and precision of
/// durations, regular expressions, and limits of the whole.
const OF_SHAPE: [&str; 15] = [
    "expected a text, found",
    "expected a list, found",
    "expected a mapping, found",
    "expected a whole number from",
    "expected true or false",
    "expected a part such",
    "expected a percentage from",
    "unknown key",
    "does not belong to",
    "is not an algorithm",
    "is not a sync mode",
    "is not a scope",
    "is not an on_store_error",
    "is not a mode",
    "is not a unit",
];

fn validator() -> Validator {
    jsonschema::validator_for(&schema()).expect("a schema")
}

/// The problems that the parser reports.
fn problems(text: &str) -> Option<String> {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("a.yaml"), text).expect("written");
    let options = Options { allow_empty: true, ..Options::default() };
    load(directory.path(), &options).err().map(|error| error.to_string())
}

/// The YAML files below a directory.
fn files(directory: &str) -> Vec<(String, Value)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(project(directory)).expect("a directory") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).expect("readable");
            let value: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
            files.push((path.display().to_string(), with_merged_keys(&value)));
        }
    }
    assert!(!files.is_empty(), "{directory}");
    files
}

/// Applies `<<`, as editors do.
fn with_merged_keys(value: &serde_yaml::Value) -> Value {
    let mut value = value.clone();
    value.apply_merge().expect("mappings");
    serde_json::to_value(value).expect("JSON")
}

#[test]
fn the_schema_accepts_all_examples() {
    let validator = validator();
    for directory in ["config/examples", "config/default", "benches/rules"] {
        for (name, document) in files(directory) {
            let found: Vec<_> = validator
                .iter_errors(&document)
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
}

#[test]
fn the_entry_of_the_catalogue_leads_to_the_schema() {
    let entry = fs::read_to_string(project("docs/reference/schemastore.json")).expect("readable");
    let entry: Value = serde_json::from_str(&entry).expect("JSON");
    let (_, path) = entry["url"].as_str().and_then(|url| url.split_once("/main/")).expect("a path");
    let published: Value =
        serde_json::from_str(&fs::read_to_string(project(path)).expect("readable")).expect("JSON");
    assert_eq!(published, schema());
}

#[test]
fn the_schema_finds_the_place_of_a_mistake() {
    let validator = validator();
    for (descriptor, place) in [
        (json!({"key": "a", "ratelimit": {}}), "/descriptors/0"),
        (json!({"key": "a", "rate_limit": {"unit": "fortnight"}}), "/descriptors/0/rate_limit"),
        (json!({"key": "a", "rate_limit": {"requests_per_unit": "5"}}), "/descriptors/0/rate_limit"),
        (json!({"key": "a", "rate_limit": {"algorithm": "tokenbucket"}}), "/descriptors/0/rate_limit"),
        (json!({"key": "a", "burst": 5}), "/descriptors/0"),
        (json!({"value": "a"}), "/descriptors/0"),
    ] {
        let document = json!({"domain": "d", "descriptors": [descriptor]});
        let places: Vec<String> =
            validator.iter_errors(&document).map(|error| error.instance_path().to_string()).collect();
        assert!(places.iter().any(|found| found.starts_with(place)), "{document}: {places:?}");
        assert!(problems(&document.to_string()).is_some(), "{document}");
    }
}

/// Values of all types, valid for some key.
fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        select(vec![json!(0), json!(1), json!(60), json!(100), json!(4_294_967_295_u64), json!(-1)]),
        select(vec![json!(0.5), json!(1.5), json!(1e30), json!(4_294_967_296_u64)]),
        select(vec![
            "a",
            "",
            "minute",
            "HOUR",
            "fortnight",
            "token_bucket",
            "sliding_window_log",
            "concurrency",
            "leased",
            "strict",
            "auto",
            "allow",
            "deny",
            "local",
            "global",
            "regional",
            "enforce",
            "shadow",
            "30s",
            "1h30m",
            "1.5s",
            "50ms",
            "12",
            "10.0.0.0/8",
            "80%",
            "101%",
            "5.5%",
            "x*",
            "(",
            "5",
        ])
        .prop_map(Value::from),
    ]
}

/// A value for a property of the schema, usually of its type.
fn value_for(schema: &Value, definitions: &Value, depth: u32) -> BoxedStrategy<Value> {
    let alternatives = [schema].into_iter().chain(schema["anyOf"].as_array().into_iter().flatten());
    let mut values = vec![(1, scalar().boxed())];
    for shape in alternatives {
        let words = shape["enum"].as_array().into_iter().flatten();
        let words: Vec<Value> = words.filter(|word| !is_bool_word(word)).cloned().collect();
        if !words.is_empty() {
            values.push((12, select(words).boxed()));
        }
        if let Some(definition) = definition(shape, definitions).filter(|_| depth > 0) {
            values.push((12, mapping(definition, definitions, depth - 1)));
        }
        if let Some(items) = shape["items"].as_object() {
            let item = value_for(&Value::Object(items.clone()), definitions, depth.saturating_sub(1));
            values.push((12, prop::collection::vec(item, 0..3).prop_map(Value::from).boxed()));
        }
        let is = |name: &str| {
            shape["type"] == name
                || shape["type"].as_array().is_some_and(|types| types.contains(&json!(name)))
        };
        if is("integer") {
            values.push((8, (0..2_000_u32).prop_map(Value::from).boxed()));
        }
        if is("boolean") {
            values.push((8, any::<bool>().prop_map(Value::from).boxed()));
        }
        if shape["pattern"].as_str().is_some_and(|pattern| pattern.contains("ms|s|m")) {
            values.push((8, select(vec!["1s", "60s", "5m", "1h", "2d"]).prop_map(Value::from).boxed()));
        }
    }
    prop::strategy::Union::new_weighted(values).boxed()
}

/// A word that is a bool unless it is quoted, as texts in JSON are.
fn is_bool_word(word: &Value) -> bool {
    let words = ["y", "yes", "on", "n", "no", "off", "true", "false"];
    word.as_str().is_some_and(|word| words.contains(&&*word.to_lowercase()))
}

fn definition<'a>(schema: &Value, definitions: &'a Value) -> Option<&'a Value> {
    definitions.get(schema["$ref"].as_str()?.rsplit('/').next()?)
}

/// A mapping with some keys of a section, those that it requires, and at times another one.
fn mapping(schema: &Value, definitions: &Value, depth: u32) -> BoxedStrategy<Value> {
    let properties = schema["properties"].as_object().expect("properties");
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let known: Vec<(String, BoxedStrategy<Value>)> = properties
        .iter()
        .filter(|(_, property)| property["deprecated"] != true)
        .map(|(name, property)| (name.clone(), value_for(property, definitions, depth)))
        .collect();
    let (required, optional): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|(name, _)| required.contains(&json!(name)));
    let most = optional.len().min(4);
    let other = select(vec!["burst", "unit", "domain", "ratelimit", "regexp", "defaults", "name"]);
    let keys = (
        subsequence(optional, 0..=most),
        prop::option::weighted(0.03, other),
        prop::option::weighted(0.97, Just(())),
    );
    keys.prop_flat_map(move |(mut keys, other, has_required)| {
        if has_required.is_some() {
            keys.extend(required.clone());
        }
        if let Some(other) = other.filter(|other| keys.iter().all(|(name, _)| name != other)) {
            keys.push((other.to_owned(), scalar().boxed()));
        }
        let (names, values): (Vec<String>, Vec<_>) = keys.into_iter().unzip();
        values.prop_map(move |values| names.iter().cloned().zip(values).collect::<Map<_, _>>().into())
    })
    .boxed()
}

#[test]
fn the_schema_and_the_parser_agree_on_random_documents() {
    compare(DOCUMENTS);
}

#[test]
#[ignore = "takes a minute"]
fn the_schema_and_the_parser_agree_on_many_random_documents() {
    compare(20 * DOCUMENTS);
}

fn compare(documents: usize) {
    let (schema, validator) = (schema(), validator());
    let random = mapping(&schema, &schema["definitions"], 3);
    let mut runner = TestRunner::deterministic();
    let (mut valid, mut shapely, mut refused) = (0, 0, 0);
    for _ in 0..documents {
        let document = random.new_tree(&mut runner).expect("generates").current();
        let text = document.to_string();
        let found = problems(&text);
        match (validator.is_valid(&document), found) {
            (true, None) => valid += 1,
            (true, Some(problems)) => {
                let missed = problems.lines().find(|line| OF_SHAPE.iter().any(|part| line.contains(part)));
                assert_eq!(missed, None, "the schema accepts {text}: {problems}");
                shapely += 1;
            }
            (false, Some(_)) => refused += 1,
            (false, None) => {
                let reasons: Vec<_> =
                    validator.iter_errors(&document).map(|error| error.to_string()).collect();
                panic!("the parser accepts {text}; the schema: {reasons:?}");
            }
        }
    }
    assert!(
        valid >= documents / 50 && shapely >= documents / 10 && refused >= documents / 10,
        "{valid} valid, {shapely} with other problems, {refused}"
    );
}
