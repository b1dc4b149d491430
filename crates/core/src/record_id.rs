//! Short names for counters within their hash tag.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::algorithm::Algorithm;

/// A counter's name within its tag: 44 bits of a hash of the rule's place in the tree, and 4 bits that name
/// the algorithm. Stored with every record, hence short; the compiler of the configuration refuses a domain
/// in which two rules get the same one, so that counters never mix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; Self::LENGTH]);

/// One step of a rule's place in the tree, as it goes into the identity of the rule's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep<'a> {
    /// The request's value is fixed by the rule; the text is the rule's key and value.
    Closed(&'a str),
    /// The request's value of this key is open; it stands in the counter's name.
    Open(&'a str),
}

impl RecordId {
    /// Bytes of an id.
    pub const LENGTH: usize = 6;

    /// The id of a counter that has its cell to itself.
    pub const fn alone(algorithm: Algorithm) -> Self {
        Self::numbered(0, algorithm)
    }

    /// The id of a counter that is known by a number.
    pub const fn numbered(number: u8, algorithm: Algorithm) -> Self {
        Self([0, 0, 0, 0, number, algorithm.kind()])
    }

    /// The id of the counters of the rule at `steps`.
    pub fn of<'a>(steps: impl IntoIterator<Item = PathStep<'a>>, algorithm: Algorithm) -> Self {
        let mut hash = Sha256::new();
        for step in steps {
            match step {
                PathStep::Open(_) => hash.update([0]),
                PathStep::Closed(_) => hash.update([1]),
            }
            let (PathStep::Open(text) | PathStep::Closed(text)) = step;
            // The length keeps neighbours apart.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, ..] = digest;
        Self([a, b, c, d, e, (f & 0xf0) | algorithm.kind()])
    }

    /// The id as stores write it; the low 4 bits of the last byte are the algorithm's kind.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({self})")
    }
}
