//! Samples of a thread, until they are collected.

use std::str;

use tollgate_core::descriptor::Entry;

use super::MAX_TEXT_BYTES;

/// Maximum size of the queued samples of a thread.
const MAX_BYTES: usize = 256 << 10;

/// End of a truncated key.
const ELLIPSIS: &str = "…";

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
        push_key(&mut self.bytes, from, entries);
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

/// Appends the entries as text, truncated to the maximum length after `from`.
fn push_key(bytes: &mut Vec<u8>, from: usize, entries: &[Entry<'_>]) {
    let longest = from.saturating_add(MAX_TEXT_BYTES);
    let pieces = entries.iter().flat_map(|entry| [",", entry.key, "=", entry.value]).skip(1);
    for piece in pieces {
        let room = longest.saturating_sub(bytes.len());
        match piece.as_bytes().get(..room) {
            Some(fitting) if fitting.len() < piece.len() => {
                bytes.extend_from_slice(fitting);
                return cut(bytes, from);
            }
            Some(_) | None => bytes.extend_from_slice(piece.as_bytes()),
        }
    }
}

/// Truncates the text at a character boundary and appends the ellipsis.
fn cut(bytes: &mut Vec<u8>, from: usize) {
    bytes.truncate(from.saturating_add(MAX_TEXT_BYTES.saturating_sub(ELLIPSIS.len())));
    let whole = match str::from_utf8(bytes.get(from..).unwrap_or_default()) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    bytes.truncate(from.saturating_add(whole));
    bytes.extend_from_slice(ELLIPSIS.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(entries: &[(&str, &str)]) -> String {
        let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let mut samples = Samples::default();
        samples.push("edge", &entries, 2, 1);
        samples.push("edge", &[], 4, 3);
        let all: Vec<_> = samples.iter().collect();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].domain, all[0].requested, all[0].denied), ("edge", 2, 1));
        assert_eq!(all[1], Sample { domain: "edge", key: "", requested: 4, denied: 3 });
        all[0].key.to_owned()
    }

    #[test]
    fn a_key_is_all_entries_of_the_descriptor() {
        assert_eq!(key(&[("api_key", "abc")]), "api_key=abc");
        assert_eq!(key(&[("tenant", "a"), ("path", ""), ("é", "ü")]), "tenant=a,path=,é=ü");
        assert_eq!(key(&[("", "")]), "=");
    }

    #[test]
    fn a_long_key_is_cut_between_two_characters_and_marked() {
        let fits = "x".repeat(MAX_TEXT_BYTES - 2);
        assert_eq!(key(&[("k", &fits)]), format!("k={fits}"));
        for filler in 0..4 {
            let long = format!("{}{}", "x".repeat(filler), "🦀".repeat(100));
            let cut = key(&[("k", &long), ("more", "of it")]);
            assert!(cut.len() <= MAX_TEXT_BYTES && cut.len() > MAX_TEXT_BYTES - 8, "{}", cut.len());
            assert!(format!("k={long}").starts_with(cut.strip_suffix(ELLIPSIS).expect("the mark")));
        }
        assert!(key(&[("k", &fits), ("", "")]).ends_with(ELLIPSIS), "one byte too many");
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
