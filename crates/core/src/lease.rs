//! Identifiers of leases, under which requests hold permits of concurrency limits.

use std::hash::{BuildHasher as _, RandomState};
use std::{fmt, num::NonZeroU64};

/// Key of the entry that releases a lease. The entry follows the entries that acquired the lease; its value is the
/// lease's identifier.
pub const KEY: &str = "lease";

/// Identifier of a lease: random, so that no two instances generate the same one. Displayed as 16 hexadecimal digits.
///
/// A request has one lease, under which it holds the permits of all concurrency limits that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

/// Error of a text that is not a lease's identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 16 hexadecimal digits, not all of them 0")]
pub struct MalformedLease;

impl LeaseId {
    /// Returns the lease with this number.
    pub const fn new(number: NonZeroU64) -> Self {
        Self(number)
    }

    /// Returns a new lease.
    pub fn random() -> Self {
        // A thread's first keys are from the operating system, and each further state has different ones.
        Self(NonZeroU64::new(RandomState::new().hash_one(())).unwrap_or(NonZeroU64::MIN))
    }

    /// The stored form.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }

    /// Parses the displayed form.
    ///
    /// # Errors
    /// [`MalformedLease`] for any other text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_parsed_as_displayed() {
        let lease = LeaseId::random();
        assert_eq!(LeaseId::parse(&lease.to_string()), Ok(lease));
        for wrong in ["", "0000000000000000", "+00000000000001f", "1f", "00000000000000000000000000000001"] {
            assert_eq!(LeaseId::parse(wrong), Err(MalformedLease), "{wrong}");
        }
    }
}
