//! Every kind of rule that the reference's documentation shows: served as it is, and answered as there.

use std::fs;

use serde_json::Value;
use tollgate::proto::envoy::{config::core::v3::HeaderValue, service::ratelimit::v3::RateLimitResponse};

use super::{
    expected::{Line, read, shown},
    program::{Running, Variables},
};
use crate::support::{http, redis::Redis, tollgate::project};

/// Serves the rules of a case with a Redis, and checks every line that is expected of them.
async fn check(case: &str) {
    let folder = project(&format!("tests/reference/config/{case}"));
    let text = fs::read_to_string(folder.join("expected.txt")).expect("a text");
    let (mut variables, lines) = read(&text);
    let redis = Redis::start();
    variables.extend(
        [
            ("RUNTIME_ROOT", folder.display().to_string()),
            ("RUNTIME_APPDIRECTORY", "rules".to_owned()),
            ("USE_STATSD", "false".to_owned()),
            ("REDIS_SOCKET_TYPE", "tcp".to_owned()),
            ("REDIS_URL", format!("127.0.0.1:{}", redis.port())),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let mut variables: Variables = variables.into_iter().collect();
    if variables.contains_key("USE_PROMETHEUS") {
        variables.insert("PROMETHEUS_ADDR".into(), format!("127.0.0.1:{}", crate::support::free_port()));
    }
    let running = Running::start(variables);
    let mut last = RateLimitResponse::default();
    for line in &lines {
        match line {
            Line::Request { count, request, answer } => {
                for _ in 0..*count {
                    last = running.call(request.clone()).await;
                }
                assert_eq!(shown(&last), *answer, "{case}: {request:?}");
            }
            Line::Header { name, value } => {
                let found = last.response_headers_to_add.iter().find(|header| header.key == *name);
                assert_eq!(found.map(|HeaderValue { value, .. }| value), Some(value), "{case}: {name}");
            }
            Line::Metadata(expected) => {
                let mut found = last.dynamic_metadata.clone().expect("metadata");
                // A denial also names what decided.
                found.fields.remove("decision");
                let found = object(found);
                assert_eq!(found, *expected, "{case}");
            }
            Line::Metric(expected) => {
                let page = http::get(&running.url("PORT", "/metrics")).body;
                assert!(page.lines().any(|line| line == expected), "{case}: no {expected} in\n{page}");
            }
        }
    }
    assert!(lines.len() > 1, "{case} expects nothing");
    let is_of_rules = |warning: &String| !warning.starts_with("domain without rules");
    let warnings: Vec<_> = running.warnings().into_iter().filter(is_of_rules).collect();
    assert_eq!(warnings, [""; 0], "{case}");
}

fn object(object: prost_types::Struct) -> Value {
    Value::Object(object.fields.into_iter().map(|(key, value)| (key, json(value))).collect())
}

fn json(value: prost_types::Value) -> Value {
    use prost_types::value::Kind;
    match value.kind.expect("a value") {
        Kind::NullValue(_) => Value::Null,
        // Those of the rules are whole.
        Kind::NumberValue(number) => format!("{number}").parse::<i64>().expect("whole").into(),
        Kind::StringValue(text) => text.into(),
        Kind::BoolValue(is_so) => is_so.into(),
        Kind::StructValue(inner) => object(inner),
        Kind::ListValue(list) => list.values.into_iter().map(json).collect(),
    }
}

macro_rules! cases {
    ($($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            check(stringify!($case)).await;
        })*

        #[test]
        fn every_case_is_run() {
            let folder = fs::read_dir(project("tests/reference/config")).expect("a folder");
            let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("a text");
            let mut found: Vec<_> = folder.map(|entry| name(entry.expect("readable"))).collect();
            found.sort();
            assert_eq!(found, [$(stringify!($case)),*]);
        }
    };
}

cases! {
    addresses basic default_and_override global_quota_mode global_shadow_mode hits merged_files metadata metrics
    nested quota_mode replaces shadow_mode share_threshold unlimited wildcards
}
