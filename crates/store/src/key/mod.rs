//! Names of hash tags and cells.
//!
//! All counters that share a *hash tag* are decided in one step on one shard. The tag of a counter consists of its
//! domain and the values that its rule left open: `{edge|api_key=abc}`. A counter without open values is tagged by its
//! rule: `{edge|@1f0e…}`. A domain may instead name the keys whose values make the tag.
//!
//! The counters whose open values are exactly those of the tag share one *cell*, named like the tag. Counters with
//! further open values have a cell beside it, `{edge|api_key=abc}+path=/v1`, and so has a counter whose algorithm needs
//! a key of its own, `{edge|api_key=abc}~1f0e…`, and a limit override of a request, `{edge|api_key=abc}~0.60`.
//!
//! A counter that the primary region decides for all regions has a tag of its own, `{~edge|api_key=abc}`.
//!
//! Names are injective whatever the parts contain: the characters that structure a name are escaped inside the parts,
//! braces among them, so that Redis finds the hash tag at the intended place. Long tags are hashed.

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod primary;

use std::fmt;

use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use tollgate_core::{RecordId, algorithm::Algorithm, descriptor::Entry};

/// Tags longer than this are replaced by their hash.
const MAX_TAG_BYTES: usize = 160;

/// Maximum length of a name that another region states.
const MAX_PEER_BYTES: usize = 2 * MAX_TAG_BYTES + 64;

/// Inline for most names. A longer name is allocated, which is cheaper than copying a larger inline buffer for all.
type Bytes = SmallVec<[u8; 64]>;

/// The name of one cell: its hash tag in braces, and a suffix that distinguishes the cells of a tag.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CellKey {
    bytes: Bytes,
    /// Length of the tag with its braces, in bytes.
    tag: usize,
}

impl CellKey {
    /// The cell of the counters in `domain` whose open values are those of `entries`, in order.
    pub fn open<'a>(domain: &str, entries: impl Iterator<Item = Entry<'a>>) -> Self {
        let mut bytes = start(domain);
        write_entries(&mut bytes, entries);
        Self::close(bytes)
    }

    /// The cell of the one counter in `domain` that has no open values.
    pub fn global(domain: &str, record: RecordId) -> Self {
        let mut bytes = start(domain);
        bytes.push(b'@');
        write_id(&mut bytes, record);
        Self::close(bytes)
    }

    /// The cell beside this one for counters that also have the open values of `entries`, in order.
    #[must_use]
    pub fn with_entries<'a>(mut self, entries: impl Iterator<Item = Entry<'a>>) -> Self {
        let mut bytes = Bytes::new();
        write_entries(&mut bytes, entries);
        shorten(&mut bytes, 0);
        self.bytes.push(b'+');
        self.bytes.extend_from_slice(&bytes);
        self
    }

    /// The cell beside this one for the counter `record`, whose algorithm needs a key of its own.
    #[must_use]
    pub fn dedicated(mut self, record: RecordId) -> Self {
        self.bytes.push(b'~');
        write_id(&mut self.bytes, record);
        self
    }

    /// The cell beside this one for the limit override of a request: a window of `seconds` under `algorithm`, for the
    /// counter `record` or, without one, for all values of the tag.
    #[must_use]
    pub fn limit_override(mut self, record: Option<RecordId>, algorithm: Algorithm, seconds: u32) -> Self {
        let number = |bytes: &mut Bytes, number: u32| {
            let mut digits = itoa::Buffer::new();
            bytes.extend_from_slice(digits.format(number).as_bytes());
        };
        self.bytes.push(b'~');
        if let Some(record) = record {
            write_id(&mut self.bytes, record);
            self.bytes.push(b'.');
        }
        number(&mut self.bytes, u32::from(algorithm.kind()));
        self.bytes.push(b'.');
        number(&mut self.bytes, seconds);
        self
    }

    /// The key beside this cell with the ledger of the loans of the counter `record`.
    #[must_use]
    pub fn loans(mut self, record: RecordId) -> Self {
        self.bytes.push(b'~');
        write_id(&mut self.bytes, record);
        self.bytes.extend_from_slice(b".loans");
        self
    }

    /// The cell of another region's counter in `domain`, by its name; `None` for a name that no counter of the domain in a
    /// shared cell has.
    pub fn of_peer(domain: &str, name: &[u8]) -> Option<Self> {
        if name.len() > MAX_PEER_BYTES || !(name.starts_with(&start(domain)) || name.starts_with(b"{#")) {
            return None;
        }
        // A brace within a part is escaped.
        let tag = name.iter().position(|byte| *byte == b'}')?.checked_add(1)?;
        let rest = name.get(tag..)?;
        let is_plain = rest.is_empty() || rest.first() == Some(&b'+');
        (is_plain && !rest.contains(&b'~')).then(|| Self { bytes: Bytes::from_slice(name), tag })
    }

    /// The key beside this cell with the sums of reported utilization.
    #[must_use]
    pub fn utilization(mut self) -> Self {
        self.bytes.extend_from_slice(b"~utilization");
        self
    }

    fn close(mut bytes: Bytes) -> Self {
        shorten(&mut bytes, 1);
        bytes.push(b'}');
        let tag = bytes.len();
        Self { bytes, tag }
    }

    /// The whole name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The hash tag, with its braces.
    pub fn tag(&self) -> &[u8] {
        self.bytes.get(..self.tag).unwrap_or_default()
    }

    /// The Redis Cluster slot that the tag selects, 0 to 16,383.
    pub fn slot(&self) -> u16 {
        let tag = self.tag();
        slot_of(tag.get(1..tag.len().saturating_sub(1)).unwrap_or_default())
    }
}

