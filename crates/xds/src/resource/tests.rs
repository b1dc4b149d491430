//! A rule means the same whether a file or a control plane states it.

use proptest::prelude::*;
use prost_types::{ListValue, Struct, Value as Wire, value::Kind};
use serde_json::{Map, Value, json};
use tollgate_core::descriptor::Entry;
use tollgate_proto::ratelimit::config::ratelimit::v3::{
    RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use tollgate_rules::{Rules, config::load_files};

use super::budget::{MAX_DESCRIPTORS, MAX_VALUES};
use super::*;

/// A descriptor in both forms.
#[derive(Clone, Debug)]
struct TwoForms {
    wire: RateLimitDescriptor,
    file: Value,
}

fn wire(value: &Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(*value),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(wire).collect() }),
        Value::Object(map) => Kind::StructValue(of_map(map)),
    };
    Wire { kind: Some(kind) }
}

fn of_map(map: &Map<String, Value>) -> Struct {
    Struct { fields: map.iter().map(|(key, value)| (key.clone(), wire(value))).collect() }
}

fn metadata() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-1_000_000_i64..1_000_000).prop_map(|number| json!(number)),
        (-1e9_f64..1e9).prop_filter("whole", |number| number.fract() != 0.0).prop_map(|number| json!(number)),
        "[ -~é]{0,8}|true|3|1\\.5|null|~".prop_map(Value::String),
    ];
    let tree = leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[a-z]{1,3}|true|1", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    prop::collection::btree_map("[a-z]{1,3}", tree, 0..3)
        .prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn limit() -> impl Strategy<Value = (RateLimitPolicy, Value)> {
    let number = || prop_oneof![Just(0_u32), 1_u32..1_000_000, any::<u32>()];
    // Mostly right, so that there is something to compare.
    let what = prop_oneof![
        30 => (1_i32..8, number(), Just(false)),
        5 => (Just(0_i32), Just(0_u32), Just(true)),
        1 => (0_i32..8, number(), any::<bool>()),
    ];
    let replaced = prop::collection::vec(prop_oneof![20 => "[d-f]", 1 => "[a-c]{0,1}"], 0..2);
    let parts = (what, "[a-c]{0,1}", replaced)
        .prop_map(|((unit, number, unlimited), name, replaced)| (unit, number, unlimited, name, replaced));
    parts.prop_map(|(unit, requests_per_unit, unlimited, name, replaced)| {
        let mut file = Map::new();
        if unit != 0 {
            let text = RateLimitUnit::try_from(unit).unwrap().as_str_name();
            file.insert("unit".into(), text.into());
        }
        if requests_per_unit > 0 || !unlimited {
            file.insert("requests_per_unit".into(), requests_per_unit.into());
        }
        file.insert("unlimited".into(), unlimited.into());
        if !name.is_empty() {
            file.insert("name".into(), name.clone().into());
        }
        let names = replaced.iter().map(|name| json!({ "name": name })).collect();
        file.insert("replaces".into(), Value::Array(names));
        let replaces = replaced.into_iter().map(|name| RateLimitReplace { name }).collect();
        (RateLimitPolicy { unit, requests_per_unit, unlimited, name, replaces }, Value::Object(file))
    })
}

fn leaf() -> impl Strategy<Value = TwoForms> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let parts = (
        "[a-z]{1,3}|[a-z]\\*|true|10",
        "[a-z]{0,3}|[a-z]\\*|\\*|1\\.5|yes",
        prop::option::weighted(0.8, limit()),
        prop::option::of(metadata()),
        flags,
    );
    parts.prop_map(|(key, value, limit, metadata, (shadow_mode, quota_mode, detailed_metric))| {
        let mut file = json!({
            "key": key, "value": value, "shadow_mode": shadow_mode, "quota_mode": quota_mode,
            "detailed_metric": detailed_metric,
        });
        let mut wire = RateLimitDescriptor {
            key,
            value,
            shadow_mode,
            quota_mode,
            detailed_metric,
            ..Default::default()
        };
        if let Some((policy, text)) = limit {
            wire.rate_limit = Some(policy);
            file["rate_limit"] = text;
        }
        if let Some(metadata) = metadata {
            wire.metadata = metadata.as_object().map(of_map);
            file["metadata"] = metadata;
        }
        TwoForms { wire, file }
    })
}

fn descriptor() -> impl Strategy<Value = TwoForms> {
    leaf().prop_recursive(3, 16, 4, |inner| {
        (leaf(), prop::collection::vec(inner, 0..4)).prop_map(|(mut above, below)| {
            above.file["descriptors"] = below.iter().map(|forms| forms.file.clone()).collect();
            above.wire.descriptors = below.into_iter().map(|forms| forms.wire).collect();
            above
        })
    })
}

fn resource(name: &str, domain: &str, descriptors: Vec<RateLimitDescriptor>) -> Any {
    let config = RateLimitConfig { name: name.into(), domain: domain.into(), descriptors };
    Any { type_url: TYPE_URL.into(), value: config.encode_to_vec() }
}

fn loads(resources: &[Any], options: Options) -> Result<Loaded, LoadError> {
    load_resources(resources, fingerprint_of(resources), options)
}

