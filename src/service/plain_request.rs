//! Reading of a usual request message without copies: its texts are borrowed from the message's bytes.

use std::str;

use prost::{Message as _, encoding::decode_varint};
use smallvec::SmallVec;
use tollgate_core::descriptor::{Descriptor, Entries, Entry};

use super::{
    RequestBounds,
    decode::{self, Descriptors},
};
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;

/// A request that is well formed and within the bounds.
#[derive(Clone, Debug)]
pub(crate) struct PlainRequest<'a> {
    /// The encoded message.
    pub(crate) bytes: &'a [u8],
    pub(crate) domain: &'a str,
    pub(crate) descriptors: Descriptors<'a>,
}

/// Hits of a descriptor, which depend on those of the request.
#[derive(Clone, Copy, Debug, Default)]
struct OwnHits {
    amount: Option<u64>,
    is_negative: bool,
}

/// Types of fields, in the low bits of their tags.
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

/// Value of a field, by its type.
#[derive(Clone, Copy, Debug)]
enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Fields of a message, in order.
#[derive(Debug)]
struct Fields<'a>(&'a [u8]);

impl<'a> PlainRequest<'a> {
    /// Reads a request. Returns `None` for one that is malformed, exceeds the bounds, or has unknown or repeated fields:
    /// the generated decoder reads these, or states what is wrong.
    pub(crate) fn read(message: &'a [u8], bounds: &RequestBounds) -> Option<Self> {
        let (mut domain, mut addend, mut fields) = ("", None, Fields(message));
        let (mut descriptors, mut hits) = (Descriptors::new(), SmallVec::<[OwnHits; 2]>::new());
        while let Some(field) = fields.next() {
            match field? {
                (1, FieldValue::Bytes(text)) if domain.is_empty() => domain = str::from_utf8(text).ok()?,
                (2, FieldValue::Bytes(message)) => {
                    let (descriptor, own) = descriptor(message, bounds)?;
                    descriptors.push(descriptor);
                    hits.push(own);
                }
                (3, FieldValue::Number(number)) if addend.is_none() => {
                    addend = Some(u32::try_from(number).ok()?);
                }
                _ => return None,
            }
        }
        let has_domain = !domain.is_empty() && domain.len() <= bounds.max_text_bytes;
        if !has_domain || descriptors.is_empty() || descriptors.len() > bounds.max_descriptors {
            return None;
        }
        let default = u64::from(addend.unwrap_or_default().max(1));
        for (descriptor, own) in descriptors.iter_mut().zip(hits) {
            descriptor.hits = decode::hits(own.amount.unwrap_or(default), own.is_negative);
        }
        Some(Self { bytes: message, domain, descriptors })
    }
}

/// Reads a descriptor, with its hits beside it.
fn descriptor<'a>(message: &'a [u8], bounds: &RequestBounds) -> Option<(Descriptor<'a>, OwnHits)> {
    let (mut entries, mut limit, mut own) = (Entries::new(), None, OwnHits::default());
    let mut fields = Fields(message);
    while let Some(field) = fields.next() {
        match field? {
            (1, FieldValue::Bytes(message)) if entries.len() < bounds.max_entries => {
                let entry = entry(message)?;
                if entry.key.len().max(entry.value.len()) > bounds.max_text_bytes {
                    return None;
                }
                entries.push(entry);
            }
            (2, FieldValue::Bytes(message)) if limit.is_none() => {
                limit = Some(decode::quota(&RateLimitOverride::decode(message).ok()?).ok()?);
            }
            (3, FieldValue::Bytes(message)) if own.amount.is_none() => {
                own.amount = Some(u64::decode(message).ok()?);
            }
            (4, FieldValue::Number(flag)) => own.is_negative = flag != 0,
            _ => return None,
        }
    }
    Some((Descriptor { entries, limit, hits: decode::hits(1, false) }, own))
}