/// The Redis Cluster slot of the keys with a hash tag, given without its braces.
pub const fn slot_of(tag: &[u8]) -> u16 {
    crc16(tag) % 16_384
}

impl fmt::Display for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.bytes))
    }
}

impl fmt::Debug for CellKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CellKey({self})")
    }
}

fn start(domain: &str) -> Bytes {
    let mut bytes = Bytes::new();
    bytes.push(b'{');
    escape(&mut bytes, domain);
    bytes.push(b'|');
    bytes
}

/// Replaces all but the first `kept` bytes by their hash, if they are too long.
fn shorten(bytes: &mut Bytes, kept: usize) {
    if bytes.len() > MAX_TAG_BYTES {
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        bytes.truncate(kept);
        // An escaped name never begins with `#`.
        bytes.push(b'#');
        write_hex(bytes, digest.get(..16).unwrap_or_default());
    }
}

fn write_entries<'a>(bytes: &mut Bytes, entries: impl Iterator<Item = Entry<'a>>) {
    for (at, entry) in entries.enumerate() {
        if at > 0 {
            bytes.push(b',');
        }
        escape(bytes, entry.key);
        bytes.push(b'=');
        escape(bytes, entry.value);
    }
}

/// Whether a byte is written to a name unescaped.
const fn is_literal(byte: u8) -> bool {
    !matches!(byte, 0..=b' ' | b'{' | b'}' | b'|' | b'=' | b',' | b'%' | b'@' | b'#' | b'~' | 0x7f)
}

fn escape(bytes: &mut Bytes, text: &str) {
    if text.bytes().all(is_literal) {
        return bytes.extend_from_slice(text.as_bytes());
    }
    for byte in text.bytes() {
        match is_literal(byte) {
            true => bytes.push(byte),
            false => {
                bytes.push(b'%');
                write_hex(bytes, &[byte]);
            }
        }
    }
}

fn write_id(bytes: &mut Bytes, record: RecordId) {
    write_hex(bytes, record.as_bytes());
}

