//! Encoding of a decision as a response: as a message, or without one as a frame of gRPC, a length-prefixed message.

use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use prost::Message as _;
use smallvec::SmallVec;
use tollgate_core::ban::Ban;
use tollgate_core::quota::{Quota, Unit};
use tollgate_limiter::decision::{Code, Decision, Limited, Status};
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitResponse,
    rate_limit_response::{self as wire, DescriptorStatus, rate_limit::Unit as WireUnit},
};

use super::headers::{self, HeaderSink, whole_seconds};
use super::metadata::{self, NamedDecision, code_name};
use super::{Parts, ResponseOptions};

/// Compression flag and length.
pub const PREFIX_BYTES: usize = 5;

/// Room for a frame: most denials of one descriptor fit, with their headers and the name of what decided.
const FRAME_BYTES: usize = 384;

/// Field numbers of a response.
const OVERALL_CODE: u8 = 1;
const STATUSES: u8 = 2;
const HEADERS: u8 = 3;
const DYNAMIC_METADATA: u8 = 6;

/// Types of fields, in the low bits of their tags.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;

type FrameBytes = SmallVec<[u8; FRAME_BYTES]>;

/// Encodes any response.
pub fn of(message: &RateLimitResponse) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(length + PREFIX_BYTES);
    frame.put_slice(&prefix(length));
    message.encode_raw(&mut frame);
    frame.into()
}

/// Encodes the response with its headers and the metadata of a ban and of what decided: the frame that [`of`] makes of the
/// message, without the message and its allocations.
pub(super) fn encode(options: &ResponseOptions, parts: &Parts<'_, '_, '_>) -> Bytes {
    let Parts { decision, times, descriptors, .. } = parts;
    let named = NamedDecision::of(options, decision, descriptors);
    let ban = decision.ban();
    let mut bytes = FrameBytes::new();
    bytes.extend_from_slice(&prefix(0));
    number(&mut bytes, OVERALL_CODE, code(decision.code) as u64);
    for each in &decision.statuses {
        message(&mut bytes, STATUSES, |bytes| status(bytes, WireStatus::of(each, decision.shed)));
    }
    headers::add(&mut bytes, options, decision, times, ban.as_ref());
    add_metadata(&mut bytes, ban.as_ref(), named.as_ref());
    let prefix = prefix(bytes.len() - PREFIX_BYTES);
    if let Some(place) = bytes.first_chunk_mut() {
        *place = prefix;
    }
    Bytes::copy_from_slice(&bytes)
}

/// Prefix of a message that is not compressed. Its length is far below 4 GiB: one status for each descriptor of a request.
fn prefix(length: usize) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [0, a, b, c, d]
}

fn status(bytes: &mut FrameBytes, status: WireStatus<'_>) {
    number(bytes, 1, status.code as u64);
    if let Some(limit) = status.limit {
        message(bytes, 2, |bytes| current_limit(bytes, limit));
    }
    number(bytes, 3, status.remaining.into());
    if let Some(seconds) = status.seconds {
        message(bytes, 4, |bytes| number(bytes, 1, seconds.cast_unsigned()));
    }
}

fn current_limit(bytes: &mut FrameBytes, limit: WireLimit<'_>) {
    number(bytes, 1, limit.requests_per_unit.into());
    number(bytes, 2, limit.unit as u64);
    text(bytes, 3, limit.name);
    if let Some(multiplier) = limit.multiplier {
        message(bytes, 4, |bytes| number(bytes, 1, multiplier.into()));
    }
}

/// Adds the dynamic metadata to a message, as a frame has it.
pub(super) fn merge_metadata(
    message: &mut RateLimitResponse,
    ban: Option<&Ban>,
    named: Option<&NamedDecision<'_>>,
) {
    let mut bytes = FrameBytes::new();
    add_metadata(&mut bytes, ban, named);
    let merged = message.merge(&*bytes);
    debug_assert_eq!(merged, Ok(()), "a field of the message");
}

