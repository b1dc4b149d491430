//! Every kind of rule that the reference's documentation shows: served as it is, and answered as there. Expectations stand in
//! lines.

use tollgate::proto::envoy::{
    config::core::v3::HeaderValue,
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::rate_limit_response::{DescriptorStatus, rate_limit::Unit},
};

use super::program::{Running, Variables};
use super::*;

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
        variables.insert("PROMETHEUS_ADDR".into(), format!("127.0.0.1:{}", free_port()));
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

/// A line that is to be checked.
#[derive(Debug)]
pub(super) enum Line {
    Request { count: usize, request: RateLimitRequest, answer: String },
    Header { name: String, value: String },
    Metadata(Value),
    Metric(String),
}

/// The variables of a text, and its other lines.
pub(super) fn read(text: &str) -> (Vec<(String, String)>, Vec<Line>) {
    let (mut variables, mut lines) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (kind, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let pair = || {
            let (name, value) = rest.split_once('=').unwrap_or_else(|| panic!("{line}"));
            (name.to_owned(), value.to_owned())
        };
        match kind {
            "env" => variables.push(pair()),
            "header" => {
                let (name, value) = pair();
                lines.push(Line::Header { name, value });
            }
            "metadata" => lines.push(Line::Metadata(serde_json::from_str(rest).expect("JSON"))),
            "metric" => lines.push(Line::Metric(rest.to_owned())),
            _ => lines.push(request(line)),
        }
    }
    (variables, lines)
}

fn request(line: &str) -> Line {
    let (question, answer) = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}"));
    let (count, question) = match question.split_once(" x ") {
        Some((count, question)) => (count.parse().expect("a count"), question),
        None => (1, question),
    };
    let (question, hits_addend) = match question.split_once(" +") {
        Some((question, hits)) => (question, hits.parse().expect("a number")),
        None => (question, 0),
    };
    let (domain, descriptors) = question.split_once(' ').unwrap_or_else(|| panic!("{line}"));
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap_or_else(|| panic!("{line}"));
        Entry { key: key.into(), value: value.into() }
    };
    let descriptor = |text: &str| RateLimitDescriptor {
        entries: text.split(',').map(entry).collect(),
        ..Default::default()
    };
    let descriptors = descriptors.split(" | ").map(descriptor).collect();
    let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend };
    Line::Request { count, request, answer: answer.to_owned() }
}

/// An answer as it stands in a line.
pub(super) fn shown(answer: &RateLimitResponse) -> String {
    let statuses: Vec<String> = answer.statuses.iter().map(status).collect();
    format!("{}: {}", answer.overall_code().as_str_name(), statuses.join(" | "))
}

fn status(status: &DescriptorStatus) -> String {
    let code = Code::try_from(status.code).expect("known").as_str_name();
    let until_reset = status.duration_until_reset.as_ref().map(|time| (time.seconds, time.nanos));
    match &status.current_limit {
        None if status.limit_remaining == u32::MAX => format!("{code} unlimited"),
        None => {
            assert_eq!((status.limit_remaining, until_reset), (0, None));
            code.to_owned()
        }
        Some(limit) => {
            let (seconds, nanos) = until_reset.expect("there with the limit");
            assert!((1..=31_536_000).contains(&seconds) && nanos == 0, "{seconds} s {nanos} ns");
            let unit = Unit::try_from(limit.unit).expect("known").as_str_name();
            let (limit, name) = (limit.requests_per_unit, &limit.name);
            format!("{code} {limit}/{unit} {} {name}", status.limit_remaining).trim_end().to_owned()
        }
    }
}
