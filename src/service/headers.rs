//! Headers that Envoy adds to the HTTP response.

use tollgate_core::ban::Ban;
use tollgate_limiter::decision::{Decision, Limited};

use super::{
    DegradedRemaining, HeaderNames, HeaderStyle, ResetFormat, ResponseOptions,
    times::{ResponseTimes, whole_seconds},
};
use crate::proto::envoy::config::core::v3::HeaderValue;

/// Mark of a response decided without the store.
const DEGRADED_HEADER: (&str, &str) = ("x-ratelimit-policy", "degraded");

/// Mark of a denial because of a service's utilization.
const SHED_HEADER: (&str, &str) = ("x-ratelimit-policy", "shed");

/// Mark of a response to a banned client.
const BANNED_HEADER: (&str, &str) = ("x-ratelimit-policy", "banned");

/// Receiver of the headers of a response.
pub(super) trait HeaderSink {
    /// Adds a header.
    fn push(&mut self, name: &str, value: &str);
}

impl HeaderSink for Vec<HeaderValue> {
    fn push(&mut self, name: &str, value: &str) {
        Self::push(self, header(name, value.into()));
    }
}

/// Adds the headers of the configured style, `Retry-After` on a denial unless it is off, and the marks of a degraded response, of a
/// ban, and of a request that was shed. `ban` is the decision's.
pub(super) fn add(
    headers: &mut impl HeaderSink,
    options: &ResponseOptions,
    decision: &Decision<'_>,
    times: &ResponseTimes<'_>,
    ban: Option<&Ban>,
) {
    if options.headers != HeaderStyle::Off
        && let Some((_, governing)) = decision.governing()
    {
        // Whether the governing limit is the degraded one does not matter: the request's state is uncertain.
        let is_unknown =
            decision.degraded.is_some() && options.degraded_remaining == DegradedRemaining::MinusOne;
        let remaining = (!is_unknown).then_some(governing.verdict.remaining);
        match &options.headers {
            HeaderStyle::Off => {}
            HeaderStyle::Triple(names) => {
                add_triple(headers, names, options.reset_format, governing, remaining, times);
            }
            HeaderStyle::Ietf => add_ietf(headers, decision, governing, remaining),
        }
        if let Some(name) = &options.reset_at_header {
            push_number(headers, name, times.unix_seconds(governing.until_reset()));
        }
    }
    if let Some(seconds) = times.retry_after().filter(|_| options.retry_after_header) {
        push_number(headers, "Retry-After", seconds);
    }
    let is_banned = ban.is_some_and(|ban| ban.is_enforced);
    for (is_marked, (name, value)) in [
        (options.degraded_header && decision.degraded.is_some(), DEGRADED_HEADER),
        (is_banned, BANNED_HEADER),
        (decision.shed.is_some(), SHED_HEADER),
    ] {
        if is_marked {
            headers.push(name, value);
        }
    }
}

fn push_number(headers: &mut impl HeaderSink, name: &str, number: u64) {
    headers.push(name, itoa::Buffer::new().format(number));
}

pub(super) fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.into(), value, raw_value: Vec::new() }
}

/// Adds limit, remaining hits and reset. Remaining hits that are unknown are -1.
fn add_triple(
    headers: &mut impl HeaderSink,
    names: &HeaderNames,
    format: ResetFormat,
    governing: &Limited<'_>,
    remaining: Option<u64>,
    times: &ResponseTimes<'_>,
) {
    let reset = match format {
        ResetFormat::Seconds => whole_seconds(governing.until_reset()),
        ResetFormat::UnixTime => times.unix_seconds(governing.until_reset()),
    };
    push_number(headers, &names.limit, governing.quota.limit);
    match remaining {
        Some(hits) => push_number(headers, &names.remaining, hits),
        None => headers.push(&names.remaining, "-1"),
    }
    push_number(headers, &names.reset, reset);
}

/// Adds `RateLimit-Policy` with every limit of the request, and `RateLimit` with the state of the governing one, whose
/// remaining hits must be stated and cannot be negative: without them, there is no state.
fn add_ietf(
    headers: &mut impl HeaderSink,
    decision: &Decision<'_>,
    governing: &Limited<'_>,
    remaining: Option<u64>,
) {
    let policy = |limited: &Limited<'_>| {
        let (name, quota) = (policy_name(limited), limited.quota);
        if limited.algorithm.holds_permits() {
            format!("{name};q={};qu=\"concurrent-requests\"", quota.limit)
        } else {
            format!("{name};q={};w={}", quota.limit, quota.window.seconds_at(limited.verdict.decided_at))
        }
    };
    let mut policies: Vec<String> = Vec::new();
    for limited in decision.every_limit() {
        let policy = policy(limited);
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    headers.push("RateLimit-Policy", &policies.join(", "));
    if let Some(remaining) = remaining {
        let until = whole_seconds(governing.until_reset());
        headers.push("RateLimit", &format!("{};r={remaining};t={until}", policy_name(governing)));
    }
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
