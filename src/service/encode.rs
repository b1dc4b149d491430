//! Encoding of a decision as a response message.

use std::time::Duration;

use tollgate_core::quota::{Quota, Unit};
use tollgate_limiter::verdict::{Code, Decision, Limited, Status};

use super::times::whole_seconds;
use crate::proto::envoy::service::ratelimit::v3::{
    RateLimitResponse,
    rate_limit_response::{self as wire, DescriptorStatus, rate_limit::Unit as WireUnit},
};

/// Returns the response without headers, body and metadata.
pub(super) fn response(decision: &Decision<'_>) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(decision.code).into(),
        statuses: decision.statuses.iter().map(|each| status(each, decision.shed)).collect(),
        ..Default::default()
    }
}

/// Encodes a status; `retry_after` is the time after which a request that was shed may be retried.
pub(super) fn status(status: &Status<'_>, retry_after: Option<Duration>) -> DescriptorStatus {
    let code = code(status.code()).into();
    match status {
        Status::NoLimit | Status::Denied => DescriptorStatus { code, ..Default::default() },
        Status::Shedding(shed) => DescriptorStatus {
            code,
            limit_remaining: if shed.denies() { 0 } else { u32::MAX },
            duration_until_reset: retry_after.filter(|_| shed.denies()).map(seconds),
            ..Default::default()
        },
        Status::Unlimited | Status::Off { .. } => {
            DescriptorStatus { code, limit_remaining: u32::MAX, ..Default::default() }
        }
        Status::Limited(limited) => DescriptorStatus {
            code,
            current_limit: Some(current_limit(limited)),
            limit_remaining: word(limited.verdict.remaining),
            duration_until_reset: Some(seconds(limited.until_reset())),
        },
    }
}

/// Hits as the protocol has them: in 32 bits, where a larger number is the largest one. Headers and metadata have it
/// exactly.
fn word(hits: u64) -> u32 {
    u32::try_from(hits).unwrap_or(u32::MAX)
}

/// Limit as reported to Envoy. A concurrency limit has no unit of time, so that Envoy's headers name no window.
fn current_limit(limited: &Limited<'_>) -> wire::RateLimit {
    let Quota { limit, window } = limited.quota;
    let requests_per_unit = word(limit);
    let name = limited.name().into();
    if limited.algorithm.holds_permits() {
        return wire::RateLimit { requests_per_unit, name, ..Default::default() };
    }
    let multiplier = window.multiplier().get();
    wire::RateLimit {
        requests_per_unit,
        unit: unit(window.unit()).into(),
        name,
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    }
}

/// A time in whole seconds, as envoyproxy/ratelimit sends it. Rounded up: Envoy truncates fractions, and clients
/// would retry too early.
fn seconds(duration: Duration) -> prost_types::Duration {
    let seconds = whole_seconds(duration);
    prost_types::Duration { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanos: 0 }
}

pub(super) const fn code(code: Code) -> wire::Code {
    match code {
        Code::Ok => wire::Code::Ok,
        Code::OverLimit => wire::Code::OverLimit,
    }
}

const fn unit(unit: Unit) -> WireUnit {
    match unit {
        Unit::Second => WireUnit::Second,
        Unit::Minute => WireUnit::Minute,
        Unit::Hour => WireUnit::Hour,
        Unit::Day => WireUnit::Day,
        Unit::Week => WireUnit::Week,
        Unit::Month => WireUnit::Month,
        Unit::Year => WireUnit::Year,
    }
}
