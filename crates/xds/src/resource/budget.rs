//! Bounds the memory of decoded resources: two encoded bytes can state a descriptor, which has hundreds when decoded.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Descriptors of all resources together.
pub(super) const MAX_DESCRIPTORS: usize = 250_000;
/// Values of metadata and names of replaced limits, of all resources together.
pub(super) const MAX_VALUES: usize = 1_000_000;

/// A message with nested messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageKind {
    Config,
    Descriptor,
    Policy,
    Replace,
    Struct,
    /// A field of a struct.
    Entry,
    Value,
    List,
}

impl MessageKind {
    /// Kind of the message in a field, if it counts or has messages that count.
    const fn nested(self, field: u32) -> Option<Self> {
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

/// The budget is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BudgetExceeded {
    #[error("more than {MAX_DESCRIPTORS} descriptors up to this one; expected fewer")]
    Descriptors,
    #[error(
        "more than {MAX_VALUES} values of metadata and names in `replaces` up to this one; expected fewer"
    )]
    Values,
}

/// Remaining descriptors and values.
#[derive(Debug)]
pub(super) struct DecodeBudget {
    descriptors: usize,
    values: usize,
}

impl Default for DecodeBudget {
    fn default() -> Self {
        Self { descriptors: MAX_DESCRIPTORS, values: MAX_VALUES }
    }
}

impl DecodeBudget {
    /// Charges an encoded configuration. Of a malformed one, the part before the error is charged.
    pub(super) fn take(&mut self, encoded: &[u8]) -> Result<(), BudgetExceeded> {
        let mut open = vec![(encoded, MessageKind::Config)];
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

    fn take_one(&mut self, kind: MessageKind) -> Result<(), BudgetExceeded> {
        let (left, error) = match kind {
            MessageKind::Descriptor => (&mut self.descriptors, BudgetExceeded::Descriptors),
            MessageKind::Replace | MessageKind::Entry | MessageKind::Value => {
                (&mut self.values, BudgetExceeded::Values)
            }
            MessageKind::Config | MessageKind::Policy | MessageKind::Struct | MessageKind::List => {
                return Ok(());
            }
        };
        *left = left.checked_sub(1).ok_or(error)?;
        Ok(())
    }
}

/// Reads a field. `None` at the end or at an error; otherwise the field's content if its message counts.
#[expect(clippy::option_option, reason = "the end differs from a field without content")]
fn next<'a>(rest: &mut &'a [u8], kind: MessageKind) -> Option<Option<(&'a [u8], MessageKind)>> {
    let (tag, wire) = decode_key(rest).ok()?;
    let Some(below) = kind.nested(tag).filter(|_| wire == WireType::LengthDelimited) else {
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

    use super::{BudgetExceeded, DecodeBudget};
    use tollgate_proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace,
    };

    #[test]
    fn descriptors_are_counted_before_they_are_decoded() {
        let below = RateLimitDescriptor {
            descriptors: vec![RateLimitDescriptor::default(); 9],
            ..Default::default()
        };
        let config = RateLimitConfig { descriptors: vec![below; 10], domain: "web".into(), name: "n".into() };
        let mut budget = DecodeBudget { descriptors: 250, values: 0 };
        assert_eq!(budget.take(&config.encode_to_vec()), Ok(()));
        assert_eq!(budget.descriptors, 150);
        assert_eq!(budget.take(&config.encode_to_vec()), Ok(()));
        assert_eq!(budget.take(&config.encode_to_vec()), Err(BudgetExceeded::Descriptors));
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
        let take = |values| DecodeBudget { descriptors: 1, values }.take(&config.encode_to_vec());
        assert_eq!(take(all), Ok(()));
        assert_eq!(take(all - 1), Err(BudgetExceeded::Values));
    }

    #[test]
    fn malformed_messages_are_not_charged() {
        let mut budget = DecodeBudget { descriptors: 10, values: 10 };
        for garbage in [&b"\xff\xff\xff"[..], b"\x1a\x7f", b"\x1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x"] {
            assert_eq!(budget.take(garbage), Ok(()));
        }
        assert_eq!((budget.descriptors, budget.values), (10, 10));
    }
}
