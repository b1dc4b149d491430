//! Encoding of a response as a frame of gRPC: a length-prefixed message.

use bytes::{BufMut as _, Bytes, BytesMut};
use prost::{
    Message as _,
    encoding::{self, WireType, encode_key, encode_varint, encoded_len_varint},
};
use tollgate_core::ban::Ban;
use tollgate_limiter::verdict::{Code, Decision};

use super::{
    ResponseOptions, encode,
    headers::{self, HeaderSink},
    metadata,
    times::ResponseTimes,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitResponse;

/// Compression flag and length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Room for a response of one descriptor, without and with a denial's headers.
const OK_BYTES: usize = 96;
const DENIAL_BYTES: usize = 256;

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

/// Encodes the response with its headers and the metadata of a ban: the frame that [`of`] makes of the message, without
/// the message and its allocations.
pub(super) fn encode(decision: &Decision<'_>, options: &ResponseOptions, times: &ResponseTimes<'_>) -> Bytes {
    let ban = decision.ban();
    let capacity = if decision.code == Code::Ok { OK_BYTES } else { DENIAL_BYTES };
    let mut writer = FrameWriter::with_capacity(capacity);
    encoding::int32::encode(OVERALL_CODE, &encode::code(decision.code).into(), &mut writer.0);
    for status in &decision.statuses {
        encoding::message::encode(STATUSES, &encode::status(status, decision.shed), &mut writer.0);
    }
    headers::add(&mut writer, options, decision, times, ban.as_ref());
    if let Some(ban) = &ban {
        writer.ban(ban);
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

    /// Writes the dynamic metadata of [`metadata::add_ban`].
    fn ban(&mut self, ban: &Ban) {
        let Self(bytes) = self;
        short_message(bytes, DYNAMIC_METADATA, |bytes| {
            struct_field(bytes, "ban", |bytes| {
                // `struct_value`, whose fields are ordered by their names.
                short_message(bytes, 5, |bytes| {
                    let number = |bytes: &mut BytesMut, number: f64| {
                        encoding::double::encode(2, &number, bytes);
                    };
                    struct_field(bytes, "level", |bytes| number(bytes, ban.level.get().into()));
                    struct_field(bytes, "mode", |bytes| text(bytes, 3, metadata::mode_of(ban)));
                    struct_field(bytes, "until", |bytes| number(bytes, ban.until.into()));
                });
            });
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

/// Writes a field of a `google.protobuf.Struct`; `value` writes the content of its `Value`.
fn struct_field(bytes: &mut BytesMut, key: &str, value: impl FnOnce(&mut BytesMut)) {
    short_message(bytes, 1, |bytes| {
        text(bytes, 1, key);
        short_message(bytes, 2, value);
    });
}

/// Writes an embedded message of less than 128 bytes.
fn short_message(bytes: &mut BytesMut, field: u32, content: impl FnOnce(&mut BytesMut)) {
    encode_key(field, WireType::LengthDelimited, bytes);
    let at = bytes.len();
    bytes.put_u8(0);
    content(bytes);
    let length = bytes.len().saturating_sub(at).saturating_sub(1);
    debug_assert!(length < 128, "its length takes one byte");
    if let (Some(place), Ok(length)) = (bytes.get_mut(at), u8::try_from(length)) {
        *place = length;
    }
}
