//! `/rlconfig`: the active rules as text, in the format of envoyproxy/ratelimit.

use std::{fmt::Write as _, sync::Arc};

use tollgate_core::{
    SyncMode,
    algorithm::{Algorithm, Charging, Policy},
    ban::BanPolicy,
    clock::Clock,
    quota::Quota,
};
use tollgate_limiter::{
    ActiveRules,
    explain::{candidate_text, limit_text, weights_text},
};
use tollgate_rules::{Domain, Limit, OnShareExhausted, Overridden, Rollout, Rule, Rules, Scope};

use crate::http::cached_page::CachedPage;

/// Page of the active rules; empty without rules.
pub(super) fn page(rules: Arc<ActiveRules>) -> CachedPage {
    let page = move || rules.load_overridden().map(|(rules, overridden)| list(&rules, &overridden));
    CachedPage::new(move || page().unwrap_or_default())
}

/// One line for each limit, sorted. Options that envoyproxy/ratelimit lacks are at the end of the line.
fn list(rules: &Rules, overridden: &Overridden) -> String {
    let domains = rules.domains();
    let lines = domains
        .flat_map(|domain| domain.root.rules().map(move |rule| overridden_line(domain, rule, overridden)));
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines.concat()
}

/// The line of a rule as it decides: with the limit of its override, if one is active.
fn overridden_line(domain: &Domain, rule: &Rule, overridden: &Overridden) -> String {
    let now_ms = Clock::System.now().as_micros() / 1_000;
    let whole = overridden.whole(rule, now_ms);
    let mut line = line(domain, whole.map_or(rule, |(_, decider)| decider));
    let keys = overridden.keys_of(rule);
    if whole.is_none() && keys == 0 {
        return line;
    }
    line.truncate(line.trim_end().len());
    // Writing to a string cannot fail.
    if let Some((stated, _)) = whole {
        let _ = write!(line, ", override: {}", stated.id);
    }
    if keys > 0 {
        let _ = write!(line, ", key_overrides: {keys}");
    }
    line.push('\n');
    line
}

