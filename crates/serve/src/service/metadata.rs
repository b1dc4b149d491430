//! Description of a request in the dynamic metadata of its response, in the format of envoyproxy/ratelimit: the decoded
//! request, and the metadata of the rules that let it pass.

use std::collections::BTreeMap;

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};
use tollgate_limiter::decision::{Code, Decision, Limited, Status};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride,
};
use tollgate_proto::envoy::{service::ratelimit::v3::RateLimitRequest, r#type::v3::RateLimitUnit};

/// Returns the fields of the metadata that describe a request and its rules.
pub(super) fn of(request: &RateLimitRequest, decision: &Decision<'_>) -> BTreeMap<String, Value> {
    let mut fields = BTreeMap::from([
        ("domain".to_owned(), text(&request.domain)),
        ("descriptors".to_owned(), list(descriptors(request, decision))),
    ]);
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), number(f64::from(request.hits_addend)));
    }
    if let Some(listed) = decision.listed {
        // Reason and author are visible to operators only.
        fields.insert("list".to_owned(), text(listed.list().name()));
    }
    let passed = of_passed_rules(decision);
    if !passed.is_empty() {
        fields.insert("metadata".to_owned(), json(&Json::Object(passed)));
    }
    fields
}

fn descriptors(request: &RateLimitRequest, decision: &Decision<'_>) -> impl Iterator<Item = Value> {
    let describe = |(at, stated)| {
        let mut fields = descriptor(stated);
        let limited = decision.statuses.get(at).and_then(Status::limited);
        let several = limited.map(|limited| &*limited.several).unwrap_or_default();
        if !several.is_empty() {
            fields.insert("limits".to_owned(), list(several.iter().map(limit)));
        }
        value(Kind::StructValue(Struct { fields }))
    };
    request.descriptors.iter().enumerate().map(describe)
}

/// One of several limits of a descriptor.
fn limit(limited: &Limited<'_>) -> Value {
    let label = limited.rule.and_then(|rule| rule.part.as_ref()).map_or("", |part| &part.label);
    let fields = BTreeMap::from([
        ("name".to_owned(), text(label)),
        ("remaining".to_owned(), number(limited.verdict.remaining as f64)),
        ("code".to_owned(), text(limited.code().name())),
    ]);
    value(Kind::StructValue(Struct { fields }))
}

fn descriptor(descriptor: &RateLimitDescriptor) -> BTreeMap<String, Value> {
    let entries = descriptor.entries.iter().map(|entry| text(&format!("{}={}", entry.key, entry.value)));
    let mut fields = BTreeMap::from([("entries".to_owned(), list(entries))]);
    if let Some(limit) = &descriptor.limit {
        let limit = limit_text(limit);
        fields.insert("limit".to_owned(), text(&limit));
    }
    if let Some(hits) = descriptor.hits_addend {
        // Exact up to 2^53; a Struct holds nothing finer.
        fields.insert("hitsAddend".to_owned(), number(hits as f64));
    }
    fields
}

/// Formats a limit override in protobuf's text format, which omits zeros.
fn limit_text(limit: &RateLimitOverride) -> String {
    let mut parts = Vec::new();
    if limit.requests_per_unit != 0 {
        parts.push(format!("requests_per_unit:{}", limit.requests_per_unit));
    }
    match RateLimitUnit::try_from(limit.unit) {
        Ok(RateLimitUnit::Unknown) => {}
        Ok(unit) => parts.push(format!("unit:{}", unit.as_str_name())),
        Err(_) => parts.push(format!("unit:{}", limit.unit)),
    }
    if let Some(multiplier) = limit.unit_multiplier {
        parts.push(format!("unit_multiplier:{{value:{multiplier}}}"));
    }
    parts.join(" ")
}

/// Merges the metadata of the rules of passing descriptors in the order of the request: the first value of a key wins,
/// objects are merged recursively.
fn of_passed_rules(decision: &Decision<'_>) -> Map<String, Json> {
    let mut merged = Map::new();
    for limited in decision.statuses.iter().filter_map(Status::limited) {
        let metadata = limited.rule.and_then(|rule| rule.metadata.as_ref());
        if limited.code() == Code::Ok
            && let Some(metadata) = metadata
        {
            merge(&mut merged, metadata);
        }
    }
    merged
}

fn merge(into: &mut Map<String, Json>, from: &Map<String, Json>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (None, value) => {
                into.insert(key.clone(), value.clone());
            }
            (Some(Json::Object(existing)), Json::Object(more)) => merge(existing, more),
            (Some(_), _) => {}
        }
    }
}

fn json(value: &Json) -> Value {
    match value {
        Json::Null => self::value(Kind::NullValue(0)),
        Json::Bool(flag) => self::value(Kind::BoolValue(*flag)),
        Json::Number(number) => self::number(number.as_f64().unwrap_or_default()),
        Json::String(string) => text(string),
        Json::Array(items) => list(items.iter().map(json)),
        Json::Object(object) => {
            let fields = object.iter().map(|(key, value)| (key.clone(), json(value))).collect();
            self::value(Kind::StructValue(Struct { fields }))
        }
    }
}

fn text(text: &str) -> Value {
    value(Kind::StringValue(text.into()))
}

fn number(number: f64) -> Value {
    value(Kind::NumberValue(number))
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    value(Kind::ListValue(ListValue { values: values.collect() }))
}

const fn value(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}
