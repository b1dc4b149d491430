//! What resources may ask for: a byte or two can state a descriptor, which takes hundreds once it is decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Descriptors of all resources together.
pub(super) const MAX_DESCRIPTORS: usize = 250_000;
/// Values of metadata and names of replaced limits, of all resources together.
pub(super) const MAX_VALUES: usize = 1_000_000;

/// A message that has others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Config,
    Descriptor,
    Policy,
    Replace,
    Struct,
    /// A field of a struct, by its name.
    Entry,
    Value,
    List,
}

impl Kind {
    /// What a field of it holds, if that has to be looked at.
    const fn below(self, field: u32) -> Option<Self> {
        match (self, field) {
            (Self::Config, 3) | (Self::Descriptor, 4) => Some(Self::Descriptor),
            (Self::Descriptor, 3) => Some(Self::Policy),
            (Self::Policy, 5) => Some(Self::Replace),
            (Self::Descriptor, 8) | (Self::Value, 5) => Some(Self::Struct),
            (Self::Struct, 1) => Some(Self::Entry),
            (Self::Entry, 2) | (Self::List, 1) => Some(Self::Value),
            (Self::Value, 6) => Some(Self::List),
            _ => None,
        }
    }
}

/// There is no room for so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMany {
    #[error("more than {MAX_DESCRIPTORS} descriptors up to this one; send fewer")]
    Descriptors,
    #[error("more than {MAX_VALUES} values of metadata and names in `replaces` up to this one; send fewer")]
    Values,
}

/// How much may still come.
#[derive(Debug)]
pub(super) struct Allowance {
    descriptors: usize,
    values: usize,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { descriptors: MAX_DESCRIPTORS, values: MAX_VALUES }
    }
}

impl Allowance {
    /// Takes the room for an encoded configuration. Of what can't be decoded, what is before the mistake counts.
    pub(super) fn take(&mut self, encoded: &[u8]) -> Result<(), TooMany> {
        let mut open = vec![(encoded, Kind::Config)];
        while let Some((mut rest, kind)) = open.pop() {
            while let Some(found) = next(&mut rest, kind) {
                if let Some((content, below)) = found {
                    self.take_one(below)?;
                    open.push((content, below));
                }
            }
        }
        Ok(())
    }

    fn take_one(&mut self, kind: Kind) -> Result<(), TooMany> {
        let (left, error) = match kind {
            Kind::Descriptor => (&mut self.descriptors, TooMany::Descriptors),
            Kind::Replace | Kind::Entry | Kind::Value => (&mut self.values, TooMany::Values),
            Kind::Config | Kind::Policy | Kind::Struct | Kind::List => return Ok(()),
        };
        *left = left.checked_sub(1).ok_or(error)?;
        Ok(())
    }
}

/// Steps over a field: nothing at the end or at a mistake, else the field's content if that has to be looked at.
#[expect(clippy::option_option, reason = "the end is one thing, another field another")]
fn next<'a>(rest: &mut &'a [u8], kind: Kind) -> Option<Option<(&'a [u8], Kind)>> {
    let (tag, wire) = decode_key(rest).ok()?;
    let Some(below) = kind.below(tag).filter(|_| wire == WireType::LengthDelimited) else {
        skip_field(wire, tag, rest, DecodeContext::default()).ok()?;
        return Some(None);
    };
    let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (content, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Some((content, below)))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::{ListValue, Struct, Value, value::Kind};

    use super::{Allowance, TooMany};
    use crate::proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace,
    };

    #[test]
    fn descriptors_are_counted_before_they_are_decoded() {
        let below = RateLimitDescriptor {
            descriptors: vec![RateLimitDescriptor::default(); 9],
            ..Default::default()
        };
        let config = RateLimitConfig { descriptors: vec![below; 10], domain: "web".into(), name: "n".into() };
        let mut allowance = Allowance { descriptors: 250, values: 0 };
        assert_eq!(allowance.take(&config.encode_to_vec()), Ok(()));
        assert_eq!(allowance.descriptors, 150);
        assert_eq!(allowance.take(&config.encode_to_vec()), Ok(()));
        assert_eq!(allowance.take(&config.encode_to_vec()), Err(TooMany::Descriptors));
    }

    #[test]
    fn values_of_metadata_and_replaced_names_are_counted_too() {
        let null = || Value { kind: Some(Kind::NullValue(0)) };
        let list = Value { kind: Some(Kind::ListValue(ListValue { values: vec![null(); 5] })) };
        let inner = Struct { fields: [("a".to_owned(), null())].into() };
        let fields =
            [("list".to_owned(), list), ("map".to_owned(), Value { kind: Some(Kind::StructValue(inner)) })];
        let rate_limit =
            RateLimitPolicy { replaces: vec![RateLimitReplace::default(); 3], ..Default::default() };
        let descriptor = RateLimitDescriptor {
            metadata: Some(Struct { fields: fields.into() }),
            rate_limit: Some(rate_limit),
            ..Default::default()
        };
        let config = RateLimitConfig { descriptors: vec![descriptor], ..Default::default() };
        // Names of replaced limits, values of the list, and three fields with their values.
        let all = 3 + 5 + 3 * 2;
        let take = |values| Allowance { descriptors: 1, values }.take(&config.encode_to_vec());
        assert_eq!(take(all), Ok(()));
        assert_eq!(take(all - 1), Err(TooMany::Values));
    }

    #[test]
    fn what_is_no_message_takes_no_room() {
        let mut allowance = Allowance { descriptors: 10, values: 10 };
        for garbage in [&b"\xff\xff\xff"[..], b"\x1a\x7f", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"] {
            assert_eq!(allowance.take(garbage), Ok(()));
        }
        assert_eq!((allowance.descriptors, allowance.values), (10, 10));
    }
}
