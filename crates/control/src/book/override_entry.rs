//! Overrides as operators set them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_rules::{OverrideId, OverrideKey, RuleOverride};

use crate::{Pair, RecordKey, pairs::pairs_text};

/// Maximum size of the `rate_limit` of an override as JSON, in bytes.
const MAX_LIMIT_BYTES: usize = 2_048;

/// An override of a rule, or of one of its keys, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideEntry {
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    /// The entries that the rule leaves open, in its order; empty for the whole rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptor: Vec<Pair>,
    /// Keys of `rate_limit`.
    pub rate_limit: Map<String, Value>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

impl OverrideEntry {
    /// Its key as a record, by its rule and key.
    pub(crate) fn record_key(&self) -> RecordKey {
        let pairs = self.descriptor.iter().flat_map(|pair| [&*pair.key, &*pair.value]);
        RecordKey::of("override", [&*self.domain, &self.rule].into_iter().chain(pairs))
    }

    /// Returns the override for enforcement.
    ///
    /// # Errors
    /// When it is invalid, whatever the rules are.
    pub fn compiled(&self) -> Result<RuleOverride, String> {
        self.compiled_with(OverrideId(self.record_key().0), |text| text.into())
    }

    /// The override with this identifier for enforcement, with texts by `text`.
    pub(super) fn compiled_with(
        &self,
        id: OverrideId,
        mut text: impl FnMut(&str) -> Arc<str>,
    ) -> Result<RuleOverride, String> {
        let limit = self.limit_text();
        let missing = match () {
            () if self.domain.is_empty() => "the domain is missing; expected that of a rule",
            () if self.rule.is_empty() => "the rule is missing; expected its path, as in /rlconfig",
            () if self.rate_limit.is_empty() => {
                "rate_limit is empty; expected a key of `rate_limit`, such as requests_per_unit"
            }
            () if limit.len() > MAX_LIMIT_BYTES => {
                return Err(format!("rate_limit is too large; expected at most {MAX_LIMIT_BYTES} bytes"));
            }
            () => "",
        };
        if !missing.is_empty() {
            return Err(missing.to_owned());
        }
        let key = OverrideKey::new(self.descriptor.iter().map(|pair| (&*pair.key, &*pair.value)));
        let key = key.map_err(|error| error.to_string())?;
        let (domain, rule, rate_limit) = (text(&self.domain), text(&self.rule), text(&limit));
        Ok(RuleOverride { id, domain, rule, key, rate_limit, ends_at_ms: self.expires_at_ms })
    }

    /// The keys of `rate_limit` as JSON.
    pub fn limit_text(&self) -> String {
        // Equal limits have equal texts: the keys are sorted.
        serde_json::to_string(&self.rate_limit).unwrap_or_default()
    }

    /// The key as text; empty for the whole rule.
    pub fn key_text(&self) -> String {
        pairs_text(&self.descriptor)
    }

    /// The override as the subject of an audit log entry.
    pub(crate) fn subject(&self) -> String {
        let key = self.key_text();
        let separator = if key.is_empty() { "" } else { " " };
        format!("override {} {}{separator}{key}: {}", self.domain, self.rule, self.limit_text())
    }
}
