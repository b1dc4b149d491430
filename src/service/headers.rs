//! Headers that Envoy adds to the HTTP response.

use tollgate_limiter::verdict::{Code, Decision, Limited, Status};

use super::{HeaderNames, HeaderStyle, ResponseOptions, encode::whole_seconds};
use crate::proto::envoy::{config::core::v3::HeaderValue, service::ratelimit::v3::RateLimitResponse};

/// Mark of a response decided without the store.
const DEGRADED_HEADER: (&str, &str) = ("x-ratelimit-policy", "degraded");

/// Mark of a denial because of a service's utilization.
const SHED_HEADER: (&str, &str) = ("x-ratelimit-policy", "shed");

/// Adds the headers of the configured style, `Retry-After` on a denial, and the mark of a degraded response or of one
/// that sheds.
pub(super) fn add(response: &mut RateLimitResponse, options: &ResponseOptions, decision: &Decision<'_>) {
    let headers = &mut response.response_headers_to_add;
    match &options.headers {
        HeaderStyle::Off => {}
        HeaderStyle::Triple(names) => add_triple(headers, names, decision),
        HeaderStyle::Ietf => add_ietf(headers, decision),
    }
    if let Some(retry_after) = decision.retry_after() {
        headers.push(header("Retry-After", whole_seconds(retry_after).max(1).to_string()));
    }
    let is_shed = decision.shed.is_some();
    if options.degraded_header && (is_shed || decision.degraded.is_some()) {
        let (name, value) = if is_shed { SHED_HEADER } else { DEGRADED_HEADER };
        headers.push(header(name, value.into()));
    }
}

pub(super) fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.into(), value, raw_value: Vec::new() }
}

/// Returns the status that the headers report, chosen as in envoyproxy/ratelimit: the last one that denies the request,
/// else the first one with the least remaining.
fn governing<'a>(decision: &'a Decision<'_>) -> Option<&'a Limited<'a>> {
    let limited = || decision.statuses.iter().filter_map(Status::limited);
    let denying = limited().rfind(|limited| limited.code() == Code::OverLimit && !limited.is_quota);
    // As in envoyproxy/ratelimit, an untouched limit of the largest possible size is not reported.
    let least = || {
        limited()
            .filter(|limited| limited.verdict.remaining < u32::MAX)
            .min_by_key(|limited| limited.verdict.remaining)
    };
    denying.or_else(least)
}

fn add_triple(headers: &mut Vec<HeaderValue>, names: &HeaderNames, decision: &Decision<'_>) {
    let Some(limited) = governing(decision) else { return };
    headers.push(header(&names.limit, limited.quota.limit.to_string()));
    headers.push(header(&names.remaining, limited.verdict.remaining.to_string()));
    headers.push(header(&names.reset, whole_seconds(limited.until_reset()).to_string()));
}

/// Adds `RateLimit-Policy` with every limit of the request, and `RateLimit` with the state of the governing one.
fn add_ietf(headers: &mut Vec<HeaderValue>, decision: &Decision<'_>) {
    let Some(governing) = governing(decision) else { return };
    let policy = |limited: &Limited<'_>| {
        let (name, quota) = (policy_name(limited), limited.quota);
        if limited.algorithm.holds_permits() {
            format!("{name};q={};qu=\"concurrent-requests\"", quota.limit)
        } else {
            format!("{name};q={};w={}", quota.limit, quota.window.seconds())
        }
    };
    let mut policies: Vec<String> = Vec::new();
    for limited in decision.statuses.iter().filter_map(Status::limited) {
        let policy = policy(limited);
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    headers.push(header("RateLimit-Policy", policies.join(", ")));
    let until = whole_seconds(governing.until_reset());
    let remaining = governing.verdict.remaining;
    headers.push(header("RateLimit", format!("{};r={remaining};t={until}", policy_name(governing))));
}

/// Label of the limit as a structured-field string (RFC 9651).
fn policy_name(limited: &Limited<'_>) -> String {
    let mut quoted = String::from("\"");
    for character in limited.label().chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            ' '..='~' => quoted.push(character),
            _ => quoted.push('?'),
        }
    }
    quoted.push('"');
    quoted
}
