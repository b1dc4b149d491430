//! Names of regions. Their weights, and changes of these, are in [`shares`](crate::shares).

use std::{fmt, str::FromStr, sync::Arc};

/// Maximum number of regions.
pub const MAX_REGIONS: usize = 16;

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
