//! Report of one instance: the keys that may matter to a rule.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};
use tollgate_rules::{AbuseTrigger, Domain, Rules};

use super::table::ObservedKey;
use crate::talkers::key::KeyEntries;

/// Version of the form of a report.
const VERSION: u32 = 1;
/// Maximum number of keys of a report.
pub(super) const MAX_KEYS: usize = 4_096;
/// Maximum size of their texts in bytes: of all reports together, and the bounds of that of one.
const MAX_FLEET_BYTES: usize = 4 << 20;
const MIN_BYTES: usize = 64 << 10;
const MAX_BYTES: usize = 512 << 10;
/// Share of a rule's rate that an instance reports, over the number of instances. With N instances, what the others leave
/// out is less than one in this many of the rate.
const REPORTED_PARTS: u64 = 10;

/// Keys that one instance observed in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbuseReport {
    pub(super) version: u32,
    /// Counted up with each report of the instance.
    pub(super) sequence: u64,
    /// Length of the interval in milliseconds.
    pub(super) interval_ms: u64,
    pub(super) keys: Vec<ReportedKey>,
}

/// Domain and text of a key, denied requests, hits, and whether a request was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedKey(pub(super) String, pub(super) String, pub(super) u64, pub(super) u64, pub(super) bool);

/// Report of a present instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// Unique id of the instance.
    pub instance: String,
    /// Its latest report.
    pub report: AbuseReport,
}

impl AbuseReport {
    /// Whether this release can read the report.
    pub const fn is_readable(&self) -> bool {
        self.version == VERSION
    }

    /// Returns the report of these keys, and the number of keys that had no room in it.
    pub(super) fn of(
        keys: impl Iterator<Item = ObservedKey>,
        rules: &Rules,
        sequence: u64,
        interval_ms: u64,
        instances: u32,
    ) -> (Self, u64) {
        let is_relevant = |key: &ObservedKey| {
            let domain = rules.domain(&key.domain);
            domain.is_some_and(|domain| may_matter(domain, key, interval_ms, instances))
        };
        let mut keys: Vec<ObservedKey> = keys.filter(is_relevant).collect();
        // An admitted request of a watched key ends its run, and so must not be left out.
        let order =
            |key: &ObservedKey| Reverse((key.is_watched && key.counts.is_admitted, key.counts.weight()));
        keys.sort_unstable_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.text.cmp(&b.text)));
        let share = usize::try_from(instances).ok().and_then(|count| MAX_FLEET_BYTES.checked_div(count));
        let max_bytes = share.unwrap_or(MAX_BYTES).clamp(MIN_BYTES, MAX_BYTES);
        let (all, mut bytes) = (keys.len(), 0_usize);
        let has_room = |key: &ObservedKey| {
            bytes = bytes.saturating_add(key.domain.len()).saturating_add(key.text.len());
            bytes <= max_bytes
        };
        let keys = keys.into_iter().take(MAX_KEYS).take_while(has_room);
        let keys: Vec<_> = keys.map(ReportedKey::from).collect();
        let left_out = u64::try_from(all.saturating_sub(keys.len())).unwrap_or(u64::MAX);
        (Self { version: VERSION, sequence, interval_ms, keys }, left_out)
    }
}

impl From<ObservedKey> for ReportedKey {
    fn from(ObservedKey { domain, text, counts, .. }: ObservedKey) -> Self {
        Self(domain.into(), text.into(), counts.denied, counts.hits, counts.is_admitted)
    }
}

/// Whether a key may matter to a rule of its domain. A descriptor that is known only in part cannot be listed.
fn may_matter(domain: &Domain, key: &ObservedKey, interval_ms: u64, instances: u32) -> bool {
    let least = |rate: u32| {
        let parts = u64::from(instances.max(1)).saturating_mul(REPORTED_PARTS).saturating_mul(1_000);
        u64::from(rate).saturating_mul(interval_ms).checked_div(parts).unwrap_or_default().max(1)
    };
    let counts = key.counts;
    let matters = |trigger| match trigger {
        AbuseTrigger::DeniedPerSecond { rate, .. } => counts.denied >= least(rate),
        AbuseTrigger::DeniedInARow { .. } => counts.denied > 0 || counts.is_admitted,
        AbuseTrigger::HitsPerSecond { rate, .. } => counts.hits >= least(rate),
    };
    domain.abuse.iter().any(|abuse| matters(abuse.trigger)) && KeyEntries::read(&key.text).whole().is_some()
}
