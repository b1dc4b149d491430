//! Names of counters: as they are asked for, and as they are kept.

use std::hash::{BuildHasher, Hasher as _};

use foldhash::quality::RandomState;
use sha2::{Digest as _, Sha256};

use crate::rules::RecordId;

/// The longest name that is kept within its slot, in bytes.
const SHORT: usize = 38;

/// The longest name of a cell that is kept itself, in bytes. Of a longer one the digest is kept, so that callers who bring
/// long values can't make counters that take more memory than others.
const LONGEST: usize = 256;

/// Stands before a digest: no text has this byte, so that none reads like one.
const DIGEST_MARK: u8 = 0xFF;

/// A counter's name, in the two parts that make it, with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    cell: Cell<'a>,
    record: &'a [u8],
    pub(super) hash: u64,
}

/// The name of a cell, or what stands for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell<'a> {
    Whole(&'a [u8]),
    Digest([u8; 33]),
}

impl<'a> Cell<'a> {
    fn of(name: &'a [u8]) -> Self {
        if name.len() <= LONGEST {
            return Self::Whole(name);
        }
        let mut digest = [DIGEST_MARK; 33];
        let (_, rest) = digest.split_at_mut(1);
        rest.copy_from_slice(&Sha256::digest(name));
        Self::Digest(digest)
    }

    const fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(name) => name,
            Self::Digest(digest) => digest,
        }
    }
}

/// A counter's name where it is kept: the cell's name, then the record's id.
#[derive(Debug)]
pub(super) enum Kept {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl<'a> Name<'a> {
    pub(super) fn new(hasher: &RandomState, cell: &'a [u8], record: &'a RecordId) -> Self {
        Self::of(hasher, Cell::of(cell), record.as_bytes())
    }

    fn of(hasher: &RandomState, cell: Cell<'a>, record: &'a [u8]) -> Self {
        let mut state = hasher.build_hasher();
        state.write(cell.bytes());
        state.write(record);
        Self { cell, record, hash: state.finish() }
    }

    pub(super) fn is(&self, kept: &Kept) -> bool {
        kept.bytes().strip_prefix(self.cell.bytes()).is_some_and(|rest| rest == self.record)
    }

    pub(super) fn keep(&self) -> Kept {
        let name = self.cell.bytes();
        let whole = || [name, self.record].concat().into();
        let length = name.len().saturating_add(self.record.len());
        let mut bytes = [0; SHORT];
        match (bytes.split_at_mut_checked(name.len()), u8::try_from(length)) {
            (Some((cell, rest)), Ok(length)) => match rest.get_mut(..self.record.len()) {
                Some(record) => {
                    cell.copy_from_slice(name);
                    record.copy_from_slice(self.record);
                    Kept::Short { length, bytes }
                }
                None => Kept::Long(whole()),
            },
            _ => Kept::Long(whole()),
        }
    }
}

impl Kept {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }

    /// What [`Name::hash`] was.
    pub(super) fn hash(&self, hasher: &RandomState) -> u64 {
        let bytes = self.bytes();
        let parts = bytes.split_at_checked(bytes.len().saturating_sub(RecordId::LENGTH));
        parts.map_or(0, |(cell, record)| Name::of(hasher, Cell::Whole(cell), record).hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;

    #[test]
    fn a_name_is_kept_whole_whatever_its_length() {
        let hasher = RandomState::default();
        let record = RecordId::alone(Algorithm::TokenBucket);
        for length in 0..3 * SHORT {
            let cell = vec![b'a'; length];
            let name = Name::new(&hasher, &cell, &record);
            let kept = name.keep();
            assert!(name.is(&kept) && kept.hash(&hasher) == name.hash);
            assert_eq!(matches!(kept, Kept::Short { .. }), length + RecordId::LENGTH <= SHORT);
            let longer = [&cell[..], b"a"].concat();
            assert!(!Name::new(&hasher, &longer, &record).is(&kept));
            let other = RecordId::alone(Algorithm::FixedWindow);
            assert!(!Name::new(&hasher, &cell, &other).is(&kept));
        }
    }

    #[test]
    fn a_long_name_takes_no_more_memory_than_its_digest_and_is_told_from_others() {
        let hasher = RandomState::default();
        let record = RecordId::alone(Algorithm::TokenBucket);
        for length in [LONGEST, LONGEST + 1, 100_000] {
            let cell = vec![b'a'; length];
            let name = Name::new(&hasher, &cell, &record);
            let kept = name.keep();
            assert!(name.is(&kept) && kept.hash(&hasher) == name.hash);
            assert!(kept.bytes().len() <= LONGEST + RecordId::LENGTH);
            let other = [&cell[..length - 1], b"b"].concat();
            assert!(!Name::new(&hasher, &other, &record).is(&kept));
        }
        // A name that reads like a digest without its mark is another one.
        let long = vec![b'a'; LONGEST + 1];
        let kept = Name::new(&hasher, &long, &record).keep();
        let digest = Sha256::digest(&long);
        assert!(!Name::new(&hasher, &digest, &record).is(&kept));
    }
}
