//! Names of leases: what a caller holds while a concurrency limit counts it.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    num::NonZeroU64,
};

/// The key of the entry that gives a lease back: it comes after the entries that took it, and has the name.
pub const KEY: &str = "lease";

/// The name of a lease: random, so that no two instances make the same one. Written as 16 hexadecimal digits.
///
/// One request has one lease, whose name stands in every concurrency limit that it takes a place in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

/// A text that is no lease's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 16 hexadecimal digits, not all of them 0")]
pub struct MalformedLease;

impl LeaseId {
    /// The lease with this number.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// A lease that nobody has yet.
    pub fn random() -> Self {
        // The operating system makes a thread's first keys, and each further state has others.
        Self(NonZeroU64::new(RandomState::new().hash_one(())).unwrap_or(NonZeroU64::MIN))
    }

    /// The name as stores write it.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }

    /// Reads what [`LeaseId`] displays.
    ///
    /// # Errors
    /// [`MalformedLease`] when it is anything else.
    pub fn parse(text: &str) -> Result<Self, MalformedLease> {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
        number.and_then(NonZeroU64::new).map(Self).ok_or(MalformedLease)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_as_it_is_shown() {
        let lease = LeaseId::random();
        assert_eq!(LeaseId::parse(&lease.to_string()), Ok(lease));
        for wrong in ["", "0000000000000000", "+00000000000001f", "1f", "00000000000000000000000000000001"] {
            assert_eq!(LeaseId::parse(wrong), Err(MalformedLease), "{wrong}");
        }
    }
}
