//! What rules have counted, for those who look at one instance.

use std::collections::HashMap;

use super::{series, striped};

/// What a rule has counted since the process started, in hits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTotal {
    /// Hits that were decided.
    pub hits: u64,
    /// Hits that the rule let pass.
    pub within: u64,
    /// Hits within the limit and near it.
    pub near: u64,
    /// Hits over the limit.
    pub over: u64,
    /// Hits over the limit that only shadow mode let pass.
    pub shadow: u64,
    /// Hits that the store did not decide.
    pub degraded: u64,
}

/// What every rule has counted, as of one moment.
#[derive(Clone, Debug, Default)]
pub struct RuleTotals(HashMap<Box<str>, HashMap<Box<str>, RuleTotal>>);

impl RuleTotals {
    /// What the rule with that path ([`Rule::path`](crate::rules::Rule::path)) has counted, under all the values that
    /// metrics name for it; nothing for one of those beyond the most that are counted each for itself.
    pub fn of(&self, domain: &str, path: &str) -> RuleTotal {
        self.0.get(domain).and_then(|rules| rules.get(path)).copied().unwrap_or_default()
    }
}

impl RuleTotal {
    fn plus(self, counted: [u64; series::KINDS]) -> Self {
        let [hits, within, near, over, shadow, degraded] = counted;
        Self {
            hits: self.hits.saturating_add(hits),
            within: self.within.saturating_add(within),
            near: self.near.saturating_add(near),
            over: self.over.saturating_add(over),
            shadow: self.shadow.saturating_add(shadow),
            degraded: self.degraded.saturating_add(degraded),
        }
    }
}

/// What every rule has counted since the process started. Looks at thousands of series: once for a whole table.
pub fn rule_totals() -> RuleTotals {
    striped::publish();
    let mut totals = RuleTotals::default();
    for series in series::all() {
        let rules = totals.0.entry(series.domain.clone()).or_default();
        let total = rules.entry(series.rule.clone()).or_default();
        *total = total.plus(series.counted());
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_what_it_counted_itself_and_under_values_whether_published_or_not() {
        let (own, _) = series::of_rule("totals", "tenant");
        let of_values = series::of_values("totals", "tenant_acme", "tenant").expect("room");
        let (own, of_values) = (own.counters(), of_values.counters());
        own.add([1, 1, 0, 0, 0, 7]);
        of_values.add([5, 2, 1, 3, 3, 0]);
        let expected = RuleTotal { hits: 6, within: 3, near: 1, over: 3, shadow: 3, degraded: 7 };
        assert_eq!(rule_totals().of("totals", "tenant"), expected);
        // Another version of the rules has the same rule.
        drop(own);
        let again = series::of_rule("totals", "tenant").0.counters();
        again.add([1, 0, 0, 1, 0, 0]);
        assert_eq!(rule_totals().of("totals", "tenant").hits, 7);
        assert_eq!(rule_totals().of("totals", "tenant_acme"), RuleTotal::default());
        // A rule may be stated for what was a value.
        let stated = series::of_rule("totals", "tenant_acme").0.counters();
        stated.add([2, 0, 0, 0, 0, 0]);
        assert_eq!(rule_totals().of("totals", "tenant_acme").hits, 2);
        assert_eq!(rule_totals().of("totals", "tenant").hits, 7);
    }
}
