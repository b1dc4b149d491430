//! Encoding of a response as a frame of gRPC: a length-prefixed message.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{self, WireType, encode_key, encode_varint, encoded_len_varint},
};
use tollgate_core::ban::Ban;
use tollgate_limiter::verdict::Code;

use super::{
    Parts, ResponseOptions, encode,
    headers::{self, HeaderSink},
    metadata,
    named_decision::{self, NamedDecision},
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// Compression flag and length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Room for a response of one descriptor, without and with a denial's headers, and for the name of what decided.
const OK_BYTES: usize = 96;
const DENIAL_BYTES: usize = 256;
const NAMED_BYTES: usize = 160;

/// Field numbers of a response.
const OVERALL_CODE: u32 = 1;
const STATUSES: u32 = 2;
const HEADERS: u32 = 3;
const DYNAMIC_METADATA: u32 = 6;

/// Encodes any response.
pub(crate) fn of(message: &RateLimitResponse) -> Bytes {
    let length = message.encoded_len();
    let mut writer = FrameWriter::with_capacity(length.saturating_add(PREFIX_BYTES));
    message.encode_raw(&mut writer.0);
    writer.finish()
}

/// Encodes the response with its headers and the metadata of a ban and of what decided: the frame that [`of`] makes of the
/// message, without the message and its allocations.
pub(super) fn encode(options: &ResponseOptions, parts: &Parts<'_, '_, '_>) -> Bytes {
    let Parts { decision, times, descriptors, .. } = parts;
    let named = NamedDecision::of(options, decision, descriptors);
    let ban = decision.ban();
    let capacity = if decision.code == Code::Ok { OK_BYTES } else { DENIAL_BYTES };
    let capacity = if named.is_some() { capacity.saturating_add(NAMED_BYTES) } else { capacity };
    let mut writer = FrameWriter::with_capacity(capacity);
    encoding::int32::encode(OVERALL_CODE, &encode::code(decision.code).into(), &mut writer.0);
    for status in &decision.statuses {
        encoding::message::encode(STATUSES, &encode::status(status, decision.shed), &mut writer.0);
    }
    headers::add(&mut writer, options, decision, times, ban.as_ref());
    if ban.is_some() || named.is_some() {
        writer.metadata(ban.as_ref(), named.as_ref());
    }
    writer.finish()
}

/// Frame that is being written.
struct FrameWriter(BytesMut);

impl FrameWriter {
    fn with_capacity(capacity: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(capacity);
        bytes.put_slice(&[0; PREFIX_BYTES]);
        Self(bytes)
    }

    fn finish(self) -> Bytes {
        let Self(mut bytes) = self;
        // Far below 4 GiB: one status for each descriptor of a request.
        let length = u32::try_from(bytes.len().saturating_sub(PREFIX_BYTES)).unwrap_or(u32::MAX);
        if let Some(place) = bytes.get_mut(1..PREFIX_BYTES) {
            place.copy_from_slice(&length.to_be_bytes());
        }
        bytes.freeze()
    }

    /// Writes the dynamic metadata of [`metadata::add_ban`] and [`metadata::add_decision`]. The fields of each message are
    /// ordered by their names.
    fn metadata(&mut self, ban: Option<&Ban>, named: Option<&NamedDecision>) {
        let Self(bytes) = self;
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
}

impl HeaderSink for FrameWriter {
    fn push(&mut self, name: &str, value: &str) {
        let Self(bytes) = self;
        encode_key(HEADERS, WireType::LengthDelimited, bytes);
        encode_varint(text_len(name).saturating_add(text_len(value)) as u64, bytes);
        text(bytes, 1, name);
        text(bytes, 2, value);
    }
}

/// Writes a text field, whose number is at most 15; an empty one is omitted.
fn text(bytes: &mut BytesMut, field: u32, text: &str) {
    if !text.is_empty() {
        encode_key(field, WireType::LengthDelimited, bytes);
        encode_varint(text.len() as u64, bytes);
        bytes.put_slice(text.as_bytes());
    }
}

/// Length of a text field.
fn text_len(text: &str) -> usize {
    let prefix = encoded_len_varint(text.len() as u64).saturating_add(1);
    if text.is_empty() { 0 } else { prefix.saturating_add(text.len()) }
}

/// Writes a field of a `google.protobuf.Struct` that is a `Struct` in turn.
fn struct_value(bytes: &mut BytesMut, key: &str, content: impl FnOnce(&mut BytesMut)) {
    struct_field(bytes, key, |bytes| message(bytes, 5, content));
}

/// Writes a field that is a number.
fn number_value(bytes: &mut BytesMut, key: &str, number: f64) {
    struct_field(bytes, key, |bytes| encoding::double::encode(2, &number, bytes));
}

/// Writes a field that is a text; an empty one is omitted.
fn text_value(bytes: &mut BytesMut, key: &str, value: &str) {
    if !value.is_empty() {
        struct_field(bytes, key, |bytes| text(bytes, 3, value));
    }
}

/// Writes a field of a `google.protobuf.Struct`; `value` writes the content of its `Value`.
fn struct_field(bytes: &mut BytesMut, key: &str, value: impl FnOnce(&mut BytesMut)) {
    message(bytes, 1, |bytes| {
        text(bytes, 1, key);
        message(bytes, 2, value);
    });
}

/// Writes an embedded message, whose length usually takes one byte.
fn message(bytes: &mut BytesMut, field: u32, content: impl FnOnce(&mut BytesMut)) {
    encode_key(field, WireType::LengthDelimited, bytes);
    let at = bytes.len();
    bytes.put_u8(0);
    content(bytes);
    let begin = at.saturating_add(1);
    let length = bytes.len().saturating_sub(begin);
    let more = encoded_len_varint(length as u64).saturating_sub(1);
    if more > 0 {
        bytes.put_bytes(0, more);
        bytes.copy_within(begin..begin.saturating_add(length), begin.saturating_add(more));
    }
    if let Some(mut place) = bytes.get_mut(at..) {
        encode_varint(length as u64, &mut place);
    }
}
