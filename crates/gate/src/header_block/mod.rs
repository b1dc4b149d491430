//! Reads of a call's header block what its admission needs, without decoding the rest (HPACK, RFC 7541), and finds fields for
//! which HTTP/2 would reset the call although gRPC has no use for them.
//!
//! Envoy sends the name of its cluster as `:authority` unless another is set, e.g. `outbound|8081||ratelimit.default`.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, time::Duration};

use bytes::{BufMut as _, BytesMut};

use super::header_field::{Field, Name, Text};

/// Most entries of a dynamic table of 4,096 bytes, the size that this server leaves its clients: each counts as 32 bytes
/// more than its text.
const MAX_ENTRIES: usize = 128;

/// Most bytes of their texts that are kept. As few bytes as 4,096 in the code of Huffman, which a client uses for what it
/// makes shorter.
const MAX_TABLE_BYTES: usize = 4 * 1024;

/// Bytes of a copy at which the rest of its block is only read: an index of a byte may stand for 4,096.
pub(crate) const MAX_COPY_BYTES: usize = 16 * 1024;

/// Entries of the static table.
const STATIC_ENTRIES: usize = 61;

/// Parts of a call's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Whether the call is `ShouldRateLimit`.
    pub is_rate_limit: bool,
    /// Timeout of its caller.
    pub timeout: Option<Duration>,
    /// Whether later blocks depend on this one.
    pub changes_table: bool,
    /// Whether HTTP/2 would reset the call for a field that gRPC has no use for, or for the lack of a scheme.
    pub is_unfit: bool,
}

/// Dynamic table of a connection, which its client's header blocks change.
#[derive(Debug, Default)]
pub(crate) struct HeaderTable {
    /// Entries, newest first.
    entries: VecDeque<Entry>,
    /// Bytes of their texts.
    text_bytes: usize,
    /// Number of entries that the latest block has added.
    added: usize,
    /// Whether a block was not read, so that the entries are unknown.
    is_lost: bool,
}

/// An entry of the table.
#[derive(Debug)]
struct Entry {
    field: Field,
    /// Index of its name in the static table, or 0 if the name is in `text`.
    static_name: usize,
    /// Name and value as in a block.
    text: Box<[u8]>,
    /// Bytes of the name in it.
    name_bytes: usize,
}

/// A field of a block.
struct Literal<'b> {
    field: Field,
    static_name: usize,
    /// Name, if it is not in the static table, and value, as in a block.
    name: &'b [u8],
    value: &'b [u8],
}

impl HeaderTable {
    /// Reads the next block. Returns `None` if this or an earlier one could not be read. Adds the same fields to `copy`, but
    /// for those that are unfit, in a form that depends on no table; not all of them once it exceeds [`MAX_COPY_BYTES`].
    pub(crate) fn read(&mut self, block: &[u8], copy: Option<&mut BytesMut>) -> Option<Head> {
        if self.is_lost {
            return None;
        }
        self.evict();
        let head = self.read_fields(Block(block), copy);
        if head.is_none() {
            self.skip();
        }
        head
    }

    /// Makes the table as it was before the latest block.
    pub(crate) fn undo(&mut self) {
        for entry in self.entries.drain(..self.added.min(self.entries.len())) {
            self.text_bytes -= entry.text.len();
        }
        self.added = 0;
    }

    /// Notes that a block is not read.
    pub(crate) fn skip(&mut self) {
        *self = Self { is_lost: true, ..Self::default() };
    }

    /// Reads the fields of a block; `None` if it is malformed.
    fn read_fields(&mut self, mut block: Block<'_>, mut copy: Option<&mut BytesMut>) -> Option<Head> {
        let mut head = Head::default();
        let (mut has_path, mut has_scheme) = (false, false);
        self.added = 0;
        while let Some(first) = block.0.first().copied() {
            copy = copy.filter(|copy| copy.len() <= MAX_COPY_BYTES);
            let field = match first {
                0x80.. => self.indexed(&mut block, copy.as_deref_mut())?,
                // The client's bound on the table, which it keeps itself.
                0x20..0x40 => {
                    block.integer(5)?;
                    head.changes_table = true;
                    continue;
                }
                _ => {
                    let is_new = first >= 0x40;
                    let literal = self.literal(&mut block, if is_new { 6 } else { 4 })?;
                    if let Some(copy) = copy.as_deref_mut()
                        && literal.field.begin_copy(copy)
                    {
                        literal.put(copy);
                    }
                    let field = literal.field;
                    if is_new {
                        let Literal { static_name, name, value, .. } = literal;
                        let text: Box<[u8]> = [name, value].concat().into();
                        let entry = Entry { field, static_name, text, name_bytes: name.len() };
                        self.text_bytes += entry.text.len();
                        self.entries.push_front(entry);
                        self.added += 1;
                        head.changes_table = true;
                    }
                    field
                }
            };
            match field {
                Field::Path { is_rate_limit } => (head.is_rate_limit, has_path) = (is_rate_limit, true),
                Field::Timeout(timeout) => head.timeout = timeout,
                Field::Other(name) => has_scheme |= name == Name::Scheme,
                Field::Unfit(_) => head.is_unfit = true,
            }
        }
        head.is_unfit |= has_path && !has_scheme;
        Some(head)
    }

