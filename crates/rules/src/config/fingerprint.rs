//! Fingerprints of configurations.

use std::{fmt, io};

use sha2::{Digest as _, Sha256};

/// Hash of all inputs of loading: configurations of equal fingerprints load the same rules.
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

/// Hasher of a sequence of parts, with their lengths: moving a byte from one part to the next changes the hash.
#[derive(Debug, Default)]
pub struct Hash(Sha256);

impl Hash {
    pub fn part(&mut self, part: &[u8]) {
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}

impl Fingerprint {
    /// Returns the fingerprint of this content with another one laid over it.
    #[must_use]
    pub fn under(self, overlay: Self) -> Self {
        let mut hash = Hash::default();
        hash.part(b"overlay");
        hash.part(&self.0);
        hash.part(&overlay.0);
        hash.finish()
    }

    /// Returns the fingerprint of files from memory, in the order of their names.
    pub fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut hash = Hash::default();
        for (name, content) in files {
            hash.part(name.as_bytes());
            hash.part(content);
        }
        hash.finish()
    }

    /// Returns the fingerprint of a directory that cannot be read for this reason.
    pub(super) fn of_failure(error: &io::Error) -> Self {
        let mut hash = Hash::default();
        hash.part(b"unreadable");
        hash.part(error.to_string().as_bytes());
        hash.finish()
    }
}