/// Writes the end of a ban, its level, and whether it is only watched; and the rule that decided. The fields of each message
/// are ordered by their names.
fn add_metadata(bytes: &mut FrameBytes, ban: Option<&Ban>, named: Option<&NamedDecision<'_>>) {
    if ban.is_none() && named.is_none() {
        return;
    }
    message(bytes, DYNAMIC_METADATA, |bytes| {
        if let Some(ban) = ban {
            struct_value(bytes, "ban", |bytes| {
                number_value(bytes, "level", ban.level.get().into());
                text_value(bytes, "mode", ban.mode().name());
                number_value(bytes, "until", ban.until.into());
            });
        }
        if let Some(NamedDecision { deciding, key }) = named {
            struct_value(bytes, metadata::KEY, |bytes| {
                text_value(bytes, "code", code_name(deciding.code));
                text_value(bytes, "key", key.as_str());
                text_value(bytes, "policy", deciding.policy.name());
                if let Some(remaining) = deciding.remaining {
                    number_value(bytes, "remaining", remaining as f64);
                }
                text_value(bytes, "rule", deciding.rule().as_str());
            });
        }
    });
}

impl HeaderSink for FrameBytes {
    fn push(&mut self, name: &str, value: &str) {
        message(self, HEADERS, |bytes| {
            text(bytes, 1, name);
            text(bytes, 2, value);
        });
    }
}

/// Writes the tag of a field, whose number is at most 15.
fn tag(bytes: &mut FrameBytes, field: u8, kind: u8) {
    bytes.push((field << 3) | kind);
}

fn varint(bytes: &mut FrameBytes, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Writes an integer field; a zero is omitted.
fn number(bytes: &mut FrameBytes, field: u8, number: u64) {
    if number > 0 {
        tag(bytes, field, VARINT);
        varint(bytes, number);
    }
}

/// Writes a text field; an empty one is omitted.
fn text(bytes: &mut FrameBytes, field: u8, text: &str) {
    if !text.is_empty() {
        tag(bytes, field, LENGTH_DELIMITED);
        varint(bytes, text.len() as u64);
        bytes.extend_from_slice(text.as_bytes());
    }
}

/// Writes a field of a `google.protobuf.Struct` that is a `Struct` in turn.
fn struct_value(bytes: &mut FrameBytes, key: &str, content: impl FnOnce(&mut FrameBytes)) {
    struct_field(bytes, key, |bytes| message(bytes, 5, content));
}

/// Writes a field that is a number, also zero.
fn number_value(bytes: &mut FrameBytes, key: &str, number: f64) {
    struct_field(bytes, key, |bytes| {
        tag(bytes, 2, FIXED_64);
        bytes.extend_from_slice(&number.to_le_bytes());
    });
}

/// Writes a field that is a text; an empty one is omitted.
fn text_value(bytes: &mut FrameBytes, key: &str, value: &str) {
    if !value.is_empty() {
        struct_field(bytes, key, |bytes| text(bytes, 3, value));
    }
}

/// Writes a field of a `google.protobuf.Struct`; `value` writes the content of its `Value`.
fn struct_field(bytes: &mut FrameBytes, key: &str, value: impl FnOnce(&mut FrameBytes)) {
    message(bytes, 1, |bytes| {
        text(bytes, 1, key);
        message(bytes, 2, value);
    });
}

/// Writes an embedded message, whose length usually takes one byte.
fn message(bytes: &mut FrameBytes, field: u8, content: impl FnOnce(&mut FrameBytes)) {
    tag(bytes, field, LENGTH_DELIMITED);
    let at = bytes.len();
    bytes.push(0);
    content(bytes);
    let length = bytes.len() - at - 1;
    if length < 0x80 {
        if let Some(place) = bytes.get_mut(at) {
            *place = length as u8;
        }
        return;
    }
    let mut encoded = FrameBytes::new();
    varint(&mut encoded, length as u64);
    bytes.remove(at);
    bytes.insert_from_slice(at, &encoded);
}

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
