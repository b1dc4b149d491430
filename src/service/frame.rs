//! Encoding of a response as a frame of gRPC: a length-prefixed message.

use bytes::{BufMut as _, Bytes};
use prost::Message as _;
use smallvec::SmallVec;
use tollgate_core::ban::Ban;

use super::{
    Parts, ResponseOptions,
    encode::{self, WireLimit, WireStatus},
    headers::{self, HeaderSink},
    metadata,
    named_decision::{self, NamedDecision},
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// Compression flag and length.
pub(crate) const PREFIX_BYTES: usize = 5;

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
pub(crate) fn of(message: &RateLimitResponse) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(length.saturating_add(PREFIX_BYTES));
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
    number(&mut bytes, OVERALL_CODE, encode::code(decision.code) as u64);
    for each in &decision.statuses {
        message(&mut bytes, STATUSES, |bytes| status(bytes, WireStatus::of(each, decision.shed)));
    }
    headers::add(&mut bytes, options, decision, times, ban.as_ref());
    if ban.is_some() || named.is_some() {
        add_metadata(&mut bytes, ban.as_ref(), named.as_ref());
    }
    let prefix = prefix(bytes.len().saturating_sub(PREFIX_BYTES));
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

/// Writes the dynamic metadata of [`metadata::add_ban`] and [`metadata::add_decision`]. The fields of each message are
/// ordered by their names.
fn add_metadata(bytes: &mut FrameBytes, ban: Option<&Ban>, named: Option<&NamedDecision>) {
    message(bytes, DYNAMIC_METADATA, |bytes| {
        if let Some(ban) = ban {
            struct_value(bytes, "ban", |bytes| {
                number_value(bytes, "level", ban.level.get().into());
                text_value(bytes, "mode", metadata::mode_of(ban));
                number_value(bytes, "until", ban.until.into());
            });
        }
        if let Some(named) = named {
            struct_value(bytes, named_decision::KEY, |bytes| {
                text_value(bytes, "code", named.code());
                text_value(bytes, "key", named.key.as_str());
                text_value(bytes, "policy", named.policy.name());
                if let Some(remaining) = named.remaining {
                    number_value(bytes, "remaining", remaining as f64);
                }
                text_value(bytes, "rule", named.rule.as_str());
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
    let length = bytes.len().saturating_sub(at).saturating_sub(1);
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