fn errors(resources: &[Any]) -> String {
    loads(resources, Options::default()).expect_err("it loads").to_string()
}

/// Content of rules without their origins.
fn content(rules: &Rules) -> Vec<String> {
    let mut domains: Vec<_> = rules.domains().collect();
    domains.sort_by(|a, b| a.name.cmp(&b.name));
    let rules = domains.into_iter().flat_map(|domain| domain.root.rules().map(move |rule| (domain, rule)));
    let lines = rules.map(|(domain, rule)| {
        let modes = (rule.shadow_mode, rule.quota_mode, rule.detailed_metric, rule.sync, rule.on_store_error);
        let what = (&rule.limit, &rule.name, &rule.replaces, &rule.metadata, &rule.segments);
        format!("{} {} {modes:?} {what:?}", domain.name, rule.path())
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

/// The rule that each descriptor matches.
fn matched_rules(rules: &Rules, descriptors: &[RateLimitDescriptor]) -> Vec<Option<String>> {
    fn walk<'a>(
        rules: &Rules,
        below: &'a [RateLimitDescriptor],
        way: &mut Vec<Entry<'a>>,
        matched: &mut Vec<Option<String>>,
    ) {
        for descriptor in below {
            way.push(Entry { key: &descriptor.key, value: &descriptor.value });
            let rule = rules.domain("d").and_then(|domain| domain.root.rule(way));
            matched.push(rule.map(|rule| rule.path()));
            walk(rules, &descriptor.descriptors, way, matched);
            way.pop();
        }
    }
    let mut matched = Vec::new();
    walk(rules, descriptors, &mut Vec::new(), &mut matched);
    matched
}

/// Severity and path of each problem.
fn places(report: &config::Report) -> Vec<String> {
    let mut places: Vec<String> =
        report.problems.iter().map(|problem| format!("{:?} {}", problem.severity, problem.path)).collect();
    places.sort();
    places
}

proptest! {
    #[test]
    fn a_control_plane_and_a_file_with_equal_content_mean_the_same(
        forms in prop::collection::vec(descriptor(), 0..5),
        strict in prop::bool::weighted(0.2),
    ) {
        let options = Options { strict, ..Options::default() };
        let (wires, files): (Vec<_>, Vec<_>) = forms.into_iter().map(|forms| (forms.wire, forms.file)).unzip();
        let text = json!({ "domain": "d", "descriptors": files }).to_string();
        let from_file = load_files([("a.yaml".to_owned(), text.into_bytes())], options);
        let from_plane = loads(&[resource("a", "d", wires.clone())], options);
        match (from_file, from_plane) {
            (Ok(file), Ok(plane)) => {
                prop_assert_eq!(content(&file.rules), content(&plane.rules));
                prop_assert_eq!(matched_rules(&file.rules, &wires), matched_rules(&plane.rules, &wires));
                prop_assert_eq!(places(&file.warnings), places(&plane.warnings));
            }
            (Err(LoadError::Invalid { report: file, .. }), Err(LoadError::Invalid { report: plane, .. })) => {
                prop_assert_eq!(places(&file), places(&plane));
            }
            (file, plane) => prop_assert!(false, "{:?} but {:?}", file.map(|_| ()), plane.map(|_| ())),
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rules_or_problems(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
        forms in prop::collection::vec(descriptor(), 1..3),
    ) {
        let whole = resource("n", "d", forms.into_iter().map(|forms| forms.wire).collect()).value;
        let mut damaged = whole.clone();
        let at = cut.index(whole.len());
        damaged.splice(at..at, bytes.iter().copied());
        for value in [bytes, whole[..at].to_vec(), damaged] {
            let loaded = loads(&[Any { type_url: TYPE_URL.into(), value }], Options::default());
            let is_reported = matches!(loaded, Ok(_) | Err(LoadError::Invalid { .. }));
            prop_assert!(is_reported);
        }
    }
}

fn per(unit: i32, requests_per_unit: u32) -> RateLimitDescriptor {
    let rate_limit = Some(RateLimitPolicy { unit, requests_per_unit, ..Default::default() });
    RateLimitDescriptor { key: "k".into(), value: unit.to_string(), rate_limit, ..Default::default() }
}

#[test]
fn units_have_the_numbers_of_the_protocol() {
    let descriptors = (1..8).map(|unit| per(unit, 5)).collect();
    let loaded = loads(&[resource("n", "d", descriptors)], Options::default()).expect("good");
    let root = &loaded.rules.domain("d").expect("there").root;
    let seconds: Vec<u64> = (1..8)
        .map(|unit| {
            let rule = root.rule(&[Entry { key: "k", value: &unit.to_string() }]).expect("a rule");
            match rule.limit {
                tollgate_rules::Limit::Quota { quota, .. } => u64::from(quota.window.seconds()),
                tollgate_rules::Limit::Unlimited => 0,
            }
        })
        .collect();
    assert_eq!(seconds, [1, 60, 3_600, 86_400, 2_592_000, 31_536_000, 604_800]);
    let unknown = errors(&[resource("n", "d", vec![per(9, 5)])]);
    assert!(unknown.starts_with("resource n: descriptors[0].rate_limit.unit: "), "{unknown}");
    let missing = errors(&[resource("n", "d", vec![per(0, 5)])]);
    assert!(missing.starts_with("resource n: descriptors[0].rate_limit: "), "{missing}");
}

#[test]
fn every_problem_names_its_resource_and_all_are_reported_at_once() {
    let garbage = Any { type_url: TYPE_URL.into(), value: b"\xff\xff".to_vec() };
    let other_type = Any { type_url: "type.googleapis.com/envoy.Cluster".into(), value: Vec::new() };
    let text = errors(&[
        garbage,
        other_type,
        resource("twice", "d", vec![]),
        resource("twice", "d", vec![]),
        resource("", "", vec![RateLimitDescriptor::default()]),
        resource("a\nb", "", vec![]),
    ]);
    for part in [
        "resource 0: can't be decoded: ",
        "resource 1: is of the type `type.googleapis.com/envoy.Cluster`, expected `type.googleapis.com/ratelimit.",
        "resource twice (2): domain: the domain `d` is a duplicate of that in resource twice",
        "resource without a name (1): domain: ",
        "resource without a name (1): descriptors[0]: has no `key`",
        "resource a\\nb: domain: ",
    ] {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}

#[test]
fn descriptors_of_one_domain_may_come_in_several_resources_where_domains_are_merged() {
    let two = [resource("a", "d", vec![per(1, 1)]), resource("b", "d", vec![per(2, 1)])];
    assert!(loads(&two, Options::default()).is_err());
    let merged = loads(&two, Options { merge_domains: true, ..Options::default() }).expect("good");
    assert_eq!(merged.rules.rule_count(), 2);
}

#[test]
fn a_duplicate_descriptor_is_reported_with_its_resource() {
    let text = errors(&[resource("web", "d", vec![per(1, 1), per(1, 2)])]);
    assert!(text.contains("resource web: descriptors[1]: `d.k_1` is a duplicate of resource web"), "{text}");
}

#[test]
fn an_empty_list_is_valid() {
    let loaded = loads(&[], Options { strict: true, ..Options::default() }).expect("good");
    assert_eq!(loaded.rules.rule_count(), 0);
}

#[test]
fn the_order_of_resources_does_not_matter() {
    let (a, b) = (resource("a", "a", vec![per(1, 1)]), resource("b", "b", vec![]));
    assert_eq!(fingerprint_of(&[a.clone(), b.clone()]), fingerprint_of(&[b.clone(), a.clone()]));
    assert_ne!(fingerprint_of(&[a.clone(), b]), fingerprint_of(&[a]));
}

#[test]
fn numbers_of_metadata_are_whole_again_and_what_json_lacks_is_refused() {
    let with = |number: f64| {
        let fields = [("n".to_owned(), Wire { kind: Some(Kind::NumberValue(number)) })].into();
        RateLimitDescriptor { metadata: Some(Struct { fields }), ..per(1, 1) }
    };
    for (number, text) in [
        (3.0, "3"),
        (-0.0, "0"),
        (1.5, "1.5"),
        (1e300, "1e300"),
        (9_007_199_254_740_993.0, "9007199254740992"),
    ] {
        let loaded = loads(&[resource("n", "d", vec![with(number)])], Options::default()).expect("good");
        let rule = loaded.rules.rules().next().expect("one").clone();
        let value = rule.metadata.as_ref().expect("stated")["n"].to_string();
        assert_eq!(value.replace('+', ""), text);
    }
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let text = errors(&[resource("n", "d", vec![with(number)])]);
        assert!(text.contains("has no JSON representation"), "{text}");
    }
}

#[test]
fn resources_beyond_the_budget_are_refused() {
    let deep =
        (0..40).fold(per(1, 1), |below, _| RateLimitDescriptor { descriptors: vec![below], ..per(1, 1) });
    let long = RateLimitDescriptor { value: "x".repeat((64 << 10) + 1), ..per(1, 1) };
    // Two bytes each, and half a kilobyte once they are decoded.
    let many = [b"\x1a\x00".repeat(MAX_DESCRIPTORS + 1), b"\x12\x01d".to_vec()].concat();
    // As small, in metadata: a list of values that state nothing.
    let values = ListValue { values: vec![Wire { kind: None }; MAX_VALUES + 1] };
    let fields = [("list".to_owned(), Wire { kind: Some(Kind::ListValue(values)) })].into();
    let listing = RateLimitDescriptor { metadata: Some(Struct { fields }), ..per(1, 1) };
    for (resource, expected) in [
        (resource("n", "d", vec![deep]), "nested more than 31 levels deep"),
        (resource("n", "d", vec![long]), "descriptors[0].value: text longer than 64 KiB"),
        (Any { type_url: TYPE_URL.into(), value: many }, "more than 250000 descriptors"),
        (resource("n", "d", vec![listing]), "more than 1000000 values"),
    ] {
        let text = errors(&[resource]);
        assert!(text.contains(expected), "expected {expected:?} in {text}");
    }
}
