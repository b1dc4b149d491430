//! Expectations for rules, in lines:
//!
//! - `env NAME=VALUE`: a variable to start with.
//! - `[COUNT x] DOMAIN k=v,k=v | k=v [+HITS] -> CODE: STATUS | STATUS`: this many requests, and the response to the last one.
//!   A STATUS is `CODE`, `CODE unlimited`, or `CODE LIMIT/UNIT REMAINING [NAME]`.
//! - `header NAME=VALUE`, `metadata JSON`: what that answer has beside.
//! - `metric SERIES VALUE`: a line of the metrics in the end.

use tollgate::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit},
    },
};

/// A line that is to be checked.
#[derive(Debug)]
pub(super) enum Line {
    Request { count: usize, request: RateLimitRequest, answer: String },
    Header { name: String, value: String },
    Metadata(serde_json::Value),
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
