//! Identity of the limits of rules, so that a changed limit is noticed.

use std::{collections::BTreeMap, sync::Arc};

use tollgate_anomaly::SeriesKey;
use tollgate_limiter::ActiveRules;
use tollgate_rules::{Limit, Rule, Rules};

/// Identifiers of the limits of the active rules.
#[derive(Debug, Default)]
pub(super) struct Limits {
    rules: Option<Arc<Rules>>,
    by_series: BTreeMap<SeriesKey, u32>,
}

impl Limits {
    /// The identifiers, computed again only for other rules.
    pub(super) fn of(&mut self, active: &ActiveRules) -> impl Iterator<Item = (&SeriesKey, u32)> {
        let rules = active.load();
        let is_same = match (&self.rules, &rules) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        if let Some(rules) = rules.filter(|_| !is_same) {
            self.by_series = identifiers(&rules);
            self.rules = Some(rules);
        }
        self.by_series.iter().map(|(key, limit)| (key, *limit))
    }

    /// Whether a series is of a rule or a domain of the rules that [`of`](Self::of) was last called with.
    pub(super) fn has(&self, key: &SeriesKey) -> bool {
        match key.rule.is_empty() {
            true => self.by_series.range(key..).next().is_some_and(|(first, _)| first.domain == key.domain),
            false => self.by_series.contains_key(key),
        }
    }
}

fn identifiers(rules: &Rules) -> BTreeMap<SeriesKey, u32> {
    let of_domain = |domain: &tollgate_rules::Domain| {
        let name = domain.name.clone();
        let all = domain
            .root
            .rules()
            .map(|rule| (SeriesKey { domain: name.clone(), rule: rule.path().into() }, identifier(rule)));
        all.collect::<Vec<_>>()
    };
    rules.domains().flat_map(of_domain).collect()
}

/// Identifies the limit of a rule by what decides the share of denied hits; never zero.
fn identifier(rule: &Rule) -> u32 {
    let text = match &rule.limit {
        Limit::Unlimited => "unlimited".to_owned(),
        Limit::Quota { quota, policy } => format!("{quota:?} {}", policy.algorithm().name()),
    };
    // FNV-1a, which is the same in every release.
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}