fn line(domain: &Domain, rule: &Rule) -> String {
    let mut line = head(domain, rule);
    if rule.shedding.is_some() {
        // Writing to a string cannot fail.
        let _ = write!(line, ", {}", limit_text(domain, rule));
    }
    if let Limit::Quota { quota, policy } = &rule.limit {
        add_algorithm(&mut line, *quota, policy);
        add_window(&mut line, *quota, policy);
        add_reservations(&mut line, policy);
        add_overdraft(&mut line, rule, policy);
        rule.ban.iter().for_each(|ban| add_ban(&mut line, ban));
        add_weights(&mut line, rule);
        add_stores(&mut line, domain, rule);
        add_rollout(&mut line, &rule.rollout);
        add_charging(&mut line, domain);
    }
    line.push('\n');
    line
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

/// Algorithm, and capacity of a bucket.
fn add_algorithm(line: &mut String, quota: Quota, policy: &Policy) {
    // Writing to a string cannot fail.
    if policy.algorithm() != Algorithm::default() {
        let _ = write!(line, ", algorithm: {}", policy.algorithm().name());
    }
    if let Some(burst) = policy.burst().filter(|burst| *burst != quota.limit) {
        let _ = write!(line, ", burst: {burst}");
    }
}

/// Times: time to live of permits, length and calendar of windows, and the interval between hits.
fn add_window(line: &mut String, quota: Quota, policy: &Policy) {
    // Writing to a string cannot fail.
    match policy.lease_ttl() {
        Some(lease_ttl) => {
            let _ = write!(line, ", lease_ttl: {lease_ttl:?}");
        }
        None if quota.window.multiplier().get() != 1 => {
            let _ = write!(line, ", window: {}s", quota.window.seconds());
        }
        None => {}
    }
    if let Some(calendar) = quota.window.calendar() {
        let _ = write!(line, ", timezone: {}", calendar.time_zone());
        if let Some(anchor) = calendar.anchor() {
            let _ = write!(line, ", anchor: {anchor}");
        }
    }
    if !policy.min_interval().is_zero() {
        let _ = write!(line, ", min_interval: {:?}", policy.min_interval());
    }
}

fn add_reservations(line: &mut String, policy: &Policy) {
    let Some(reserve) = policy.reserve_terms() else { return };
    // Writing to a string cannot fail.
    let _ = write!(line, ", reserve: {{ttl: {}s, unsettled: {}", reserve.ttl, reserve.unsettled.name());
    let _ = write!(line, ", add: {}", reserve.add);
    if let Some(percent) = reserve.cap_percent() {
        let _ = write!(line, ", cap: {percent}%");
    }
    line.push('}');
}

/// Charges beyond the limit, and what later windows carry.
fn add_overdraft(line: &mut String, rule: &Rule, policy: &Policy) {
    // Writing to a string cannot fail.
    if rule.overdraft {
        line.push_str(", overdraft: true");
        let is_carried = policy.algorithm() == Algorithm::FixedWindow && policy.max_debt().is_some();
        if is_carried && policy.unused_percent() == 0 {
            line.push_str(", carry: true");
        }
        if let Some(max_debt) = policy.max_debt() {
            let _ = write!(line, ", max_debt: {max_debt}");
        }
    }
    if policy.unused_percent() > 0 {
        let (debt, unused) = (policy.max_debt().is_some(), policy.unused_percent());
        let _ = write!(line, ", carry: {{debt: {debt}, unused: {unused}%}}");
    }
}

/// Weights of hits, and the thresholds of which operators are notified.
fn add_weights(line: &mut String, rule: &Rule) {
    // Writing to a string cannot fail.
    if let Some(weights) = &rule.weights {
        let _ = write!(line, ", weights: {{{}}}", weights_text(weights));
    }
    if let Some(notify) = &rule.notify {
        let _ = write!(line, ", notify: [{notify}]");
    }
}

/// Use of the store, by one region or several, and decisions without it.
fn add_stores(line: &mut String, domain: &Domain, rule: &Rule) {
    // Writing to a string cannot fail.
    let sync = domain.sync_of(rule);
    if sync != SyncMode::default() {
        let _ = write!(line, ", sync: {}", sync.name());
    }
    if let Some(policy) = rule.on_store_error {
        let _ = write!(line, ", on_store_error: {}", policy.name());
    }
    if rule.scope != Scope::Regional {
        let _ = write!(line, ", scope: {}", rule.scope.name());
    }
    if rule.on_share_exhausted != OnShareExhausted::Deny {
        let _ = write!(line, ", on_share_exhausted: {}", rule.on_share_exhausted.name());
    }
    if let Some(limit) = rule.degraded_limit {
        let _ = write!(line, ", degraded_limit: {limit}");
    }
    if let Some(spread) = rule.retry_after_spread {
        let _ = write!(line, ", retry_after_spread: {}s", spread.as_secs());
    }
}

/// Gradual changes of the limit.
fn add_rollout(line: &mut String, rollout: &Rollout) {
    // Writing to a string cannot fail.
    if let Some(share) = rollout.enforced {
        let _ = write!(line, ", enforce_percent: {share}");
    }
    if let Some(candidate) = &rollout.candidate {
        let _ = write!(line, ", candidate: {{{}}}", candidate_text(candidate));
    }
}

/// Keys of the domain on how its limits are charged.
fn add_charging(line: &mut String, domain: &Domain) {
    if domain.counts_denied {
        line.push_str(", stop_when_denied: true");
    } else if domain.charging == Charging::AllOrNone {
        line.push_str(", atomic: true");
    }
    if !domain.hash_tag.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(line, ", hash_tag: [{}]", domain.hash_tag.join(", "));
    }
}

