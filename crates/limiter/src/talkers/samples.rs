//! Samples of a thread, until they are collected.

use std::str;

use tollgate_core::descriptor::Entry;

use super::{MAX_TEXT_BYTES, key};

/// Maximum size of the queued samples of a thread.
const MAX_BYTES: usize = 256 << 10;

/// Hits of one key, including those that the sample represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub(super) domain: &'a str,
    pub(super) key: &'a str,
    /// Requested hits.
    pub(super) requested: u64,
    /// Denied hits; may exceed the requested ones, because both are sampled separately.
    pub(super) denied: u64,
}

/// Encoded samples, in order.
#[derive(Debug, Default)]
pub(super) struct Samples {
    bytes: Vec<u8>,
    /// Number of dropped samples.
    dropped: u64,
}

impl Samples {
    /// Adds a sample, if there is room.
    pub(super) fn push(&mut self, domain: &str, entries: &[Entry<'_>], requested: u64, denied: u64) {
        let Ok(length) = u16::try_from(domain.len()) else { return self.count_dropped(1) };
        if usize::from(length) > MAX_TEXT_BYTES || self.bytes.len() >= MAX_BYTES {
            return self.count_dropped(1);
        }
        self.bytes.extend_from_slice(&requested.to_le_bytes());
        self.bytes.extend_from_slice(&denied.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(domain.as_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let from = self.bytes.len();
        key::push(&mut self.bytes, from, entries);
        let length = u16::try_from(self.bytes.len().saturating_sub(from)).unwrap_or_default();
        if let Some(place) = self.bytes.get_mut(at..from) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Counts dropped samples.
    pub(super) const fn count_dropped(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// Number of dropped samples.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns all samples, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Sample<'_>> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (requested, denied) =
                (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
            Some(Sample { requested, denied, domain: text(&mut rest)?, key: text(&mut rest)? })
        })
    }

    /// Removes all samples, but keeps the allocation.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.dropped = 0;
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = u16::from_le_bytes(take(rest)?);
    let (text, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_returned_in_order() {
        let mut samples = Samples::default();
        samples.push("edge", &[Entry { key: "api_key", value: "a,b" }], 2, 1);
        samples.push("edge", &[], 4, 3);
        let all: Vec<_> = samples.iter().collect();
        let first = Sample { domain: "edge", key: r"api_key=a\,b", requested: 2, denied: 1 };
        assert_eq!(all, [first, Sample { domain: "edge", key: "", requested: 4, denied: 3 }]);
    }

    #[test]
    fn dropped_samples_are_counted() {
        let mut samples = Samples::default();
        let long = "x".repeat(1_000);
        (0..2_000).for_each(|_| samples.push("edge", &[Entry { key: "k", value: &long }], 1, 0));
        assert!(samples.bytes.len() < MAX_BYTES + 1_000);
        assert_eq!(samples.iter().count() as u64 + samples.dropped(), 2_000);
        assert!(samples.dropped() > 0);
        samples.clear();
        samples.push(&long, &[], 1, 0);
        samples.push(&"x".repeat(1 << 17), &[], 1, 0);
        assert_eq!((samples.iter().count(), samples.dropped()), (0, 2));
    }
}
