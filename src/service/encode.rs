//! Encoding of a decision as a response message.

use std::time::Duration;

use tollgate_core::quota::{Quota, Unit};
use tollgate_limiter::decision::{Code, Decision, Limited, Status};

use super::times::whole_seconds;
use crate::proto::envoy::service::ratelimit::v3::{
    RateLimitResponse,
    rate_limit_response::{self as wire, DescriptorStatus, rate_limit::Unit as WireUnit},
};

/// Status of a descriptor, as the protocol has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireStatus<'r> {
    pub(super) code: wire::Code,
    pub(super) limit: Option<WireLimit<'r>>,
    pub(super) remaining: u32,
    /// Until the limit is reset.
    pub(super) seconds: Option<i64>,
}

/// Limit as reported to Envoy.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireLimit<'r> {
    pub(super) requests_per_unit: u32,
    pub(super) unit: WireUnit,
    pub(super) name: &'r str,
    pub(super) multiplier: Option<u32>,
}

/// Returns the response without headers, body and metadata.
pub(super) fn response(decision: &Decision<'_>) -> RateLimitResponse {
    let statuses = decision.statuses.iter().map(|status| WireStatus::of(status, decision.shed));
    RateLimitResponse {
        overall_code: code(decision.code).into(),
        statuses: statuses.map(WireStatus::into_message).collect(),
        ..Default::default()
    }
}

impl<'r> WireStatus<'r> {
    /// Encodes a status; `retry_after` is the time after which a request that was shed may be retried.
    pub(super) fn of(status: &Status<'r>, retry_after: Option<Duration>) -> Self {
        let plain = Self { code: code(status.code()), limit: None, remaining: 0, seconds: None };
        match status {
            Status::NoLimit | Status::Denied => plain,
            Status::Shedding(shed) => Self {
                remaining: if shed.denies() { 0 } else { u32::MAX },
                seconds: retry_after.filter(|_| shed.denies()).map(seconds),
                ..plain
            },
            Status::Unlimited | Status::Off { .. } => Self { remaining: u32::MAX, ..plain },
            Status::Limited(limited) => Self {
                limit: Some(WireLimit::of(limited)),
                remaining: word(limited.verdict.remaining),
                seconds: Some(seconds(limited.until_reset())),
                ..plain
            },
        }
    }

    fn into_message(self) -> DescriptorStatus {
        DescriptorStatus {
            code: self.code.into(),
            current_limit: self.limit.map(|limit| wire::RateLimit {
                requests_per_unit: limit.requests_per_unit,
                unit: limit.unit.into(),
                name: limit.name.into(),
                unit_multiplier: limit.multiplier,
            }),
            limit_remaining: self.remaining,
            duration_until_reset: self.seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 }),
        }
    }
}

impl<'r> WireLimit<'r> {
    /// A concurrency limit has no unit of time, so that Envoy's headers name no window.
    fn of(limited: &Limited<'r>) -> Self {
        let Quota { limit, window } = limited.quota;
        let (requests_per_unit, name) = (word(limit), limited.name());
        if limited.algorithm.holds_permits() {
            return Self { requests_per_unit, unit: WireUnit::Unknown, name, multiplier: None };
        }
        let multiplier = window.multiplier().get();
        Self {
            requests_per_unit,
            unit: unit(window.unit()),
            name,
            multiplier: (multiplier > 1).then_some(multiplier),
        }
    }
}

/// Hits as the protocol has them: in 32 bits, where a larger number is the largest one. Headers and metadata have it
/// exactly.
fn word(hits: u64) -> u32 {
    u32::try_from(hits).unwrap_or(u32::MAX)
}

/// A time in whole seconds, as envoyproxy/ratelimit sends it. Rounded up: Envoy truncates fractions, and clients
/// would retry too early.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(whole_seconds(duration)).unwrap_or(i64::MAX)
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