fn entry(message: &[u8]) -> Option<Entry<'_>> {
    let (mut entry, mut fields) = (Entry { key: "", value: "" }, Fields(message));
    while let Some(field) = fields.next() {
        match field? {
            (1, FieldValue::Bytes(text)) if entry.key.is_empty() => entry.key = str::from_utf8(text).ok()?,
            (2, FieldValue::Bytes(text)) if entry.value.is_empty() => {
                entry.value = str::from_utf8(text).ok()?;
            }
            _ => return None,
        }
    }
    Some(entry)
}

impl<'a> Fields<'a> {
    /// Number and value of the next field: `None` at the end, and `Some(None)` if it is malformed or of another type.
    fn next(&mut self) -> Option<Option<(u32, FieldValue<'a>)>> {
        (!self.0.is_empty()).then(|| self.field())
    }

    fn field(&mut self) -> Option<(u32, FieldValue<'a>)> {
        let tag = u32::try_from(self.varint()?).ok()?;
        let (number, value) = (tag >> 3, self.varint()?);
        match tag & 7 {
            VARINT => Some((number, FieldValue::Number(value))),
            LENGTH_DELIMITED => {
                let (bytes, rest) = self.0.split_at_checked(usize::try_from(value).ok()?)?;
                self.0 = rest;
                Some((number, FieldValue::Bytes(bytes)))
            }
            _ => None,
        }
    }

    /// Reads a number, usually of one byte.
    fn varint(&mut self) -> Option<u64> {
        match self.0 {
            [byte @ 0..0x80, rest @ ..] => {
                self.0 = rest;
                Some((*byte).into())
            }
            _ => decode_varint(&mut self.0).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::encoding::{WireType, encode_key, encode_varint};

    use super::*;
    use crate::proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor},
        service::ratelimit::v3::RateLimitRequest,
    };

    const BOUNDS: RequestBounds = RequestBounds { max_descriptors: 3, max_entries: 3, max_text_bytes: 6 };

