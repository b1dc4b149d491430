//! Short identifiers of counters within their hash tag, and the hash of keys that instances and regions of any version must
//! agree on.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::algorithm::{Algorithm, Policy, RecordKind, TokenBucket};

/// Identifier of a counter within its hash tag: 44 bits of a hash of the rule's path in the tree, and 4 bits of the
/// algorithm's kind. Short because it is stored with every record; the rules compiler rejects a domain in which two rules
/// have the same one, so that counters never mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; Self::LENGTH]);

/// One step of a rule's path in the tree, as hashed into the identifier of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep<'a> {
    /// Step whose value the rule fixes; the text is the rule's key and value.
    Closed(&'a str),
    /// Step whose value each request brings; the value is part of the counter's key instead. The text is the rule's key.
    Open(&'a str),
    /// Last step of the counters of a rule's candidate, beside the rule's own.
    Candidate,
    /// Last step of the counters of one of several limits of a descriptor; the text is the limit's label.
    Limit(&'a str),
}

impl RecordId {
    /// Length of an identifier in bytes.
    pub const LENGTH: usize = 6;

    /// Returns the identifier of a counter that is alone in its cell.
    pub const fn alone(algorithm: Algorithm) -> Self {
        Self::numbered(0, algorithm)
    }

    /// Returns the identifier of a counter that is distinguished by a number.
    pub const fn numbered(number: u8, algorithm: Algorithm) -> Self {
        Self([0, 0, 0, 0, number, algorithm.kind() as u8])
    }

    /// Returns the identifier of the counters of the rule at `steps`.
    pub fn of<'a>(steps: impl IntoIterator<Item = PathStep<'a>>, algorithm: Algorithm) -> Self {
        let mut hash = Sha256::new();
        for step in steps {
            let (kind, text) = match step {
                PathStep::Open(text) => (0, text),
                PathStep::Closed(text) => (1, text),
                PathStep::Candidate => (2, ""),
                PathStep::Limit(text) => (3, text),
            };
            hash.update([kind]);
            // The length separates adjacent texts: `ab`, `c` differs from `a`, `bc`.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, ..] = digest;
        Self([a, b, c, d, e, (f & 0xf0) | algorithm.kind() as u8])
    }

    /// The identifier of the counter under this policy.
    #[must_use]
    pub fn under(&self, policy: &Policy) -> Self {
        self.with_kind(policy.kind())
    }

    /// The identifier of a bucket of another rate beside this one.
    #[must_use]
    pub fn of_rate(&self, bucket: &TokenBucket) -> Self {
        let digest: [u8; 32] = Sha256::digest(bucket.emission_ticks().to_le_bytes()).into();
        let (Self([a, b, c, d, e, f]), [g, h, i, j, k, ..]) = (*self, digest);
        Self([a ^ g, b ^ h, c ^ i, d ^ j, e ^ k, f])
    }

    /// Number of the record's [`RecordKind`].
    pub const fn kind(&self) -> u8 {
        let [.., last] = self.0;
        last & 0x0f
    }

    /// Returns the identifier with this stored form.
    pub const fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// The identifier without the algorithm's kind, which rules at the same path share.
    pub const fn path(&self) -> [u8; Self::LENGTH] {
        let [a, b, c, d, e, f] = self.0;
        [a, b, c, d, e, f & 0xf0]
    }

    /// The identifier of the record of the counter's bans, which does not depend on the algorithm.
    #[must_use]
    pub const fn of_ban(&self) -> Self {
        self.with_kind(RecordKind::Ban)
    }

    const fn with_kind(&self, kind: RecordKind) -> Self {
        let [a, b, c, d, e, f] = self.path();
        Self([a, b, c, d, e, f | kind as u8])
    }

    /// The stored form; the low 4 bits of the last byte are the algorithm's kind.
    pub const fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// FNV-1a, with the finalizer of MurmurHash3 (`fmix64`) so that similar texts differ in all bits. Fixed forever, and
/// independent of the slots of a Redis Cluster and of the hashes that choose shards.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(pub(crate) u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Adds a text after its length, which separates adjacent texts: `ab`, `c` differs from `a`, `bc`.
    pub fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes());
    }

    /// The hash.
    pub const fn finish(self) -> u64 {
        mixed(self.0)
    }
}

/// FNV-1a of bytes, without the finalizer. Its values are part of the regions' behaviour: instances of two versions must agree.
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.bytes(bytes);
    hash.0
}

/// Mixes the bits of a hash, with the finalizer of MurmurHash3.
pub const fn mixed(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}