fn add_ban(line: &mut String, ban: &BanPolicy) {
    let (threshold, interval, mode) = (ban.threshold(), ban.interval(), ban.mode().name());
    let (duration, max_duration, forgive) = (ban.duration(), ban.max_duration(), ban.forgive());
    let list_after = ban.list_after().map(|count| format!(", list_after: {count}")).unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = write!(
        line,
        ", ban: {{threshold: {threshold}, interval: {interval}s, duration: {duration}s, max_duration: \
         {max_duration}s, forgive: {forgive}s{list_after}, mode: {mode}}}"
    );
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use tollgate_core::{
        algorithm::Parameters,
        quota::{Unit, Window},
    };
    use tollgate_rules::{Derived, DomainIndex, Level, Matcher, Node, Segment, Value};

    fn limit(algorithm: Algorithm, limit: u32, unit: Unit, multiplier: u32) -> Limit {
        let quota = Quota { limit: limit.into(), window: Window::new(unit, multiplier).expect("in range") };
        let parameters = Parameters { min_interval: Duration::from_millis(50), ..Parameters::default() };
        Limit::Quota { quota, policy: Policy::new(algorithm, quota, &parameters).expect("fills in time") }
    }

    fn bucket(limit: u32, burst: u32) -> Limit {
        let quota = Quota { limit: limit.into(), window: Window::new(Unit::Second, 1).expect("in range") };
        let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
        let policy = Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("fills in time");
        Limit::Quota { quota, policy }
    }

    fn insert(level: &mut Level, key: &str, limit: Limit, sync: SyncMode, shadow_mode: bool) {
        let segment =
            Segment { key: key.into(), stated: key.into(), value: Value::Open, value_to_metric: false };
        let rule = Rule {
            limit,
            shedding: None,
            sync,
            overdraft: false,
            ban: None,
            notify: None,
            weights: None,
            scope: Scope::Regional,
            on_share_exhausted: OnShareExhausted::Deny,
            on_store_error: None,
            degraded_limit: None,
            retry_after_spread: shadow_mode.then_some(Duration::from_secs(10)),
            name: "".into(),
            replaces: Box::default(),
            shadow_mode,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
            segments: [segment].into(),
            origin: ("file.yaml".into(), 1),
            rollout: Rollout::default(),
            stated: None,
            part: None,
            derived: Derived::default(),
        };
        let node = Node { rule: Some(Arc::new(rule)), ..Node::default() };
        level.insert(&Matcher::Stated { key, value: "" }, node).expect("distinct");
    }

    fn domain(name: &str, root: Level, charging: Charging, hash_tag: &[&str]) -> Domain {
        Domain {
            name: name.into(),
            root,
            default_algorithm: Algorithm::default(),
            default_on_store_error: None,
            charging,
            counts_denied: false,
            hash_tag: hash_tag.iter().map(|key| (*key).into()).collect(),
            sheds: false,
            address_keys: std::collections::BTreeSet::default(),
            index: DomainIndex::default(),
        }
    }

    #[tokio::test]
    async fn every_limit_has_a_line_and_the_lines_are_sorted() {
        let mut root = Level::default();
        insert(&mut root, "user", limit(Algorithm::FixedWindow, 20, Unit::Minute, 1), SyncMode::Leased, true);
        insert(&mut root, "free", Limit::Unlimited, SyncMode::Strict, false);
        insert(
            &mut root,
            "path",
            limit(Algorithm::TokenBucket, 5, Unit::Second, 30),
            SyncMode::Leased,
            false,
        );
        let web = domain("web", root, Charging::default(), &[]);
        let mut root = Level::default();
        insert(&mut root, "free", Limit::Unlimited, SyncMode::Strict, false);
        insert(&mut root, "slot", limit(Algorithm::Concurrency, 5, Unit::Minute, 2), SyncMode::Strict, false);
        insert(
            &mut root,
            "user",
            limit(Algorithm::SlidingWindowLog, 5, Unit::Minute, 2),
            SyncMode::Strict,
            false,
        );
        let api = domain("api", root, Charging::AllOrNone, &["user", "slot"]);
        let rules = Arc::new(ActiveRules::default());
        let page = page(Arc::clone(&rules));
        assert_eq!(page.get().await.expect("a page"), "");
        rules.replace(Arc::new(Rules::new([web, api])));
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
        let mut root = Level::default();
        insert(&mut root, "path", bucket(5, 20), SyncMode::Strict, false);
        insert(&mut root, "user", bucket(5, 5), SyncMode::Strict, false);
        let rules = Rules::new([domain("web", root, Charging::default(), &[])]);
        let expected = "\
web.path: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket, burst: 20
web.user: unit=SECOND requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket
";
        assert_eq!(list(&rules, &Overridden::default()), expected);
    }
}
