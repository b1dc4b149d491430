//! Overrides of rules: parts of a `rate_limit` that operators set over one rule, or over one key of a rule, mostly for a
//! time.

mod key;
mod overridden;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

pub use self::{
    key::{OverrideKey, OverrideKeyError},
    overridden::{Overridden, OverriddenCounts, UnmatchedOverride},
};

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
    revision: u64,
    all: Box<[Arc<RuleOverride>]>,
}

impl RuleOverrides {
    /// Returns the overrides of a revision.
    pub fn new(revision: u64, all: impl IntoIterator<Item = Arc<RuleOverride>>) -> Self {
        Self { revision, all: all.into_iter().collect() }
    }

    /// Revision of the overrides, which grows with every change.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// All overrides.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<RuleOverride>> {
        self.all.iter()
    }

    /// Number of overrides.
    pub const fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}
