//! Keys of the sketches: descriptors as text.
//!
//! Entries are `key=value`, joined by commas. A comma, and an equals sign in a key, is preceded by a backslash, and so is a
//! backslash: the text of ordinary descriptors is what people read, and no two descriptors have the same text. A text that
//! was truncated ends with a single backslash.

use std::str;

use serde::{Deserialize, Serialize};
use tollgate_core::descriptor::Entry;

use super::MAX_TEXT_BYTES;

const ESCAPE: u8 = b'\\';

/// An entry of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnedEntry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: String,
}

/// Entries of a sampled descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyEntries {
    pub(super) entries: Vec<OwnedEntry>,
    /// Whether the last entry is a part of one, and others may be missing.
    pub(super) is_truncated: bool,
}

/// Text of a descriptor, truncated to [`MAX_TEXT_BYTES`].
pub fn text(entries: &[Entry<'_>]) -> String {
    let mut bytes = Vec::new();
    push(&mut bytes, 0, entries);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Appends the text of a descriptor, truncated to [`MAX_TEXT_BYTES`] after `from`.
pub(super) fn push(bytes: &mut Vec<u8>, from: usize, entries: &[Entry<'_>]) {
    let end = from.saturating_add(MAX_TEXT_BYTES);
    for (at, entry) in entries.iter().enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        push_escaped(bytes, end, entry.key, |byte| matches!(byte, b',' | b'=' | ESCAPE));
        bytes.push(b'=');
        push_escaped(bytes, end, entry.value, |byte| matches!(byte, b',' | ESCAPE));
        if bytes.len() > end {
            return truncate(bytes, from);
        }
    }
}

/// Appends a text, or as much of it as shows that it does not fit.
fn push_escaped(bytes: &mut Vec<u8>, end: usize, text: &str, is_special: impl Fn(u8) -> bool) {
    let room = end.saturating_sub(bytes.len()).saturating_add(1);
    let mut rest = text.as_bytes().get(..room).unwrap_or(text.as_bytes());
    while let Some(at) = rest.iter().position(|byte| is_special(*byte)) {
        let (before, special) = rest.split_at(at);
        let (special, behind) = special.split_at(1);
        bytes.extend_from_slice(before);
        bytes.push(ESCAPE);
        bytes.extend_from_slice(special);
        rest = behind;
    }
    bytes.extend_from_slice(rest);
}

/// Truncates the text at a character boundary, and marks it.
fn truncate(bytes: &mut Vec<u8>, from: usize) {
    bytes.truncate(from.saturating_add(MAX_TEXT_BYTES.saturating_sub(1)));
    let text = bytes.get(from..).unwrap_or_default();
    let whole = str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
    // An escape without its character would end the text as the mark does.
    let escapes = text.get(..whole).unwrap_or_default().iter().rev().take_while(|byte| **byte == ESCAPE);
    let whole = whole.saturating_sub(escapes.count() % 2);
    bytes.truncate(from.saturating_add(whole));
    bytes.push(ESCAPE);
}

impl KeyEntries {
    /// The entries of a descriptor with this text.
    pub(super) fn read(text: &str) -> Self {
        let mut read = Self { entries: Vec::new(), is_truncated: false };
        if text.is_empty() {
            return read;
        }
        let (mut entry, mut is_value) = (OwnedEntry::default(), false);
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let literal = match character {
                '\\' => characters.next(),
                ',' => {
                    read.entries.push(std::mem::take(&mut entry));
                    is_value = false;
                    continue;
                }
                '=' if !is_value => {
                    is_value = true;
                    continue;
                }
                other => Some(other),
            };
            let part = if is_value { &mut entry.value } else { &mut entry.key };
            match literal {
                Some(literal) => part.push(literal),
                None => read.is_truncated = true,
            }
        }
        read.entries.push(entry);
        read
    }

    /// The entries for people: `key=value`, joined by commas, with `…` at the end if it is truncated.
    pub(super) fn to_text(&self) -> String {
        let entries = self.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
        let text = entries.collect::<Vec<_>>().join(",");
        if self.is_truncated { text + "…" } else { text }
    }

    /// The whole descriptor, if it is known.
    pub(super) fn whole(self) -> Option<Vec<OwnedEntry>> {
        (!self.is_truncated).then_some(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(entries: &[(&str, &str)]) -> String {
        let entries: Vec<_> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let mut bytes = b"before".to_vec();
        push(&mut bytes, 6, &entries);
        String::from_utf8(bytes.split_off(6)).expect("text")
    }

    fn owned(entries: &[(&str, &str)]) -> Vec<OwnedEntry> {
        let owned = |(key, value): &(&str, &str)| OwnedEntry { key: (*key).into(), value: (*value).into() };
        entries.iter().map(owned).collect()
    }

    #[test]
    fn ordinary_descriptors_are_readable() {
        assert_eq!(text(&[("api_key", "abc")]), "api_key=abc");
        assert_eq!(text(&[("tenant", "a"), ("path", ""), ("é", "ü=ö")]), "tenant=a,path=,é=ü=ö");
        assert_eq!(text(&[("", "")]), "=");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn commas_and_equals_signs_do_not_split_entries() {
        assert_eq!(text(&[("k", "a,b=c")]), r"k=a\,b=c");
        assert_eq!(text(&[("k=", r"\"), ("l", "")]), r"k\==\\,l=");
        assert_ne!(text(&[("k", "a,b=c")]), text(&[("k", "a"), ("b", "c")]));
    }

    #[test]
    fn a_long_descriptor_is_truncated_between_two_characters_and_marked() {
        let fits = "x".repeat(MAX_TEXT_BYTES - 2);
        assert_eq!(KeyEntries::read(&text(&[("k", &fits)])).whole(), Some(owned(&[("k", &fits)])));
        for long in [("k", &*(fits.clone() + "x")), ("k", &"🦀".repeat(100)), ("k", &r"\".repeat(300))] {
            for shift in ["", "y", "yy", "yyy"] {
                let value = format!("{shift}{}", long.1);
                let cut = text(&[(long.0, &value), ("more", "of it")]);
                assert!(cut.len() <= MAX_TEXT_BYTES && cut.len() > MAX_TEXT_BYTES - 8, "{}", cut.len());
                let read = KeyEntries::read(&cut);
                assert!(read.is_truncated && read.entries.len() == 1 && read.entries[0].key == "k");
                assert!(value.starts_with(&read.entries[0].value), "{cut}");
                assert!(read.to_text().ends_with('…') && read.whole().is_none());
            }
        }
        let many = vec![("k", "v"); 1_000];
        assert!(KeyEntries::read(&text(&many)).is_truncated);
        let marked = fits.replace("xxx", "…");
        assert_eq!(KeyEntries::read(&text(&[("k", &marked)])).whole(), Some(owned(&[("k", &marked)])));
    }

    proptest! {
        #[test]
        fn a_text_has_the_entries_of_its_descriptor(
            entries in prop::collection::vec((r"[a,=\\*é]{0,6}", r"[a,=\\*é]{0,120}"), 0..4),
        ) {
            let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
            let text = text(&entries);
            prop_assert!(text.len() <= MAX_TEXT_BYTES);
            let read = KeyEntries::read(&text);
            if read.is_truncated {
                prop_assert!(read.entries.len() <= entries.len());
                let whole = read.entries.len().saturating_sub(1);
                prop_assert_eq!(&read.entries[..whole], &owned(&entries)[..whole]);
            } else {
                prop_assert_eq!(read.entries, owned(&entries));
            }
        }
    }
}
