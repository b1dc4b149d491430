//! Names of regions. Their weights, and changes of these, are in [`shares`](crate::shares).

use std::{fmt, str::FromStr, sync::Arc};

/// Maximum number of regions.
pub const MAX_REGIONS: usize = 16;

/// Mixes bytes into a digest: FNV-1a (Fowler, Noll, Vo), finished as in SplitMix64 so that all bits depend on all bytes.
/// All regions compute the same, in any version.
pub(crate) fn mix(digest: u64, bytes: &[u8]) -> u64 {
    let start = digest ^ 0xcbf2_9ce4_8422_2325;
    let hash =
        bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 63;

/// Name of a region: 1 to 63 lower-case letters, digits and hyphens, as in a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(Arc<str>);

/// Error of a text that is not a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a region; expected 1 to 63 of a-z, 0-9 and `-`, e.g. `us-east`")]
pub struct InvalidName(String);

impl RegionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RegionName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed);
        // A name of any length may arrive from a peer.
        is_name
            .then(|| Self(text.into()))
            .ok_or_else(|| InvalidName(text.chars().take(MAX_NAME_BYTES).collect()))
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
