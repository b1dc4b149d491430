//! Reading and validation of a request message: of a usual one without copies, and of any other once it is decoded.

#[cfg(test)]
mod tests;

use std::str;

use prost::{Message as _, encoding::decode_varint};
use smallvec::SmallVec;
use tollgate_core::descriptor::{Descriptor, Entries, Entry, Hits};
use tollgate_core::quota::{Quota, Unit, Window};
use tollgate_proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    service::ratelimit::v3::RateLimitRequest,
};

use super::{RequestBounds, RequestError};

/// A request that is well formed and within the bounds.
#[derive(Clone, Debug)]
pub struct PlainRequest<'a> {
    /// The encoded message.
    pub bytes: &'a [u8],
    pub domain: &'a str,
    pub descriptors: Descriptors<'a>,
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
    pub fn read(message: &'a [u8], bounds: &RequestBounds) -> Option<Self> {
        let (mut domain, mut addend, mut fields) = ("", None, Fields(message));
        let (mut descriptors, mut own_hits) = (Descriptors::new(), SmallVec::<[OwnHits; 2]>::new());
        while let Some(field) = fields.next() {
            match field? {
                (1, FieldValue::Bytes(text)) if domain.is_empty() => domain = str::from_utf8(text).ok()?,
                (2, FieldValue::Bytes(message)) => {
                    let (descriptor, own) = plain_descriptor(message, bounds)?;
                    descriptors.push(descriptor);
                    own_hits.push(own);
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
        for (descriptor, own) in descriptors.iter_mut().zip(own_hits) {
            descriptor.hits = hits(own.amount.unwrap_or(default), own.is_negative);
        }
        Some(Self { bytes: message, domain, descriptors })
    }
}

/// Reads a descriptor, with its hits beside it.
fn plain_descriptor<'a>(message: &'a [u8], bounds: &RequestBounds) -> Option<(Descriptor<'a>, OwnHits)> {
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
                limit = Some(quota(&RateLimitOverride::decode(message).ok()?).ok()?);
            }
            (3, FieldValue::Bytes(message)) if own.amount.is_none() => {
                own.amount = Some(u64::decode(message).ok()?);
            }
            (4, FieldValue::Number(flag)) => own.is_negative = flag != 0,
            _ => return None,
        }
    }
    Some((Descriptor { entries, limit, hits: hits(1, false) }, own))
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

pub(super) type Descriptors<'a> = SmallVec<[Descriptor<'a>; 2]>;

/// Returns the descriptors of a request that is well formed and within the bounds.
pub(super) fn descriptors<'a>(
    request: &'a RateLimitRequest,
    bounds: &RequestBounds,
) -> Result<Descriptors<'a>, RequestError> {
    let invalid = |reason, text: String| Err(RequestError::Invalid { reason, text });
    if request.domain.is_empty() {
        return invalid("domain", "rate limit domain must not be empty".into());
    }
    if request.descriptors.is_empty() {
        return invalid("descriptors", "rate limit descriptor list must not be empty".into());
    }
    if request.domain.len() > bounds.max_text_bytes {
        let (found, max) = (request.domain.len(), bounds.max_text_bytes);
        let text = format!("the domain has {found} bytes; expected at most {max}");
        return invalid("max_text_bytes", text);
    }
    if request.descriptors.len() > bounds.max_descriptors {
        let (found, max) = (request.descriptors.len(), bounds.max_descriptors);
        let text = format!("{found} descriptors; expected at most {max}");
        return invalid("max_descriptors", text);
    }
    let addend = u64::from(request.hits_addend.max(1));
    let numbered = request.descriptors.iter().enumerate();
    let invalid =
        |at, (reason, text)| RequestError::Invalid { reason, text: format!("descriptor {at}: {text}") };
    numbered
        .map(|(at, message)| descriptor(message, addend, bounds).map_err(|refused| invalid(at, refused)))
        .collect()
}

/// Reads a descriptor, or returns the label and the text of the reason to refuse it.
fn descriptor<'a>(
    message: &'a RateLimitDescriptor,
    addend: u64,
    bounds: &RequestBounds,
) -> Result<Descriptor<'a>, (&'static str, String)> {
    if message.entries.len() > bounds.max_entries {
        let (found, max) = (message.entries.len(), bounds.max_entries);
        return Err(("max_entries", format!("{found} entries; expected at most {max}")));
    }
    let longest = message.entries.iter().map(|entry| entry.key.len().max(entry.value.len())).max();
    if let Some(found) = longest.filter(|found| *found > bounds.max_text_bytes) {
        let max = bounds.max_text_bytes;
        let text = format!("a key or value of {found} bytes; expected at most {max}");
        return Err(("max_text_bytes", text));
    }
    let amount = message.hits_addend.unwrap_or(addend);
    Ok(Descriptor {
        entries: message.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect(),
        limit: message.limit.as_ref().map(quota).transpose().map_err(|text| ("limit", text))?,
        hits: hits(amount, message.is_negative_hits),
    })
}

/// Hits of a descriptor.
pub(super) fn hits(amount: u64, is_negative: bool) -> Hits {
    if is_negative { Hits::refund(amount) } else { Hits::charge(amount) }
}

/// Quota of a limit override.
pub(super) fn quota(limit: &RateLimitOverride) -> Result<Quota, String> {
    let unit = match limit.unit {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        // The enumeration of overrides has no week; that of responses has this number for it.
        7 => Unit::Week,
        other => return Err(format!("unit {other} of its limit is unknown; expected second to year")),
    };
    let window = Window::new(unit, limit.unit_multiplier.unwrap_or(1))
        .map_err(|error| format!("the window of its limit: {error}"))?;
    Ok(Quota { limit: limit.requests_per_unit.into(), window })
}
