//! Encoding of a decision as the frame of a response: a message of gRPC with its length before it. No message is
//! built in memory for it.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use smallvec::SmallVec;
use tollgate_core::quota::{Quota, Unit};
use tollgate_core::{descriptor::Descriptor, lease};
use tollgate_limiter::decision::{Code, Decision, Limited, Status};
use tollgate_proto::envoy::service::ratelimit::v3::{
    RateLimitRequest,
    rate_limit_response::{self as wire, rate_limit::Unit as WireUnit},
};

use super::headers::{self, whole_seconds};
use super::{NamedDecisions, Parts, ResponseOptions, metadata, problem};

/// Compression flag and length.
pub const PREFIX_BYTES: usize = 5;

/// Room for a frame: most denials of one descriptor fit, with their headers and the name of what decided.
const FRAME_BYTES: usize = 384;

/// Field numbers of a response.
const OVERALL_CODE: u8 = 1;
const STATUSES: u8 = 2;
const HEADERS: u8 = 3;
const RAW_BODY: u8 = 5;
const DYNAMIC_METADATA: u8 = 6;

/// Types of fields, in the low bits of their tags.
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;

type FrameBytes = SmallVec<[u8; FRAME_BYTES]>;

/// Encodes the response with its headers, its body and its metadata, which describes the request if it is given.
pub(super) fn encode(
    options: &ResponseOptions,
    parts: &Parts<'_, '_, '_>,
    request: Option<&RateLimitRequest>,
) -> Bytes {
    let decision = parts.decision;
    let mut bytes = FrameBytes::new();
    bytes.extend_from_slice(&[0; PREFIX_BYTES]);
    number(&mut bytes, OVERALL_CODE, code(decision.code) as u64);
    for each in &decision.statuses {
        message(&mut bytes, STATUSES, |bytes| status(bytes, each, decision.shed));
    }
    headers::add(&mut |name, value| header(&mut bytes, name, value), options, parts);
    if options.problem_body && decision.code == Code::OverLimit {
        header(&mut bytes, "Content-Type", "application/problem+json");
        text(&mut bytes, RAW_BODY, &problem::body(parts));
    }
    add_metadata(&mut bytes, options, parts, request);
    // Far below 4 GiB: one status for each descriptor of a request.
    let length = u32::try_from(bytes.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    if let Some([_, place @ ..]) = bytes.first_chunk_mut::<PREFIX_BYTES>() {
        *place = length.to_be_bytes();
    }
    Bytes::copy_from_slice(&bytes)
}

/// Writes the status of a descriptor; `retry_after` is the time after which a request that was shed may be retried.
fn status(bytes: &mut FrameBytes, status: &Status<'_>, retry_after: Option<Duration>) {
    let (remaining, until_reset) = match status {
        Status::NoLimit | Status::Denied => (0, None),
        Status::Shedding(shed) if shed.denies() => (0, retry_after),
        Status::Shedding(_) | Status::Unlimited | Status::Off { .. } => (u32::MAX, None),
        Status::Limited(limited) => (word(limited.verdict.remaining), Some(limited.until_reset())),
    };
    number(bytes, 1, code(status.code()) as u64);
    if let Some(limited) = status.limited() {
        message(bytes, 2, |bytes| current_limit(bytes, limited));
    }
    number(bytes, 3, remaining.into());
    if let Some(until_reset) = until_reset {
        message(bytes, 4, |bytes| number(bytes, 1, seconds(until_reset)));
    }
}

/// Writes a limit. A concurrency limit has no unit of time, so that Envoy's headers name no window.
fn current_limit(bytes: &mut FrameBytes, limited: &Limited<'_>) {
    let Quota { limit, window } = limited.quota;
    let window = Some(window).filter(|_| !limited.algorithm.holds_permits());
    number(bytes, 1, word(limit).into());
    number(bytes, 2, window.map_or(WireUnit::Unknown, |window| unit(window.unit())) as u64);
    text(bytes, 3, limited.name());
    if let Some(multiplier) =
        window.map(|window| window.multiplier().get()).filter(|multiplier| *multiplier > 1)
    {
        message(bytes, 4, |bytes| number(bytes, 1, multiplier.into()));
    }
}

/// Writes the dynamic metadata, if there is any: the end of a ban, its level, and whether it is only watched; the rule that
/// decided; decisions without the store; the lease of permits, which releases them when it is sent back in a `lease` entry;
/// shedding; and the description of the request. Fields are ordered by their names, but those of the description come last.
fn add_metadata(
    bytes: &mut FrameBytes,
    options: &ResponseOptions,
    Parts { decision, ban, descriptors, permits, .. }: &Parts<'_, '_, '_>,
    request: Option<&RateLimitRequest>,
) {
    let at = bytes.len();
    message(bytes, DYNAMIC_METADATA, |bytes| {
        if let Some(ban) = ban {
            struct_value(bytes, "ban", |bytes| {
                number_value(bytes, "level", ban.level.get().into());
                text_value(bytes, "mode", ban.mode().name());
                number_value(bytes, "until", ban.until.into());
            });
        }
        add_deciding(bytes, options.decision_metadata, decision, descriptors);
        if let Some(degraded) = decision.degraded {
            struct_value(bytes, "degraded", |bytes| {
                text_value(bytes, "policy", degraded.policy.name());
                text_value(bytes, "reason", degraded.reason);
            });
        }
        if let Some(permits) = permits {
            text_value(bytes, lease::KEY, &permits.lease().to_string());
        }
        if let Some(shed) = decision.statuses.iter().find_map(Status::denying_shed) {
            struct_value(bytes, "shed", |bytes| {
                text_value(bytes, "priority", shed.priority.name());
                text_value(bytes, "rule", &shed.rule.path());
            });
        }
        for (key, value) in request.iter().flat_map(|request| metadata::of(request, decision)) {
            struct_field(bytes, &key, |bytes| bytes.extend_from_slice(&value.encode_to_vec()));
        }
    });
    // Nothing but the tag and the length.
    if bytes.len() == at + 2 {
        bytes.truncate(at);
    }
}

/// Writes the rule or list that decided, with its counted key, as the settings request. Texts are bounded.
fn add_deciding(
    bytes: &mut FrameBytes,
    named: NamedDecisions,
    decision: &Decision<'_>,
    descriptors: &[Descriptor<'_>],
) {
    let (is_named, has_key) = match named {
        NamedDecisions::Off => (false, false),
        NamedDecisions::Denials => (decision.has_denial(), true),
        // The key has values of the request.
        NamedDecisions::DenialsWithoutKey => (decision.has_denial(), false),
        NamedDecisions::All => (true, true),
        NamedDecisions::AllWithoutKey => (true, false),
    };
    let Some(deciding) = is_named.then(|| decision.deciding()).flatten() else { return };
    struct_value(bytes, "decision", |bytes| {
        text_value(bytes, "code", deciding.code.name());
        if has_key {
            text_value(bytes, "key", deciding.key(descriptors).as_str());
        }
        text_value(bytes, "policy", deciding.policy.name());
        if let Some(remaining) = deciding.remaining {
            number_value(bytes, "remaining", remaining as f64);
        }
        text_value(bytes, "rule", deciding.rule().as_str());
    });
}

fn header(bytes: &mut FrameBytes, name: &str, value: &str) {
    message(bytes, HEADERS, |bytes| {
        text(bytes, 1, name);
        text(bytes, 2, value);
    });
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

/// Hits as the protocol has them: in 32 bits, where a larger number is the largest one. Headers and metadata have it
/// exactly.
fn word(hits: u64) -> u32 {
    u32::try_from(hits).unwrap_or(u32::MAX)
}

/// A time in whole seconds, as envoyproxy/ratelimit sends it. Rounded up: Envoy truncates fractions, and clients
/// would retry too early.
fn seconds(duration: Duration) -> u64 {
    whole_seconds(duration).min(i64::MAX.unsigned_abs())
}

const fn code(code: Code) -> wire::Code {
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
