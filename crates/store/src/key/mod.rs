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

use std::fmt;

use percent_encoding::percent_decode;
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use tollgate_core::{RecordId, algorithm::Algorithm, descriptor::Entry, hash_of};

/// Tags longer than this are replaced by their hash.
const MAX_TAG_BYTES: usize = 160;

/// Maximum length of a name that another region states.
const MAX_PEER_BYTES: usize = 2 * MAX_TAG_BYTES + 64;

/// Inline for most names. A longer name is allocated, which is cheaper than copying a larger inline buffer for all.
type Bytes = SmallVec<[u8; 64]>;

/// Mark of a tag of the primary region, behind its brace.
const PRIMARY_MARK: u8 = b'~';

/// Keys and values.
type Pairs = Vec<(String, String)>;

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
        let mut bytes = start(b"{", domain);
        write_entries(&mut bytes, entries);
        Self::close(bytes)
    }

    /// The cell of the one counter in `domain` that has no open values.
    pub fn global(domain: &str, record: RecordId) -> Self {
        let mut bytes = start(b"{", domain);
        bytes.push(b'@');
        write_hex(&mut bytes, record.as_bytes());
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
        write_hex(&mut self.bytes, record.as_bytes());
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
            write_hex(&mut self.bytes, record.as_bytes());
            self.bytes.push(b'.');
        }
        number(&mut self.bytes, algorithm.kind() as u32);
        self.bytes.push(b'.');
        number(&mut self.bytes, seconds);
        self
    }

    /// The key beside this cell with the ledger of the loans of the counter `record`.
    #[must_use]
    pub fn loans(mut self, record: RecordId) -> Self {
        self.bytes.push(b'~');
        write_hex(&mut self.bytes, record.as_bytes());
        self.bytes.extend_from_slice(b".loans");
        self
    }

    /// The cell of another region's counter in `domain`, by its name; `None` for a name that no counter of the domain in a
    /// shared cell has.
    pub fn of_peer(domain: &str, name: &[u8]) -> Option<Self> {
        if name.len() > MAX_PEER_BYTES || !(name.starts_with(&start(b"{", domain)) || name.starts_with(b"{#"))
        {
            return None;
        }
        let (tag, rest) = split_tag(name)?;
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

/// Counters that the primary region decides for all regions.
impl CellKey {
    /// The cell of the same counters in `domain` at the primary region.
    #[must_use]
    pub fn at_primary(self, domain: &str) -> Self {
        let mut bytes = Bytes::from_slice(b"{~");
        // A hashed tag does not show its domain.
        if self.bytes.get(1) == Some(&b'#') {
            write_domain(&mut bytes, domain);
        }
        let added = bytes.len().saturating_sub(1);
        bytes.extend_from_slice(self.bytes.get(1..).unwrap_or_default());
        Self { bytes, tag: self.tag.saturating_add(added) }
    }

    /// Whether the primary region decides its counters for all regions.
    pub fn is_at_primary(&self) -> bool {
        self.bytes.get(1) == Some(&PRIMARY_MARK)
    }

    /// The cell of the counter `record` in `domain` that a call of another region names; `None` for a name that no counter
    /// of the domain at the primary region has. `has_own_key`: whether the counter's algorithm needs a key of its own.
    pub fn of_call(domain: &str, name: &[u8], record: RecordId, has_own_key: bool) -> Option<Self> {
        let is_of_domain = name.starts_with(&start(b"{~", domain)) || name.starts_with(&hashed_start(domain));
        if name.len() > MAX_PEER_BYTES || !is_of_domain {
            return None;
        }
        let (tag, mut rest) = split_tag(name)?;
        if has_own_key {
            let mut own = Bytes::from_slice(b"~");
            write_hex(&mut own, record.as_bytes());
            rest = rest.strip_suffix(own.as_slice())?;
        }
        let is_plain = rest.is_empty() || rest.first() == Some(&b'+');
        let is_clean = !rest.iter().any(|byte| matches!(byte, 0..=b' ' | b'{' | b'}' | b'~' | 0x7f));
        (is_plain && is_clean).then(|| Self { bytes: Bytes::from_slice(name), tag })
    }

    /// The open values in the name of a cell in `domain` at the primary region, in the name's order; `None` if a part of it
    /// is hashed.
    pub fn open_values(&self, domain: &str) -> Option<Pairs> {
        let tag = self.tag().strip_prefix(start(b"{~", domain).as_slice())?.strip_suffix(b"}")?;
        let beyond = self.bytes.get(self.tag..).unwrap_or_default();
        let beyond = beyond.split(|byte| *byte == b'~').next().unwrap_or_default();
        let parts = [tag, beyond.strip_prefix(b"+").unwrap_or_default()];
        let entries = parts.into_iter().filter(|part| !part.is_empty() && part.first() != Some(&b'@'));
        entries.flat_map(|part| part.split(|byte| *byte == b',')).map(pair).collect()
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

/// The beginning of a name in `domain`, with its first characters.
fn start(opening: &[u8], domain: &str) -> Bytes {
    let mut bytes = Bytes::from_slice(opening);
    escape(&mut bytes, domain);
    bytes.push(b'|');
    bytes
}

/// The length of a name's tag with its braces, and the rest of the name.
fn split_tag(name: &[u8]) -> Option<(usize, &[u8])> {
    // A brace within a part is escaped.
    let tag = name.iter().position(|byte| *byte == b'}')?.checked_add(1)?;
    Some((tag, name.get(tag..)?))
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
        if is_literal(byte) {
            bytes.push(byte);
        } else {
            bytes.push(b'%');
            write_hex(bytes, &[byte]);
        }
    }
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

fn hashed_start(domain: &str) -> Bytes {
    let mut bytes = Bytes::from_slice(b"{~");
    write_domain(&mut bytes, domain);
    bytes.push(b'#');
    bytes
}

fn write_domain(bytes: &mut Bytes, domain: &str) {
    write_hex(bytes, &hash_of(domain.as_bytes()).to_be_bytes());
}

/// Key and value of an entry in a name.
fn pair(entry: &[u8]) -> Option<(String, String)> {
    let at = entry.iter().position(|byte| *byte == b'=')?;
    let (key, value) = entry.split_at(at);
    Some((percent_decoded(key)?, percent_decoded(value.get(1..)?)?))
}

/// Decodes percent-encoded UTF-8. Refuses malformed sequences, which the crate would keep as they are.
pub(crate) fn percent_decoded(text: &[u8]) -> Option<String> {
    let is_encoded =
        |part: &[u8]| part.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let is_valid = text.split(|byte| *byte == b'%').skip(1).all(is_encoded);
    is_valid.then(|| String::from_utf8(percent_decode(text).collect()).ok())?
}

#[cfg(test)]
mod tests;
