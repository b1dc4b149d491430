//! Verdicts of the example configurations.

use tollgate_core::descriptor;
use tollgate_limiter::cell_of;

use super::*;

/// Service with the rules of one example.
struct Example {
    service: TestService,
    domain: &'static str,
}

impl Example {
    fn new(file: &str, domain: &'static str) -> Self {
        let path = format!("{}/../../config/examples/{file}", env!("CARGO_MANIFEST_DIR"));
        let rules = fs::read_to_string(path).expect("an example");
        Self { service: TestService::with_rules(&rules, Modes::default(), options(HeaderStyle::Off)), domain }
    }

    /// Charges `hits` to each descriptor.
    async fn call(&self, hits: u32, descriptors: &[&[(&str, &str)]]) -> RateLimitResponse {
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
        let descriptors = descriptors.iter().map(|entries| RateLimitDescriptor {
            entries: entries.iter().map(entry).collect(),
            hits_addend: Some(hits.into()),
            ..Default::default()
        });
        self.service.call_about(self.domain, descriptors.collect()).await
    }

    async fn passes(&self, hits: u32, descriptors: &[&[(&str, &str)]]) -> bool {
        self.call(hits, descriptors).await.overall_code() == Ok
    }

    /// Whether exactly `limit` hits pass.
    async fn limits_to(&self, limit: u32, entries: &[(&str, &str)]) -> bool {
        self.passes(limit, &[entries]).await && !self.passes(1, &[entries]).await
    }

    /// Remaining hits of each descriptor.
    async fn remaining(&self, descriptors: &[&[(&str, &str)]]) -> Vec<u32> {
        self.call(0, descriptors).await.statuses.iter().map(|status| status.limit_remaining).collect()
    }
}

#[tokio::test]
async fn tiers_limit_each_key_by_its_tier_unless_it_has_its_own_limit_there() {
    let tiers = Example::new("tiers.yaml", "example_tiers");
    let of = |tier, key| [("tier", tier), ("api_key", key)];
    assert!(tiers.limits_to(60, &of("free", "one")).await);
    assert!(tiers.passes(60, &[&of("free", "two")]).await, "each key has its own");
    assert!(tiers.passes(61, &[&of("pro", "one")]).await, "pro passes where free is denied");
    assert!(tiers.limits_to(539, &of("pro", "one")).await);
    assert!(tiers.limits_to(500, &of("enterprise", "one")).await);
    assert!(tiers.limits_to(60, &of("platinum", "one")).await, "an unknown tier has the free limit");
    assert!(tiers.limits_to(1500, &of("pro", "acme")).await);
    assert!(tiers.limits_to(600, &of("pro", "another")).await);
    assert!(tiers.limits_to(60, &of("free", "acme")).await);
    assert!(tiers.passes(1_000_000, &[&of("enterprise", "globex")]).await);
}

#[tokio::test]
async fn lists_match_by_value_pattern_and_range() {
    let lists = Example::new("allow_and_deny_lists.yaml", "example_lists");
    for key in ["monitoring", "internal", "partner-7"] {
        assert!(lists.passes(1_000, &[&[("api_key", key)]]).await, "{key}");
    }
    for key in ["leaked", "trial-7-2023", "trial--2023"] {
        assert!(!lists.passes(1, &[&[("api_key", key)]]).await, "{key}");
    }
    assert!(lists.limits_to(10, &[("api_key", "trial-7-2024")]).await);
    assert!(lists.passes(1_000, &[&[("remote_address", "10.1.2.3")]]).await);
    for address in ["203.0.113.1", "203.0.113.80", "::ffff:203.0.113.1"] {
        assert!(!lists.passes(1, &[&[("remote_address", address)]]).await, "{address}");
    }
    assert!(
        lists.limits_to(50, &[("remote_address", "203.0.113.64")]).await,
        "a longer prefix has precedence"
    );
    assert!(lists.limits_to(50, &[("remote_address", "198.51.100.1")]).await);
}

