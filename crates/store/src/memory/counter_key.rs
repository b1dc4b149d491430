//! Names of counters, borrowed for lookups and stored in slots.

use std::hash::{BuildHasher, Hasher as _};

use foldhash::quality::RandomState;
use tollgate_core::RecordId;

/// Longest name that is stored within its slot.
const INLINE_BYTES: usize = 38;

/// The name of a counter, in its two parts, with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CounterKey<'a> {
    cell: &'a [u8],
    record: &'a [u8],
    pub(super) hash: u64,
}

/// The stored name of a counter: the name of the cell, then the id of the record.
#[derive(Debug)]
pub(super) enum StoredKey {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl<'a> CounterKey<'a> {
    pub(super) fn new(hasher: &RandomState, cell: &'a [u8], record: &'a RecordId) -> Self {
        Self::of(hasher, cell, record.as_bytes())
    }

    fn of(hasher: &RandomState, cell: &'a [u8], record: &'a [u8]) -> Self {
        let mut state = hasher.build_hasher();
        state.write(cell);
        state.write(record);
        Self { cell, record, hash: state.finish() }
    }

    pub(super) fn matches(&self, stored: &StoredKey) -> bool {
        stored.bytes().strip_prefix(self.cell).is_some_and(|rest| rest == self.record)
    }

    pub(super) fn to_stored(self) -> StoredKey {
        let whole = || [self.cell, self.record].concat().into();
        let length = self.cell.len().saturating_add(self.record.len());
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.split_at_mut_checked(self.cell.len()), u8::try_from(length)) {
            (Some((cell, rest)), Ok(length)) => match rest.get_mut(..self.record.len()) {
                Some(record) => {
                    cell.copy_from_slice(self.cell);
                    record.copy_from_slice(self.record);
                    StoredKey::Inline { length, bytes }
                }
                None => StoredKey::Heap(whole()),
            },
            _ => StoredKey::Heap(whole()),
        }
    }
}

impl StoredKey {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Heap(bytes) => bytes,
        }
    }

    /// Recomputes [`CounterKey::hash`].
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let bytes = self.bytes();
        let parts = bytes.split_at_checked(bytes.len().saturating_sub(RecordId::LENGTH));
        parts.map_or(0, |(cell, record)| CounterKey::of(hasher, cell, record).hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::algorithm::Algorithm;

    #[test]
    fn a_name_is_stored_whole_whatever_its_length() {
        let hasher = RandomState::default();
        let record = RecordId::alone(Algorithm::TokenBucket);
        for length in 0..3 * INLINE_BYTES {
            let cell = vec![b'a'; length];
            let name = CounterKey::new(&hasher, &cell, &record);
            let stored = name.to_stored();
            assert!(name.matches(&stored) && stored.hash(&hasher) == name.hash);
            assert_eq!(matches!(stored, StoredKey::Inline { .. }), length + RecordId::LENGTH <= INLINE_BYTES);
            let longer = [&cell[..], b"a"].concat();
            assert!(!CounterKey::new(&hasher, &longer, &record).matches(&stored));
            let other = RecordId::alone(Algorithm::FixedWindow);
            assert!(!CounterKey::new(&hasher, &cell, &other).matches(&stored));
        }
    }
}
