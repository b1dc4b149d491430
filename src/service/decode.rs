//! Decoding and validation of a request message.

use smallvec::SmallVec;
use tollgate_core::{
    descriptor::{Descriptor, Entry, Hits},
    quota::{Quota, Unit, Window},
};

use super::{RequestBounds, RequestError};
use crate::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    service::ratelimit::v3::RateLimitRequest,
};

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
        let text = format!("the domain has {found} bytes; expected at most {max} (--max-text-bytes)");
        return invalid("max_text_bytes", text);
    }
    if request.descriptors.len() > bounds.max_descriptors {
        let (found, max) = (request.descriptors.len(), bounds.max_descriptors);
        let text = format!("{found} descriptors; expected at most {max} (--max-descriptors)");
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
        return Err(("max_entries", format!("{found} entries; expected at most {max} (--max-entries)")));
    }
    let longest = message.entries.iter().map(|entry| entry.key.len().max(entry.value.len())).max();
    if let Some(found) = longest.filter(|found| *found > bounds.max_text_bytes) {
        let max = bounds.max_text_bytes;
        let text = format!("a key or value of {found} bytes; expected at most {max} (--max-text-bytes)");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor;

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
        let descriptors = "3 descriptors; expected at most 2 (--max-descriptors)";
        assert_eq!(reason(&request(vec![entry.clone(); 3])), descriptors);
        let entries = "descriptor 1: 3 entries; expected at most 2 (--max-entries)";
        assert_eq!(reason(&request(vec![entry, wide])), entries);
        let long = "descriptor 0: a key or value of 5 bytes; expected at most 4 (--max-text-bytes)";
        assert_eq!(reason(&request(vec![with_entry("k", "12345")])), long);
        assert_eq!(reason(&request(vec![with_entry("12345", "v")])), long);
        let domain = RateLimitRequest { domain: "12345".into(), ..request(vec![with_entry("k", "v")]) };
        assert_eq!(reason(&domain), "the domain has 5 bytes; expected at most 4 (--max-text-bytes)");
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
        let quota =
            descriptors(&week, &RequestBounds::default()).expect("accepted")[0].limit.expect("present");
        assert_eq!(quota.window, Window::of(Unit::Week));
    }

    #[test]
    fn hits_of_the_descriptor_take_precedence_over_those_of_the_request() {
        let hits = |request_addend, own, is_negative_hits| {
            let descriptor =
                RateLimitDescriptor { hits_addend: own, is_negative_hits, ..with_entry("k", "v") };
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
}
