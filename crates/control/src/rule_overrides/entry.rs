//! Overrides as operators write them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tollgate_rules::{OverrideId, OverrideKey, OverrideKeyError, RuleOverride};

use crate::{
    ControlResult, Pair,
    bounds::{MAX_NAME_BYTES, check_size, truncated},
    pairs::pairs_text,
};

/// Maximum size of the `rate_limit` of an override as JSON, in bytes.
const MAX_LIMIT_BYTES: usize = 2_048;

/// An override of a rule, or of one of its keys, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideEntry {
    /// Identifier: a hash of the domain, the rule and the key, each combination of which has one override.
    #[serde(default)]
    pub id: String,
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    /// The entries that the rule leaves open, in its order; empty for the whole rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<Pair>,
    /// Keys of `rate_limit`.
    pub rate_limit: Map<String, Value>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// Error of an invalid override.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("the domain is missing; expected that of a rule")]
    NoDomain,
    #[error("the rule is missing; expected its path, as in /rlconfig")]
    NoRule,
    #[error("rate_limit is empty; expected a key of `rate_limit`, such as requests_per_unit")]
    NoLimit,
    #[error("rate_limit is too large; expected at most {MAX_LIMIT_BYTES} bytes")]
    TooLarge,
    #[error(transparent)]
    Key(#[from] OverrideKeyError),
}

impl OverrideEntry {
    /// Returns the entry with its identifier.
    #[must_use]
    pub fn identified(self) -> Self {
        let id = Self::id_of(&self.domain, &self.rule, &self.key).to_string();
        Self { id, ..self }
    }

    /// Identifier of the override of this rule and key.
    pub(crate) fn id_of(domain: &str, rule: &str, key: &[Pair]) -> OverrideId {
        let mut hash = Sha256::new();
        let texts = key.iter().flat_map(|pair| [&*pair.key, &*pair.value]);
        for text in [domain, rule].into_iter().chain(texts) {
            // The length separates adjacent texts.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let (half, _) = digest.split_at(16);
        OverrideId(half.iter().fold(0, |id, byte| id << 8 | u128::from(*byte)))
    }

    /// Validates what does not depend on the rules.
    ///
    /// # Errors
    /// When it is invalid.
    pub fn check(&self) -> Result<OverrideKey, OverrideError> {
        self.checked().map(|(key, _)| key)
    }

    /// The key and the text of the limit, if both are valid.
    pub(super) fn checked(&self) -> Result<(OverrideKey, String), OverrideError> {
        let limit = self.limit_text();
        match () {
            () if self.domain.is_empty() => Err(OverrideError::NoDomain),
            () if self.rule.is_empty() => Err(OverrideError::NoRule),
            () if self.rate_limit.is_empty() => Err(OverrideError::NoLimit),
            () if limit.len() > MAX_LIMIT_BYTES => Err(OverrideError::TooLarge),
            () => Ok((OverrideKey::new(self.key.iter().map(|pair| (&*pair.key, &*pair.value)))?, limit)),
        }
    }

    /// Returns the override for enforcement.
    ///
    /// # Errors
    /// When it is invalid, whatever the rules are.
    pub fn compiled(&self) -> Result<RuleOverride, OverrideError> {
        let (key, limit) = self.checked()?;
        Ok(RuleOverride {
            id: Self::id_of(&self.domain, &self.rule, &self.key),
            domain: self.domain.as_str().into(),
            rule: self.rule.as_str().into(),
            key,
            rate_limit: limit.into(),
            ends_at_ms: self.expires_at_ms,
        })
    }

    /// The keys of `rate_limit` as JSON.
    pub fn limit_text(&self) -> String {
        // Equal limits have equal texts: the keys are sorted.
        serde_json::to_string(&self.rate_limit).unwrap_or_default()
    }

    /// The key as text; empty for the whole rule.
    pub fn key_text(&self) -> String {
        pairs_text(&self.key)
    }

    /// The override as the subject of an audit log entry.
    pub(crate) fn subject(&self) -> String {
        let key = self.key_text();
        let separator = if key.is_empty() { "" } else { " " };
        format!("override {} {}{separator}{key}: {}", self.domain, self.rule, self.limit_text())
    }

    /// The entry with bounded texts, if it may be stored.
    pub(crate) fn bounded(mut self) -> ControlResult<Self> {
        check_size("a domain", self.domain.len(), MAX_NAME_BYTES)?;
        check_size("a rule", self.rule.len(), MAX_NAME_BYTES)?;
        self.reason = truncated(self.reason);
        self.author = truncated(self.author);
        Ok(self.identified())
    }
}
