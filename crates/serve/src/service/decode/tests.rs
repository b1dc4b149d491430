//! Requests that are read without copies, which equal those of the generated decoder, and refused ones.

use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};
use tollgate_proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor},
    service::ratelimit::v3::RateLimitRequest,
};

use super::*;

const BOUNDS: RequestBounds = RequestBounds { max_descriptors: 3, max_entries: 3, max_text_bytes: 6 };

fn any_descriptors() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
    let entry =
        ("[a-zé]{0,4}", "[a-zé]{0,4}").prop_map(|(key, value)| rate_limit_descriptor::Entry { key, value });
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
    let expected = descriptors(&message, &BOUNDS).expect("within the bounds");
    prop_assert_eq!(read.domain, &message.domain);
    prop_assert_eq!(format!("{:?}", read.descriptors), format!("{expected:?}"));
    Ok(true)
}

/// Bytes of fields of any number and type, repeated in any order, whose content is `content` where it has a length.
fn fields(content: impl Strategy<Value = Vec<u8>> + 'static, count: usize) -> impl Strategy<Value = Vec<u8>> {
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
        descriptors in any_descriptors(),
    ) {
        let message = RateLimitRequest { domain, descriptors, hits_addend };
        let is_valid = super::descriptors(&message, &BOUNDS).is_ok();
        prop_assert_eq!(check(&message.encode_to_vec())?, is_valid);
    }

    #[test]
    fn altered_bytes_are_read_as_by_the_generated_decoder_or_left_to_it(
        descriptors in any_descriptors(),
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
    for more in [&b"\x0a\x01e"[..], b"\x18\x01\x18\x02", b"\x20\x01", b"\x22\x00", b"\x1b\x1c", b"\x08\x01"] {
        assert!(PlainRequest::read(&[plain, more].concat(), &BOUNDS).is_none(), "{more:?}");
    }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 }
}

fn with_entry(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = rate_limit_descriptor::Entry { key: key.into(), value: value.into() };
    RateLimitDescriptor { entries: vec![entry], ..Default::default() }
}

fn reason(request: &RateLimitRequest) -> String {
    let bounds = RequestBounds { max_descriptors: 2, max_entries: 2, max_text_bytes: 4 };
    descriptors(request, &bounds).expect_err("rejected").to_string()
}

#[test]
fn a_request_without_domain_or_descriptors_is_rejected_domain_first() {
    assert_eq!(reason(&RateLimitRequest::default()), "rate limit domain must not be empty");
    assert_eq!(reason(&request(vec![])), "rate limit descriptor list must not be empty");
}

#[test]
fn a_request_over_a_bound_is_rejected() {
    let entry = with_entry("k", "v");
    let mut wide = entry.clone();
    wide.entries = vec![entry.entries[0].clone(); 3];
    let descriptors = "3 descriptors; expected at most 2";
    assert_eq!(reason(&request(vec![entry.clone(); 3])), descriptors);
    let entries = "descriptor 1: 3 entries; expected at most 2";
    assert_eq!(reason(&request(vec![entry, wide])), entries);
    let long = "descriptor 0: a key or value of 5 bytes; expected at most 4";
    assert_eq!(reason(&request(vec![with_entry("k", "12345")])), long);
    assert_eq!(reason(&request(vec![with_entry("12345", "v")])), long);
    let domain = RateLimitRequest { domain: "12345".into(), ..request(vec![with_entry("k", "v")]) };
    assert_eq!(reason(&domain), "the domain has 5 bytes; expected at most 4");
}

#[test]
fn a_limit_override_with_an_unknown_unit_or_an_invalid_window_is_rejected() {
    let with_limit = |unit, unit_multiplier| {
        let limit = RateLimitOverride { requests_per_unit: 1, unit, unit_multiplier };
        request(vec![RateLimitDescriptor { limit: Some(limit), ..with_entry("k", "v") }])
    };
    for (unit, multiplier) in [(0, None), (8, None), (-1, None), (1, Some(0)), (6, Some(3))] {
        assert!(reason(&with_limit(unit, multiplier)).starts_with("descriptor 0: "));
    }
    let week = with_limit(7, None);
    let quota = descriptors(&week, &RequestBounds::default()).expect("accepted")[0].limit.expect("present");
    assert_eq!(quota.window, Window::of(Unit::Week));
}

#[test]
fn hits_of_the_descriptor_take_precedence_over_those_of_the_request() {
    let hits = |request_addend, own, is_negative_hits| {
        let descriptor = RateLimitDescriptor { hits_addend: own, is_negative_hits, ..with_entry("k", "v") };
        let request = RateLimitRequest { hits_addend: request_addend, ..request(vec![descriptor]) };
        descriptors(&request, &RequestBounds::default()).expect("accepted")[0].hits
    };
    assert_eq!(hits(0, None, false), Hits::ONE);
    assert_eq!(hits(7, None, false), Hits::charge(7));
    assert_eq!(hits(7, Some(3), false), Hits::charge(3));
    assert_eq!(hits(7, Some(0), false), Hits::Peek);
    assert_eq!(hits(7, Some(3), true), Hits::refund(3));
    assert_eq!(hits(0, None, true), Hits::refund(1));
    assert_eq!(hits(0, Some(u64::MAX), false), Hits::charge(Hits::MAX));
}
