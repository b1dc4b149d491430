//! Keys of records.

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_directory::Fingerprint;
use tollgate_rules::{List, OverrideId};

/// Key of a record: a hash of its kind and of what it is about, each combination of which has one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RecordKey(pub(crate) u128);

impl RecordKey {
    pub(crate) fn of_entry(list: List, domain: &str, descriptor: &str) -> Self {
        Self::of(["list entry", list.name(), domain, descriptor])
    }

    pub(crate) fn of_automatic(ban: &str) -> Self {
        Self::of(["automatic entry", ban])
    }

    pub(crate) fn of_switch(domain: &str, rule: &str) -> Self {
        Self::of(["switch", domain, rule])
    }

    fn of<const N: usize>(texts: [&str; N]) -> Self {
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