#[tokio::test]
async fn an_allowed_key_passes_from_a_blocked_network_only_if_its_rule_replaces_the_block() {
    let lists = Example::new("allow_and_deny_lists.yaml", "example_lists");
    let from_blocked = |key| [[("api_key", key)], [("remote_address", "203.0.113.1")]];
    for (key, passes) in [("monitoring", true), ("internal", false), ("partner-7", false)] {
        let [key_entry, address] = from_blocked(key);
        assert_eq!(lists.passes(1, &[&key_entry, &address]).await, passes, "{key}");
    }
}

#[tokio::test]
async fn endpoints_are_limited_by_operation_regardless_of_identifiers_in_paths() {
    let endpoints = Example::new("per_endpoint_regex.yaml", "example_per_endpoint");
    let of = |key, method, path| [("api_key", key), ("method", method), ("path", path)];
    assert!(endpoints.passes(5, &[&of("a", "POST", "/v1/orders")]).await);
    assert!(endpoints.limits_to(5, &of("a", "POST", "/v2/orders/?dry_run=1")).await, "versions share");
    assert!(endpoints.passes(10, &[&of("b", "POST", "/v1/orders")]).await, "clients do not");
    assert!(endpoints.passes(150, &[&of("a", "GET", "/v1/orders/1")]).await);
    assert!(endpoints.limits_to(150, &of("a", "GET", "/v1/orders/2?full=1")).await);
    assert!(endpoints.passes(10, &[&of("a", "GET", "/v1/search?q=x")]).await);
    assert!(endpoints.limits_to(10, &of("a", "GET", "/v1/reports/june")).await);
    assert!(endpoints.limits_to(600, &of("a", "GET", "/v1/orders")).await, "the catch-all limit");
    assert!(endpoints.limits_to(120, &of("a", "POST", "/v1/search")).await);
}

#[tokio::test]
async fn composed_limits_are_charged_all_or_none() {
    let composed = Example::new("composed_atomic.yaml", "example_composed");
    let app = ("app", "shop");
    let (everyone, user, path) = ([app], [app, ("user", "u")], [app, ("path", "/checkout/7?x")]);
    let all: [&[_]; 3] = [&everyone, &user, &path];
    assert!(composed.passes(40, &all).await);
    assert_eq!(composed.remaining(&all).await, [960, 60, 10]);
    // The endpoint denies: neither the user nor the global limit is charged.
    assert_eq!(codes(&composed.call(11, &all).await), (OverLimit, vec![Ok, Ok, OverLimit]));
    assert_eq!(composed.remaining(&all).await, [960, 60, 10]);
    // The user denies: neither the endpoint nor the global limit is charged.
    assert!(composed.passes(55, &[&user]).await);
    assert_eq!(codes(&composed.call(6, &all).await), (OverLimit, vec![Ok, OverLimit, Ok]));
    assert_eq!(composed.remaining(&all).await, [960, 5, 10]);
    assert!(composed.passes(5, &all).await);
    assert_eq!(composed.remaining(&all).await, [955, 0, 5]);
    assert!(composed.passes(500, &[&everyone, &[app, ("path", "/")]]).await, "another endpoint has its own");
}

#[tokio::test]
async fn composed_limits_share_one_hash_tag() {
    let composed = Example::new("composed_atomic.yaml", "example_composed");
    let rules = composed.service.rules.load().expect("active");
    let domain = rules.domain(composed.domain).expect("present");
    let tags: Vec<String> = [None, Some(("user", "u")), Some(("path", "/checkout")), Some(("path", "/"))]
        .into_iter()
        .map(|last| {
            let pairs = [("app", "shop")].into_iter().chain(last);
            let entries: Vec<_> = pairs.map(|(key, value)| descriptor::Entry { key, value }).collect();
            let rule = domain.root.rule(&entries).expect("a rule");
            String::from_utf8_lossy(cell_of(domain, rule, &entries).tag()).into_owned()
        })
        .collect();
    assert_eq!(tags, vec!["{example_composed|app=shop}"; 4]);
}

#[tokio::test]
async fn logins_are_few_per_account_and_address() {
    let login = Example::new("login.yaml", "example_login");
    assert!(login.limits_to(5, &[("account", "ann")]).await);
    assert!(login.limits_to(30, &[("remote_address", "192.0.2.1")]).await);
    assert!(login.limits_to(1, &[("phone", "+1")]).await, "not two messages within 30 seconds");
}

