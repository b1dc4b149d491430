//! What a thread has sampled, until it is collected.

use std::str;

use super::LONGEST_TEXT;
use tollgate_core::descriptor::Entry;

/// Bytes of samples that wait at the most, for each thread.
const MOST_BYTES: usize = 256 << 10;

/// What a key that was cut ends with.
const CUT: &str = "…";

/// Hits of one key, or of those that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'a> {
    pub(super) domain: &'a str,
    pub(super) key: &'a str,
    /// Hits that were asked for.
    pub(super) asked: u64,
    /// Hits that were denied. Both kinds are sampled apart, so this may be more.
    pub(super) denied: u64,
}

/// Samples, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Samples {
    bytes: Vec<u8>,
    /// How many found no room.
    dropped: u64,
}

impl Samples {
    /// Adds one, if there is room for it.
    pub(super) fn push(&mut self, domain: &str, entries: &[Entry<'_>], asked: u64, denied: u64) {
        let Ok(length) = u16::try_from(domain.len()) else { return self.drop_some(1) };
        if usize::from(length) > LONGEST_TEXT || self.bytes.len() >= MOST_BYTES {
            return self.drop_some(1);
        }
        self.bytes.extend_from_slice(&asked.to_le_bytes());
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

    /// Counts samples that were lost.
    pub(super) const fn drop_some(&mut self, count: u64) {
        self.dropped = self.dropped.saturating_add(count);
    }

    /// How many were lost.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Sample<'_>> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            let (asked, denied) =
                (u64::from_le_bytes(take(&mut rest)?), u64::from_le_bytes(take(&mut rest)?));
            Some(Sample { asked, denied, domain: text(&mut rest)?, key: text(&mut rest)? })
        })
    }

    /// Forgets all, but keeps the room.
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

/// Writes the entries behind `from`, cut where they are too long.
fn push_key(bytes: &mut Vec<u8>, from: usize, entries: &[Entry<'_>]) {
    let longest = from.saturating_add(LONGEST_TEXT);
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

/// Makes room for the mark, between two characters.
fn cut(bytes: &mut Vec<u8>, from: usize) {
    bytes.truncate(from.saturating_add(LONGEST_TEXT.saturating_sub(CUT.len())));
    let whole = match str::from_utf8(bytes.get(from..).unwrap_or_default()) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    bytes.truncate(from.saturating_add(whole));
    bytes.extend_from_slice(CUT.as_bytes());
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
        assert_eq!((all[0].domain, all[0].asked, all[0].denied), ("edge", 2, 1));
        assert_eq!(all[1], Sample { domain: "edge", key: "", asked: 4, denied: 3 });
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
        let fits = "x".repeat(LONGEST_TEXT - 2);
        assert_eq!(key(&[("k", &fits)]), format!("k={fits}"));
        for filler in 0..4 {
            let long = format!("{}{}", "x".repeat(filler), "🦀".repeat(100));
            let cut = key(&[("k", &long), ("more", "of it")]);
            assert!(cut.len() <= LONGEST_TEXT && cut.len() > LONGEST_TEXT - 8, "{}", cut.len());
            assert!(format!("k={long}").starts_with(cut.strip_suffix(CUT).expect("the mark")));
        }
        assert!(key(&[("k", &fits), ("", "")]).ends_with(CUT), "one byte too many");
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let mut samples = Samples::default();
        let long = "x".repeat(1_000);
        (0..2_000).for_each(|_| samples.push("edge", &[Entry { key: "k", value: &long }], 1, 0));
        assert!(samples.bytes.len() < MOST_BYTES + 1_000);
        assert_eq!(samples.iter().count() as u64 + samples.dropped(), 2_000);
        assert!(samples.dropped() > 0);
        samples.clear();
        samples.push(&long, &[], 1, 0);
        samples.push(&"x".repeat(1 << 17), &[], 1, 0);
        assert_eq!((samples.iter().count(), samples.dropped()), (0, 2));
    }
}