    /// Drops the oldest entries beyond the bounds, which the client has forgotten by then.
    fn evict(&mut self) {
        while self.entries.len() > MAX_ENTRIES || self.text_bytes > MAX_TABLE_BYTES {
            let Some(entry) = self.entries.pop_back() else { break };
            self.text_bytes -= entry.text.len();
        }
    }

    /// Reads a field that is in a table.
    fn indexed(&self, block: &mut Block<'_>, copy: Option<&mut BytesMut>) -> Option<Field> {
        let before = block.0;
        let index = block.integer(7)?;
        let entry = self.entry(index)?;
        let field = entry.map_or_else(|| Field::of_static(index), |entry| entry.field);
        if let Some(copy) = copy
            && field.begin_copy(copy)
        {
            let read = before.len() - block.0.len();
            match entry {
                Some(entry) => entry.literal().put(copy),
                None => copy.extend_from_slice(before.get(..read).unwrap_or_default()),
            }
        }
        Some(field)
    }

    /// The dynamic entry of an index; `Some(None)` if it is a static one.
    fn entry(&self, index: usize) -> Option<Option<&Entry>> {
        match index.checked_sub(STATIC_ENTRIES) {
            Some(at @ 1..) => self.entries.get(at - 1).map(Some),
            _ => Some(None),
        }
    }

    /// Reads a field with a literal value, whose name has an index of `prefix` bits.
    fn literal<'t, 's: 't, 'b: 't>(&'s self, block: &mut Block<'b>, prefix: u32) -> Option<Literal<'t>> {
        let index = block.integer(prefix)?;
        let (name, static_name, name_text) = if index == 0 {
            let name = block.string()?;
            (Name::of(name), 0, name.raw)
        } else if let Some(entry) = self.entry(index)? {
            let Literal { field, static_name, name, .. } = entry.literal();
            (field.name(), static_name, name)
        } else {
            (Name::of_static(index), index, &[][..])
        };
        let value = block.string()?;
        Some(Literal { field: Field::of(name, value), static_name, name: name_text, value: value.raw })
    }
}

impl Entry {
    fn literal(&self) -> Literal<'_> {
        let (name, value) = self.text.split_at(self.name_bytes.min(self.text.len()));
        Literal { field: self.field, static_name: self.static_name, name, value }
    }
}

impl Literal<'_> {
    /// Appends the field in the form of one that is not added to the table.
    fn put(&self, block: &mut BytesMut) {
        // An integer with a prefix of four bits, below 15 + 128.
        match u8::try_from(self.static_name).unwrap_or_default() {
            index @ 0..15 => block.put_u8(index),
            index => block.put_slice(&[15, index - 15]),
        }
        block.put_slice(self.name);
        block.put_slice(self.value);
    }
}

/// The rest of a block. Its readers return `None` where it is malformed.
struct Block<'b>(&'b [u8]);

impl<'b> Block<'b> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads an integer that begins in the lowest `prefix` bits of a byte.
    fn integer(&mut self, prefix: u32) -> Option<usize> {
        let mask = u8::MAX >> (8 - prefix);
        let first = self.byte()? & mask;
        if first < mask {
            return Some(usize::from(first));
        }
        let mut value = usize::from(first);
        for shift in [0_u32, 7, 14] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn string(&mut self) -> Option<Text<'b>> {
        let before = self.0;
        let is_huffman = self.0.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let raw = before.get(..before.len() - rest.len()).unwrap_or_default();
        Some(Text { bytes, raw, is_huffman })
    }
}