fn write_hex(bytes: &mut Bytes, raw: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |number: u8| DIGITS.get(usize::from(number)).copied().unwrap_or_default();
    bytes.extend(raw.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

/// CRC-16/XMODEM, the checksum by which Redis Cluster assigns hash tags to slots.
const fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    let mut rest = bytes;
    while let [byte, tail @ ..] = rest {
        let [high, low] = crc.to_be_bytes();
        // In range: the table has an entry for each byte.
        #[allow(clippy::indexing_slicing)]
        let remainder = CRC16_OF_BYTE[(high ^ *byte) as usize];
        crc = remainder ^ u16::from_be_bytes([low, 0]);
        rest = tail;
    }
    crc
}

/// The checksum of each byte alone.
const CRC16_OF_BYTE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0_u8);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit = bit.wrapping_add(1);
        }
        // In range, and evaluated by the compiler.
        #[allow(clippy::indexing_slicing)]
        {
            table[byte as usize] = crc;
        }
        byte = byte.wrapping_add(1);
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn key(domain: &str, entries: &[(String, String)]) -> CellKey {
        CellKey::open(domain, entries.iter().map(|(key, value)| Entry { key, value }))
    }

    fn pairs(entries: &[(&str, &str)]) -> Vec<(String, String)> {
        entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
    }

    #[test]
    fn a_name_of_another_region_is_taken_only_if_a_shared_counter_of_the_domain_has_it() {
        let entry = |value| Entry { key: "k}", value };
        let long = "v".repeat(300);
        for cell in [
            CellKey::open("d|{", [entry("a~b")].into_iter()),
            CellKey::open("d|{", [entry("a")].into_iter()).with_entries([entry("b")].into_iter()),
            CellKey::open("d|{", [entry(&long)].into_iter()).with_entries([entry(&long)].into_iter()),
        ] {
            assert_eq!(CellKey::of_peer("d|{", cell.as_bytes()), Some(cell.clone()));
        }
        let plain = CellKey::open("d", [entry("a")].into_iter());
        assert_eq!(CellKey::of_peer("e", plain.as_bytes()), None);
        for name in ["", "{d|", "{d|k=v}~utilization", "{d|k=v}~0.60", "{d|k=v}more", "{tollgate-rules}head"]
        {
            assert_eq!(CellKey::of_peer("d", name.as_bytes()), None, "{name}");
        }
        assert_eq!(CellKey::of_peer("d", format!("{{d|{long}{long}}}").as_bytes()), None);
    }

    #[test]
    fn names_are_readable_and_escape_their_structure() {
        assert_eq!(key("edge", &pairs(&[("api_key", "abc")])).to_string(), "{edge|api_key=abc}");
        assert_eq!(key("a|b", &pairs(&[("k{", "v}"), ("", "")])).to_string(), "{a%7cb|k%7b=v%7d,=}");
        let cell = key("edge", &pairs(&[("k", "v")])).limit_override(None, Algorithm::FixedWindow, 60);
        assert_eq!(cell.to_string(), "{edge|k=v}~0.60");
        assert_eq!(cell.tag(), b"{edge|k=v}");
    }

    #[test]
    fn a_long_tag_is_hashed_and_its_cells_keep_their_ends_apart() {
        let long = key("edge", &pairs(&[("k", &"v".repeat(10_000))]));
        assert_eq!(long.as_bytes().len(), 35);
        let other = long.clone().limit_override(None, Algorithm::FixedWindow, 60);
        assert_eq!(other.tag(), long.tag());
        assert_ne!(other, long);
        assert_ne!(long.tag(), key("edge", &pairs(&[("k", &"v".repeat(10_001))])).tag());
    }

    #[test]
    fn slots_are_those_that_redis_documents() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // `CLUSTER KEYSLOT {foo}` and `CLUSTER KEYSLOT foo` return 12182.
        assert_eq!(crc16(b"foo") % 16_384, 12_182);
    }

    /// Text of the characters that structure names, and some others.
    fn awkward() -> impl Strategy<Value = String> {
        prop_oneof!["[{}|=,%@#~ a0é\n]{0,6}", ".{0,8}"]
    }

    /// Open values beyond the tag's, and the choice among the other suffixes of a name.
    type CellParts = (Vec<(String, String)>, u32);

    fn cell_parts() -> impl Strategy<Value = CellParts> {
        let long = Just(vec![("k".to_owned(), "v".repeat(10_000))]);
        (prop_oneof![4 => vec((awkward(), awkward()), 0..3), 1 => long], 0..6_u32)
    }

    fn cell(tag: &CellKey, (more, ending): &CellParts) -> CellKey {
        let mut cell = tag.clone();
        if !more.is_empty() {
            cell = cell.with_entries(more.iter().map(|(key, value)| Entry { key, value }));
        }
        let record = RecordId::alone(Algorithm::Concurrency);
        match ending {
            0 => cell,
            1 => cell.dedicated(record),
            2 => cell.dedicated(RecordId::alone(Algorithm::SlidingWindowLog)),
            3 => cell.limit_override(None, Algorithm::FixedWindow, 60),
            4 => cell.limit_override(Some(record), Algorithm::FixedWindow, 60),
            _ => cell.limit_override(Some(record), Algorithm::TokenBucket, 60),
        }
    }

    proptest! {
        #[test]
        fn different_parts_make_different_names(
            domains in (awkward(), awkward()),
            left in vec((awkward(), awkward()), 1..4),
            right in vec((awkward(), awkward()), 1..4),
        ) {
            let same = domains.0 == domains.1 && left == right;
            prop_assert_eq!(key(&domains.0, &left) == key(&domains.1, &right), same);
        }

        #[test]
        fn different_cells_of_one_tag_have_different_names(
            entries in vec((awkward(), awkward()), 1..3),
            left in cell_parts(),
            right in cell_parts(),
        ) {
            let tag = key("d", &entries);
            let (first, second) = (cell(&tag, &left), cell(&tag, &right));
            prop_assert_eq!(first.tag(), second.tag());
            prop_assert_eq!(first == second, left == right);
            prop_assert_eq!(first == tag, left == (Vec::new(), 0));
            // The memory taken by a counter's name is bounded whatever clients send.
            prop_assert!(first.as_bytes().len() <= 352);
        }

        #[test]
        fn redis_finds_the_tag_where_we_put_it(domain in awkward(), entries in vec((awkward(), awkward()), 1..3)) {
            let key = key(&domain, &entries);
            let inner = &key.tag()[1..key.tag().len() - 1];
            let braces = inner.iter().filter(|byte| matches!(byte, b'{' | b'}')).count();
            prop_assert!(!inner.is_empty() && braces == 0);
        }
    }
}
