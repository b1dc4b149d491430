//! Tells versions of a configuration apart.

use std::{fmt, io};

use sha2::{Digest as _, Sha256};

/// A hash of everything that loading depends on: equal ones load the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Enough to tell versions apart in a log.
        self.0.iter().take(8).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Hashes parts so that moving a byte from one to the next makes a difference.
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
    /// The fingerprint of files that were read elsewhere, by their names and in the order of these.
    pub fn of_files<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut hash = Hash::default();
        for (name, content) in files {
            hash.part(name.as_bytes());
            hash.part(content);
        }
        hash.finish()
    }

    /// The fingerprint of a directory that can't be read for this reason.
    pub(super) fn of_failure(error: &io::Error) -> Self {
        let mut hash = Hash::default();
        hash.part(b"unreadable");
        hash.part(error.to_string().as_bytes());
        hash.finish()
    }
}
