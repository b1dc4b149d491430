//! Overrides of rules: parts of a `rate_limit` that operators set over one rule, or over one key of a rule, mostly for a
//! time.

mod overridden;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use smallvec::SmallVec;
use tollgate_core::descriptor::Entry;

pub use self::overridden::{Overridden, OverriddenCounts, UnmatchedOverride};
use crate::{Domain, Rule, Segment, addresses::canonical};

/// Identifier of an override: a hash of its domain, rule and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OverrideId(pub u128);

impl fmt::Display for OverrideId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Override of a rule, or of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleOverride {
    /// Unique identifier.
    pub id: OverrideId,
    /// The domain of the rule.
    pub domain: Arc<str>,
    /// The path of the rule.
    pub rule: Arc<str>,
    /// The key of one counter; empty for all counters of the rule.
    pub key: OverrideKey,
    /// A mapping of keys of `rate_limit`, in JSON.
    pub rate_limit: Arc<str>,
    /// Time from which it has no effect, in milliseconds since 1970.
    pub ends_at_ms: Option<u64>,
}

impl RuleOverride {
    /// Whether it has not ended.
    pub fn is_active_at(&self, now_ms: u64) -> bool {
        self.ends_at_ms.is_none_or(|end| now_ms < end)
    }
}

/// All overrides of rules, some of which may have ended. Immutable, like the rules.
#[derive(Debug, Default)]
pub struct RuleOverrides {
    /// Revision of the overrides, which grows with every change.
    pub revision: u64,
    /// All overrides.
    pub all: Box<[Arc<RuleOverride>]>,
}

/// Bytes behind a key and behind a value, which no text in UTF-8 contains: so no two keys have one form.
const KEY_END: u8 = 0xff;
const VALUE_END: u8 = 0xfe;

/// The entries that a rule leaves open, in its order, as one text: what distinguishes its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OverrideKey(Box<[u8]>);

/// Error of an invalid key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideKeyError {
    /// Too many entries.
    #[error("the key has too many entries; expected at most {}", OverrideKey::MAX_PAIRS)]
    TooManyPairs,
    /// An entry without a key.
    #[error("an entry of the key has no key; expected that of a descriptor")]
    EmptyKey,
    /// A text that is too long.
    #[error("a text of the key is too long; expected at most {} bytes", OverrideKey::MAX_TEXT_BYTES)]
    TooLong,
}

/// A key on its way into the table: most are short.
pub(super) type Encoded = SmallVec<[u8; 128]>;

impl OverrideKey {
    /// Maximum number of entries.
    pub const MAX_PAIRS: usize = 8;

    /// Maximum length of a key or a value in bytes.
    pub const MAX_TEXT_BYTES: usize = 256;

    /// Returns the key of these entries.
    ///
    /// # Errors
    /// [`OverrideKeyError`] if they are too many or too long.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, OverrideKeyError> {
        let (mut encoded, mut count) = (Encoded::new(), 0_usize);
        for (key, value) in pairs {
            count = count.saturating_add(1);
            if count > Self::MAX_PAIRS {
                return Err(OverrideKeyError::TooManyPairs);
            }
            if key.is_empty() {
                return Err(OverrideKeyError::EmptyKey);
            }
            if key.len() > Self::MAX_TEXT_BYTES || value.len() > Self::MAX_TEXT_BYTES {
                return Err(OverrideKeyError::TooLong);
            }
            push(&mut encoded, key, value);
        }
        Ok(Self(encoded.as_slice().into()))
    }

    /// The key of the counter of a request with these entries.
    pub(super) fn of_counter(rule: &Rule, entries: &[Entry<'_>]) -> Self {
        Self(of_request(rule, entries).as_slice().into())
    }

    /// Whether it is no key of a counter, but stands for all counters of a rule.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of the form.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The keys and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        // Texts are separated by bytes that they cannot contain.
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        self.0.split_inclusive(|byte| *byte == VALUE_END).filter_map(move |pair| {
            let pair = pair.strip_suffix(&[VALUE_END])?;
            let end = pair.iter().position(|byte| *byte == KEY_END)?;
            let (key, value) = pair.split_at(end);
            Some((text(key), text(value.get(1..)?)))
        })
    }

    /// The entries of a request that counts under this key of the rule; `None` unless the key has an entry for each that the
    /// rule leaves open, and none besides.
    pub(super) fn request<'k>(&'k self, rule: &'k Rule) -> Option<Vec<Entry<'k>>> {
        let mut pairs = self.pairs().map(|(key, value)| Entry { key, value });
        let entry = |segment: &'k Segment| match segment.is_open() {
            true => pairs.next().filter(|pair| segment.key.contains('*') || pair.key == &*segment.key),
            false => {
                let value =
                    segment.stated.strip_prefix(&*segment.key).and_then(|rest| rest.strip_prefix('_'));
                Some(Entry { key: &segment.key, value: value.unwrap_or_default() })
            }
        };
        let entries: Option<Vec<_>> = rule.segments.iter().map(entry).collect();
        entries.filter(|_| pairs.next().is_none())
    }
}

impl fmt::Display for OverrideKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.pairs().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "{}", pairs.join(",").escape_debug())
    }
}

/// The key of the counters of requests that have these entries in a domain.
pub(super) fn in_domain(key: &OverrideKey, domain: &Domain) -> Encoded {
    let mut encoded = Encoded::new();
    for (key, value) in key.pairs() {
        push(&mut encoded, key, canonical(domain, Entry { key, value }).as_deref().unwrap_or(value));
    }
    encoded
}

fn push(encoded: &mut Encoded, key: &str, value: &str) {
    encoded.extend_from_slice(key.as_bytes());
    encoded.push(KEY_END);
    encoded.extend_from_slice(value.as_bytes());
    encoded.push(VALUE_END);
}

/// The key of the counter of a request with these entries.
pub(super) fn of_request(rule: &Rule, entries: &[Entry<'_>]) -> Encoded {
    let mut encoded = Encoded::new();
    for (_, entry) in rule.open(entries) {
        push(&mut encoded, entry.key, entry.value);
    }
    encoded
}
