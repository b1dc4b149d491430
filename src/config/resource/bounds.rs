//! What resources may ask for: a byte or two can state a descriptor, which takes hundreds once it is decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Descriptors of all resources together.
pub(super) const MAX_DESCRIPTORS: usize = 250_000;
/// The field of a configuration that holds descriptors.
const OF_CONFIG: u32 = 3;
/// The field of a descriptor that holds those below it.
const OF_DESCRIPTOR: u32 = 4;

/// How many descriptors may still come.
#[derive(Debug)]
pub(super) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(MAX_DESCRIPTORS)
    }
}

impl Allowance {
    /// Whether there is room for those of an encoded configuration, and takes that room. Of what can't be decoded, those
    /// before the mistake count.
    pub(super) fn takes(&mut self, encoded: &[u8]) -> bool {
        let mut open = vec![(encoded, OF_CONFIG)];
        while let Some((mut rest, field)) = open.pop() {
            while let Some(found) = next(&mut rest, field) {
                if let Some(descriptor) = found {
                    let Some(left) = self.0.checked_sub(1) else { return false };
                    self.0 = left;
                    open.push((descriptor, OF_DESCRIPTOR));
                }
            }
        }
        true
    }
}

/// Steps over a field: nothing at the end or at a mistake, else the field's content if it is the one.
#[expect(clippy::option_option, reason = "the end is one thing, another field another")]
fn next<'a>(rest: &mut &'a [u8], field: u32) -> Option<Option<&'a [u8]>> {
    let (tag, wire) = decode_key(rest).ok()?;
    if tag != field || wire != WireType::LengthDelimited {
        skip_field(wire, tag, rest, DecodeContext::default()).ok()?;
        return Some(None);
    }
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (content, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Some(content))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::ratelimit::config::ratelimit::v3::{RateLimitConfig, RateLimitDescriptor};

    #[test]
    fn descriptors_are_counted_before_they_are_decoded() {
        let below = RateLimitDescriptor {
            descriptors: vec![RateLimitDescriptor::default(); 9],
            ..Default::default()
        };
        let config = RateLimitConfig { descriptors: vec![below; 10], domain: "web".into(), name: "n".into() };
        let mut allowance = Allowance(250);
        assert!(allowance.takes(&config.encode_to_vec()));
        assert_eq!(allowance.0, 150);
        assert!(allowance.takes(&config.encode_to_vec()));
        assert!(!allowance.takes(&config.encode_to_vec()));
    }

    #[test]
    fn what_is_no_message_takes_no_room() {
        let mut allowance = Allowance(10);
        for garbage in [&b"\xff\xff\xff"[..], b"\x1a\x7f", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"] {
            assert!(allowance.takes(garbage));
        }
        assert_eq!(allowance.0, 10);
    }
}
