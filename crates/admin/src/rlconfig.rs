//! `/rlconfig`: the active rules as text, in the format of envoyproxy/ratelimit.

use std::{sync::Arc, time::Duration};

use tollgate_core::algorithm::{Algorithm, Charging, Policy};
use tollgate_core::{SyncMode, ban::BanPolicy, clock::now_ms, quota::Quota};
use tollgate_limiter::ActiveRules;
use tollgate_limiter::explain::{candidate_text, limit_text, weights_text};
use tollgate_rules::{Domain, Limit, OnShareExhausted, Overridden, Rule, Rules, Scope};
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
    parts.extend(some(overridden.keys_of(rule), 0).map(|keys| format!("key_overrides: {keys}")));
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
    let mut options: Vec<String> = rule.shedding.iter().map(|_| limit_text(domain, rule)).collect();
    if let Limit::Quota { quota, policy } = &rule.limit {
        options.extend(of_window(*quota, policy));
        options.extend(of_charges(rule, policy));
        options.extend(of_rule(domain, rule));
    }
    options
}

/// The value, unless it is the default.
fn some<T: PartialEq + Copy>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

/// Algorithm, capacity of a bucket, and times: time to live of permits, length and calendar of windows, and the interval
/// between hits.
fn of_window(quota: Quota, policy: &Policy) -> impl Iterator<Item = String> {
    let algorithm = some(policy.algorithm(), Algorithm::default());
    let burst = policy.burst().filter(|burst| *burst != quota.limit);
    let lease_ttl = policy.lease_ttl();
    let has_window = lease_ttl.is_none() && quota.window.multiplier().get() != 1;
    let calendar = quota.window.calendar();
    let anchor = calendar.and_then(|calendar| calendar.anchor());
    let min_interval = some(policy.min_interval(), Duration::ZERO);
    [
        algorithm.map(|algorithm| format!("algorithm: {}", algorithm.name())),
        burst.map(|burst| format!("burst: {burst}")),
        lease_ttl.map(|lease_ttl| format!("lease_ttl: {lease_ttl:?}")),
        has_window.then(|| format!("window: {}s", quota.window.seconds())),
        calendar.map(|calendar| format!("timezone: {}", calendar.time_zone())),
        anchor.map(|anchor| format!("anchor: {anchor}")),
        min_interval.map(|interval| format!("min_interval: {interval:?}")),
    ]
    .into_iter()
    .flatten()
}

/// Reservations, charges beyond the limit, what later windows carry, bans, weights, and thresholds.
fn of_charges(rule: &Rule, policy: &Policy) -> impl Iterator<Item = String> {
    let reserve = policy.reserve_terms().map(|reserve| {
        let cap = reserve.cap_percent().map(|percent| format!(", cap: {percent}%")).unwrap_or_default();
        let (ttl, unsettled, add) = (reserve.ttl, reserve.unsettled.name(), reserve.add);
        format!("reserve: {{ttl: {ttl}s, unsettled: {unsettled}, add: {add}{cap}}}")
    });
    let (max_debt, unused) = (policy.max_debt(), policy.unused_percent());
    let is_carried = policy.algorithm() == Algorithm::FixedWindow && max_debt.is_some() && unused == 0;
    [
        reserve,
        rule.overdraft.then(|| "overdraft: true".to_owned()),
        (rule.overdraft && is_carried).then(|| "carry: true".to_owned()),
        max_debt.filter(|_| rule.overdraft).map(|max_debt| format!("max_debt: {max_debt}")),
        (unused > 0).then(|| format!("carry: {{debt: {}, unused: {unused}%}}", max_debt.is_some())),
        rule.ban.as_ref().map(ban_text),
        rule.weights.as_ref().map(|weights| format!("weights: {{{}}}", weights_text(weights))),
        rule.notify.as_ref().map(|notify| format!("notify: [{notify}]")),
    ]
    .into_iter()
    .flatten()
}

/// Use of the store, by one region or several, decisions without it, gradual changes of the limit, and how the limits of the
/// domain are charged.
fn of_rule(domain: &Domain, rule: &Rule) -> impl Iterator<Item = String> {
    let sync = some(domain.sync_of(rule), SyncMode::default());
    let scope = some(rule.scope, Scope::Regional);
    let on_share_exhausted = some(rule.on_share_exhausted, OnShareExhausted::Deny);
    let candidate = rule.rollout.candidate.as_ref();
    let is_atomic = !domain.counts_denied && domain.charging == Charging::AllOrNone;
    let hash_tag = (!domain.hash_tag.is_empty()).then(|| domain.hash_tag.join(", "));
    [
        sync.map(|sync| format!("sync: {}", sync.name())),
        rule.on_store_error.map(|policy| format!("on_store_error: {}", policy.name())),
        scope.map(|scope| format!("scope: {}", scope.name())),
        on_share_exhausted.map(|policy| format!("on_share_exhausted: {}", policy.name())),
        rule.degraded_limit.map(|limit| format!("degraded_limit: {limit}")),
        rule.retry_after_spread.map(|spread| format!("retry_after_spread: {}s", spread.as_secs())),
        rule.rollout.enforced.map(|share| format!("enforce_percent: {share}")),
        candidate.map(|candidate| format!("candidate: {{{}}}", candidate_text(candidate))),
        domain.counts_denied.then(|| "stop_when_denied: true".to_owned()),
        is_atomic.then(|| "atomic: true".to_owned()),
        hash_tag.map(|keys| format!("hash_tag: [{keys}]")),
    ]
    .into_iter()
    .flatten()
}

fn ban_text(ban: &BanPolicy) -> String {
    let (threshold, interval, mode) = (ban.threshold, ban.interval, ban.mode.name());
    let (duration, max_duration, forgive) = (ban.duration, ban.max_duration, ban.forgive);
    let list_after = ban.list_after.map(|count| format!(", list_after: {count}")).unwrap_or_default();
    format!(
        "ban: {{threshold: {threshold}, interval: {interval}s, duration: {duration}s, max_duration: \
         {max_duration}s, forgive: {forgive}s{list_after}, mode: {mode}}}"
    )
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
