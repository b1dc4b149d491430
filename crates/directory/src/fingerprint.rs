//! Fingerprints of content.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Hash of parts: of all content that loading depends on, or of texts that identify something. Identifiers in Redis and in
/// files are made of it, so it never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 8 bytes identify a version in a log.
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Fingerprint {
    /// Returns the hash of parts with their lengths: moving a byte from one part to the next changes it.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// First half of the hash, as an identifier that is stored.
    pub fn first_half(self) -> u128 {
        self.0.iter().take(16).fold(0, |half, byte| half << 8 | u128::from(*byte))
    }

    /// Returns the fingerprint of this content with another one laid over it.
    #[must_use]
    pub fn under(self, overlay: Self) -> Self {
        Self::of([&b"overlay"[..], &self.0, &overlay.0])
    }
}
