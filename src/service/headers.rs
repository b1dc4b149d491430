//! Headers that Envoy adds to the HTTP response, and the times in them.

use std::time::Duration;

use tollgate_core::{
    ban::Ban,
    clock::{Clock, Timestamp},
    descriptor::Descriptor,
};
use tollgate_limiter::{
    Spread,
    decision::{Decision, Limited},
};

use super::{DegradedRemaining, HeaderNames, HeaderStyle, ResetFormat, ResponseOptions};
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

/// Time by which a point in time may be rounded down to a whole second. It covers the time from the store's decision to the
/// response, and the difference of the clocks, so that all responses in a window report the same Unix time.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(50);

/// Times of one response.
#[derive(Debug)]
pub(super) struct ResponseTimes<'a> {
    clock: &'a Clock,
    retry_after: Option<u64>,
}

impl<'a> ResponseTimes<'a> {
    /// Times of a response to a request with these descriptors. Limits that state no spread have `default_spread`.
    pub(super) fn of(
        clock: &'a Clock,
        decision: &Decision<'_>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        default_spread: Duration,
    ) -> Self {
        let spread = Spread { domain, descriptors, default: default_spread };
        let retry_after = decision.spread_retry_after(&spread);
        Self { clock, retry_after: retry_after.map(|wait| whole_seconds(wait).max(1)) }
    }

    /// `Retry-After` of a denial in seconds: until the limits admit the request, and the delay of its key.
    pub(super) const fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Unix time in seconds after `wait`, rounded up.
    pub(super) fn unix_seconds(&self, wait: Duration) -> u64 {
        unix_seconds(self.clock.now(), wait)
    }
}

fn unix_seconds(now: Timestamp, wait: Duration) -> u64 {
    let then = Duration::from_micros(now.as_micros()).saturating_add(wait);
    whole_seconds(then.saturating_sub(CLOCK_TOLERANCE))
}

/// Returns `duration` in seconds, rounded up.
pub(super) fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unix_time_is_rounded_up_but_for_the_tolerance_of_the_clocks() {
        let of = |now, micros| unix_seconds(Timestamp::from_micros(now), Duration::from_micros(micros));
        assert_eq!(of(1_700_000_000_250_000, 9_750_000), 1_700_000_010);
        // Times of one window's end, seen up to 50 ms after the decision.
        assert_eq!(of(1_700_000_000_300_000, 9_750_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_250_000, 9_749_000), 1_700_000_010);
        assert_eq!(of(1_700_000_000_300_001, 9_750_000), 1_700_000_011);
        assert_eq!(of(1_700_000_000_250_000, 10_450_000), 1_700_000_011);
        assert_eq!(of(0, 0), 0);
    }
}
