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
    ///
    /// # Errors
    /// The bound that is exceeded.
    pub(super) fn take(&mut self, encoded: &[u8]) -> Result<(), String> {
        let mut open = vec![(encoded, MessageKind::Config)];
        while let Some((mut rest, kind)) = open.pop() {
            while let Ok((tag, wire)) = decode_key(&mut rest) {
                let Some(below) = kind.nested(tag).filter(|_| wire == WireType::LengthDelimited) else {
                    match skip_field(wire, tag, &mut rest, DecodeContext::default()) {
                        Ok(()) => continue,
                        Err(_) => break,
                    }
                };
                let length = decode_varint(&mut rest).ok().and_then(|length| usize::try_from(length).ok());
                let Some((content, after)) = length.and_then(|length| rest.split_at_checked(length)) else {
                    break;
                };
                rest = after;
                self.take_one(below)?;
                open.push((content, below));
            }
        }
        Ok(())
    }

    fn take_one(&mut self, kind: MessageKind) -> Result<(), String> {
        let (left, max, counted) = match kind {
            MessageKind::Descriptor => (&mut self.descriptors, MAX_DESCRIPTORS, "descriptors"),
            MessageKind::Replace | MessageKind::Entry | MessageKind::Value => {
                (&mut self.values, MAX_VALUES, "values of metadata and names in `replaces`")
            }
            MessageKind::Config | MessageKind::Policy | MessageKind::Struct | MessageKind::List => {
                return Ok(());
            }
        };
        let exceeded = || format!("more than {max} {counted} up to this one; expected fewer");
        *left = left.checked_sub(1).ok_or_else(exceeded)?;
        Ok(())
    }
}
