//! `/rlconfig`: the active rules as text, in the format of envoyproxy/ratelimit.

use std::sync::Arc;

use tollgate_core::algorithm::{Algorithm, Charging, Policy};
use tollgate_core::{clock::now_ms, quota::Quota};
use tollgate_limiter::ActiveRules;
use tollgate_rules::{Domain, Limit, Overridden, Rule, Rules, limit_options, shedding_text};
use tollgate_serve::http::cached_page::CachedPage;

/// Page of the active rules; empty without rules.
pub(super) fn page(rules: Arc<ActiveRules>) -> CachedPage {
    let page = move || rules.load_overridden().map(|(rules, overridden)| list(&rules, &overridden));
    CachedPage::new(move || page().unwrap_or_default())
}

/// One line for each limit, sorted. Options that envoyproxy/ratelimit lacks are at the end of the line.
fn list(rules: &Rules, overridden: &Overridden) -> String {
    let lines = rules.rules_of_domains().map(|(domain, rule)| overridden_line(domain, rule, overridden));
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines.concat()
}

/// The line of a rule as it decides: with the limit of its override, if one is active.
fn overridden_line(domain: &Domain, rule: &Rule, overridden: &Overridden) -> String {
    let now_ms = now_ms();
    let whole = overridden.whole(rule, now_ms);
    let rule_that_decides = whole.map_or(rule, |(_, decider)| decider);
    let mut parts = vec![head(domain, rule_that_decides)];
    parts.extend(options(domain, rule_that_decides));
    parts.extend(whole.map(|(stated, _)| format!("override: {}", stated.id)));
    let keys = overridden.keys_of(rule);
    parts.extend((keys > 0).then(|| format!("key_overrides: {keys}")));
    parts.join(", ") + "\n"
}

/// The part of the line that envoyproxy/ratelimit prints.
fn head(domain: &Domain, rule: &Rule) -> String {
    let (limit, unit) = match &rule.limit {
        Limit::Unlimited => (0, "UNKNOWN".to_owned()),
        Limit::Quota { quota, policy } if policy.algorithm().holds_permits() => {
            (quota.limit, "UNKNOWN".to_owned())
        }
        Limit::Quota { quota, .. } => (quota.limit, quota.window.unit().name().to_ascii_uppercase()),
    };
    format!(
        "{}.{}: unit={unit} requests_per_unit={limit}, shadow_mode: {}, quota_mode: {}",
        domain.name,
        rule.path(),
        rule.shadow_mode,
        rule.quota_mode,
    )
}

/// The options that envoyproxy/ratelimit lacks, as far as they are not the default.
fn options(domain: &Domain, rule: &Rule) -> Vec<String> {
    let mut options: Vec<String> = rule.shedding.iter().map(|shedding| shedding_text(shedding)).collect();
    if let Limit::Quota { quota, policy } = &rule.limit {
        options.extend(of_window(*quota, policy));
        options.extend(limit_options(domain, rule).iter().map(|(key, value)| format!("{key}: {value}")));
        options.extend(of_domain(domain));
    }
    options
}

/// Algorithm, and length and calendar of windows.
fn of_window(quota: Quota, policy: &Policy) -> impl Iterator<Item = String> {
    let algorithm = Some(policy.algorithm()).filter(|algorithm| *algorithm != Algorithm::default());
    let has_window = !policy.algorithm().holds_permits() && quota.window.multiplier().get() != 1;
    let calendar = quota.window.calendar();
    let anchor = calendar.and_then(|calendar| calendar.anchor());
    [
        algorithm.map(|algorithm| format!("algorithm: {}", algorithm.name())),
        has_window.then(|| format!("window: {}s", quota.window.seconds())),
        calendar.map(|calendar| format!("timezone: {}", calendar.time_zone())),
        anchor.map(|anchor| format!("anchor: {anchor}")),
    ]
    .into_iter()
    .flatten()
}

/// The way in which the limits of the domain are charged.
fn of_domain(domain: &Domain) -> impl Iterator<Item = String> {
    let is_atomic = !domain.counts_denied && domain.charging == Charging::AllOrNone;
    [
        domain.counts_denied.then(|| "stop_when_denied: true".to_owned()),
        is_atomic.then(|| "atomic: true".to_owned()),
        (!domain.hash_tag.is_empty()).then(|| format!("hash_tag: [{}]", domain.hash_tag.join(", "))),
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_fixtures::rules as rules_of;

    #[tokio::test]
    async fn every_limit_has_a_line_and_the_lines_are_sorted() {
        let yaml = "
domain: web
descriptors:
- key: user
  shadow_mode: true
  rate_limit: {unit: minute, requests_per_unit: 20, sync: leased, retry_after_spread: 10s}
- {key: free, rate_limit: {unlimited: true}}
- key: path
  rate_limit: {algorithm: token_bucket, window: 30s, requests_per_unit: 5, sync: leased}
---
domain: api
atomic: true
hash_tag: [user, slot]
descriptors:
- {key: free, rate_limit: {unlimited: true}}
- {key: slot, rate_limit: {algorithm: concurrency, requests_per_unit: 5}}
- key: user
  rate_limit: {algorithm: sliding_window_log, unit: minute, unit_multiplier: 2, requests_per_unit: 5, min_interval: 50ms}
";
        let rules = Arc::new(ActiveRules::default());
        let page = page(Arc::clone(&rules));
        assert_eq!(page.get().await.expect("a page"), "");
        rules.replace(Arc::new(rules_of(yaml)));
        let expected = "\
api.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
api.slot: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: concurrency, lease_ttl: 60s, atomic: true, hash_tag: [user, slot]
api.user: unit=MINUTE requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: sliding_window_log, window: 120s, min_interval: 50ms, atomic: true, hash_tag: [user, slot]
web.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
web.path: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket, window: 30s, sync: leased
web.user: unit=MINUTE requests_per_unit=20, shadow_mode: true, quota_mode: false, sync: leased, retry_after_spread: 10s
";
        assert_eq!(page.get().await.expect("a page"), expected);
    }

    #[test]
    fn a_burst_is_listed_where_it_differs_from_the_limit() {
        let bucket = "algorithm: token_bucket, unit: second, requests_per_unit: 5, burst:";
        let limit = |key, burst| format!("- {{key: {key}, rate_limit: {{{bucket} {burst}}}}}\n");
        let yaml = format!("domain: web\ndescriptors:\n{}{}", limit("path", 20), limit("user", 5));
        let rules = rules_of(&yaml);
        let expected = "\
web.path: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket, burst: 20
web.user: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket
";
        assert_eq!(list(&rules, &Overridden::default()), expected);
    }
}