#[tokio::test]
async fn a_payment_denied_for_its_card_charges_no_merchant() {
    let payments = Example::new("payments.yaml", "example_payments");
    let (merchant, card) = ([("merchant", "m")], [("merchant", "m"), ("card", "c")]);
    assert!(payments.passes(3, &[&merchant, &card]).await);
    assert_eq!(codes(&payments.call(1, &[&merchant, &card]).await), (OverLimit, vec![Ok, OverLimit]));
    assert_eq!(payments.remaining(&[&merchant, &card]).await, [37, 0]);
}

#[tokio::test]
async fn public_reads_have_bursts_per_address_and_a_total() {
    let reads = Example::new("public_reads.yaml", "example_public_reads");
    assert!(reads.limits_to(100, &[("remote_address", "192.0.2.1")]).await);
    assert!(reads.passes(100, &[&[("remote_address", "192.0.2.2")]]).await, "each address has its own");
    assert!(reads.limits_to(10_000, &[("generic_key", "origin")]).await);
}

#[tokio::test]
async fn internal_callers_are_limited_by_service() {
    let internal = Example::new("internal_calls.yaml", "example_internal_calls");
    assert!(internal.limits_to(1_000, &[("service", "cart")]).await);
    assert!(internal.limits_to(50, &[("service", "batch")]).await);
}

#[tokio::test]
async fn the_rate_of_the_free_tier_does_not_use_up_its_quota() {
    let free = Example::new("free_tier.yaml", "example_free_tier");
    let (rate, quota) = ([("api_key", "k")], [("api_key", "k"), ("quota", "daily")]);
    assert!(free.passes(20, &[&rate, &quota]).await);
    assert_eq!(codes(&free.call(1, &[&rate, &quota]).await), (OverLimit, vec![OverLimit, Ok]));
    assert_eq!(free.remaining(&[&rate, &quota]).await, [0, 980]);
    assert!(free.limits_to(980, &quota).await);
}

#[tokio::test]
async fn uploads_and_queries_are_limited_while_they_run() {
    // A response that is dropped here releases its permits, so each request stands alone.
    let uploads = Example::new("uploads.yaml", "example_uploads");
    let user = [("user", "ann")];
    assert!(uploads.passes(3, &[&user]).await && !uploads.passes(4, &[&user]).await);
    let queries = Example::new("expensive_queries.yaml", "example_expensive_queries");
    let tenant = [("tenant", "t")];
    assert!(queries.passes(4, &[&tenant]).await && !queries.passes(5, &[&tenant]).await);
    assert!(queries.limits_to(1_000, &[("tenant", "t"), ("budget", "cost")]).await);
}

#[tokio::test]
async fn a_budget_counts_money_beyond_32_bits_exactly() {
    let budget = Example::new("budget.yaml", "example_budget");
    let team = [("team", "search")];
    for _ in 0..12 {
        assert!(budget.passes(4_000_000_000, &[&team]).await);
    }
    assert!(budget.passes(1_999_999_999, &[&team]).await);
    assert_eq!(budget.remaining(&[&team]).await, [1]);
    assert!(budget.passes(1, &[&team]).await && !budget.passes(1, &[&team]).await);
    // The protocol has 32 bits for what remains.
    let other = budget.call(1, &[&[("team", "other")]]).await;
    let status = &other.statuses[0];
    assert_eq!(status.limit_remaining, u32::MAX);
    assert_eq!(status.current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(u32::MAX));
}

#[tokio::test]
async fn models_share_a_budget_each_by_its_weight() {
    let budget = Example::new("budget.yaml", "example_budget");
    let of = |model| [("plan", "pro"), ("model", model)];
    for (model, hits, remaining) in
        [("large", 1_000_000, 70_000_000), ("medium", 4_000_000, 50_000_000), ("small", 50_000_000, 0)]
    {
        assert!(budget.passes(hits, &[&of(model)]).await);
        assert_eq!(budget.remaining(&[&of("any")]).await, [remaining]);
    }
    assert!(!budget.passes(1, &[&of("small")]).await);
}