    fn descriptors() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
        let entry = ("[a-zé]{0,4}", "[a-zé]{0,4}")
            .prop_map(|(key, value)| rate_limit_descriptor::Entry { key, value });
        let limit = (any::<u32>(), 0..8_i32, prop::option::of(0..3_u32)).prop_map(
            |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
                requests_per_unit,
                unit,
                unit_multiplier,
            },
        );
        let descriptor = (
            prop::collection::vec(entry, 0..4),
            prop::option::weighted(0.2, limit),
            prop::option::of(any::<u64>()),
            any::<bool>(),
        );
        let descriptor = descriptor.prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
            RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
        });
        prop::collection::vec(descriptor, 0..5)
    }

    /// Compares a request that is read with the one of the generated decoder. Returns whether it was read.
    fn check(bytes: &[u8]) -> Result<bool, TestCaseError> {
        let Some(read) = PlainRequest::read(bytes, &BOUNDS) else { return Ok(false) };
        let message = RateLimitRequest::decode(bytes).expect("well formed");
        let expected = decode::descriptors(&message, &BOUNDS).expect("within the bounds");
        prop_assert_eq!(read.domain, &message.domain);
        prop_assert_eq!(format!("{:?}", read.descriptors), format!("{expected:?}"));
        Ok(true)
    }

    /// Bytes of fields of any number and type, repeated in any order, whose content is `content` where it has a length.
    fn fields(
        content: impl Strategy<Value = Vec<u8>> + 'static,
        count: usize,
    ) -> impl Strategy<Value = Vec<u8>> {
        let key = |number, wire_type: WireType| {
            let mut bytes = Vec::new();
            encode_key(number, wire_type, &mut bytes);
            bytes
        };
        let delimited = (1..5_u32, content).prop_map(move |(number, content)| {
            let mut bytes = key(number, WireType::LengthDelimited);
            encode_varint(content.len() as u64, &mut bytes);
            [bytes, content].concat()
        });
        let number = prop_oneof![4 => 0..4_u64, 1 => any::<u64>(), 1 => Just(1_u64 << 32)];
        let varint = (1..6_u32, number, 0..2_usize).prop_map(move |(number, value, padding)| {
            let mut bytes = key(number, WireType::Varint);
            encode_varint(value, &mut bytes);
            // A longer encoding of the number, which is valid too.
            let last = bytes.len() - 1;
            bytes[last] |= if padding == 0 { 0 } else { 0x80 };
            bytes.resize(last + 1 + padding, 0);
            bytes
        });
        let other = (1..40_u32, 0..3_usize).prop_map(move |(number, which)| match which {
            0 => [key(number, WireType::SixtyFourBit), vec![1; 8]].concat(),
            1 => [key(number, WireType::ThirtyTwoBit), vec![1; 4]].concat(),
            _ => [key(number, WireType::StartGroup), key(number, WireType::EndGroup)].concat(),
        });
        let field = prop_oneof![16 => delimited, 6 => varint, 1 => other];
        prop::collection::vec(field, 0..count).prop_map(|fields| fields.concat())
    }

    /// Bytes of a request: whole or broken messages, merged in all ways that protobuf has.
    fn wire_bytes() -> impl Strategy<Value = Vec<u8>> {
        let text = || prop_oneof![6 => "[a-zé]{1,4}".prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..4)];
        let limit = prop::collection::vec((1..4_u8, 0..9_u8), 0..3).prop_map(|numbers| {
            numbers.into_iter().flat_map(|(number, value)| [number << 3, value]).collect::<Vec<u8>>()
        });
        let descriptor = fields(prop_oneof![3 => fields(text(), 4), 1 => limit, 1 => text()], 4);
        fields(prop_oneof![3 => descriptor, 1 => text()], 5)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

        #[test]
        fn any_fields_are_read_as_by_the_generated_decoder_or_left_to_it(
            bytes in wire_bytes(),
            domain in "[a-z]{0,2}",
        ) {
            check(&bytes)?;
            let whole = RateLimitRequest { domain, ..RateLimitRequest::default() }.encode_to_vec();
            check(&[whole, bytes].concat())?;
        }

        #[test]
        fn any_bytes_are_read_as_by_the_generated_decoder_or_left_to_it(
            bytes in prop::collection::vec(prop_oneof![0..0x30_u8, any::<u8>()], 0..40),
        ) {
            check(&bytes)?;
        }
    }

    proptest! {
        #[test]
        fn a_valid_request_is_read_as_by_the_generated_decoder(
            domain in "[a-z]{0,7}",
            hits_addend in any::<u32>(),
            descriptors in descriptors(),
        ) {
            let message = RateLimitRequest { domain, descriptors, hits_addend };
            let is_valid = decode::descriptors(&message, &BOUNDS).is_ok();
            prop_assert_eq!(check(&message.encode_to_vec())?, is_valid);
        }

        #[test]
        fn altered_bytes_are_read_as_by_the_generated_decoder_or_left_to_it(
            descriptors in descriptors(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            is_cut in any::<bool>(),
        ) {
            let mut bytes =
                RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 2 }.encode_to_vec();
            let at = at.index(bytes.len());
            match is_cut {
                true => bytes.truncate(at),
                false => bytes[at] = byte,
            }
            check(&bytes)?;
        }
    }

    #[test]
    fn unknown_and_repeated_fields_are_left_to_the_generated_decoder() {
        let plain = b"\x0a\x01d\x12\x08\x0a\x06\x0a\x01k\x12\x01v";
        assert!(PlainRequest::read(plain, &BOUNDS).is_some());
        for more in
            [&b"\x0a\x01e"[..], b"\x18\x01\x18\x02", b"\x20\x01", b"\x22\x00", b"\x1b\x1c", b"\x08\x01"]
        {
            assert!(PlainRequest::read(&[plain, more].concat(), &BOUNDS).is_none(), "{more:?}");
        }
    }
}
