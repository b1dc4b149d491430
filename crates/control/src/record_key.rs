//! Keys of records.

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_directory::Fingerprint;
use tollgate_rules::OverrideId;

/// Key of a record: a hash of its kind and of what it is about, each combination of which has one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordKey(pub(crate) u128);

impl RecordKey {
    /// The key of a record of a kind about these texts.
    pub(crate) fn of<'t>(kind: &'t str, texts: impl IntoIterator<Item = &'t str>) -> Self {
        let texts = [kind].into_iter().chain(texts);
        Self(Fingerprint::of(texts.map(str::as_bytes)).first_half())
    }

    /// Reads a key as it is written by `Display`.
    pub fn read(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16).map(Self).ok().filter(|key| key.to_string() == text)
    }
}

impl From<RecordKey> for String {
    fn from(key: RecordKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for RecordKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::read(&text).ok_or("not the key of a record; expected 32 hexadecimal digits")
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OverrideId(self.0).fmt(f)
    }
}
