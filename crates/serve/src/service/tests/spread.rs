//! Delays that spread the times at which denied clients return.

use std::num::NonZeroU8;

use proptest::prelude::*;
use tollgate_core::algorithm::{Algorithm, Verdict};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::{ban::Ban, quota::Quota};
use tollgate_fixtures::rules;
use tollgate_limiter::decision::{Limited, ListDecision, Status};
use tollgate_rules::{Limit, Rule, Rules};

use super::*;

/// Delays of `client=ann` and three others.
const DELAYS: [u64; 4] = [9, 3, 2, 10];

const RULES: &str = "
domain: d
defaults: {unit: minute, requests_per_unit: 5}
descriptors:
- key: client
  rate_limit: {retry_after_spread: 10s}
  descriptors:
  - {key: path, value: '/a*', share_threshold: true, rate_limit: {retry_after_spread: 10s}}
- {key: all, value: x, rate_limit: {retry_after_spread: 10s}}
- {key: never, rate_limit: {retry_after_spread: 0s}}
- {key: unstated, rate_limit: {}}
";

fn descriptor<'e>(entries: &[(&'e str, &'e str)]) -> Descriptor<'e> {
    let entries = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
    Descriptor { entries, limit: None, hits: Hits::ONE }
}

/// Denial of the rule of a descriptor until `wait` has passed.
fn denied<'r>(rules: &'r Rules, descriptor: &Descriptor<'_>, wait: Duration) -> Limited<'r> {
    let rule = rules.domain("d").expect("is there").root.rule(&descriptor.entries).expect("matches");
    let Limit::Quota { quota, policy } = &rule.limit else { panic!("it is unlimited") };
    limited(Some(rule), *quota, policy.algorithm(), wait)
}

fn limited(rule: Option<&Rule>, quota: Quota, algorithm: Algorithm, wait: Duration) -> Limited<'_> {
    let verdict = Verdict {
        admitted: false,
        reset_after: wait,
        retry_after: wait,
        used: 5,
        over: 1,
        ..Verdict::empty(Timestamp::from_micros(0))
    };
    Limited {
        rule,
        quota,
        algorithm,
        verdict,
        is_quota: false,
        is_shadow: false,
        is_degraded: false,
        several: Box::default(),
    }
}

/// Delay of the request's first descriptor, in seconds.
fn delay(descriptors: &[Descriptor<'_>]) -> u64 {
    let rules = rules(RULES);
    let limited = denied(&rules, &descriptors[0], Duration::from_secs(1));
    headers::delay("d", descriptors, 0, &limited).as_secs()
}

#[test]
fn the_delay_depends_on_the_counter_alone_and_is_the_same_in_every_version() {
    let delays = ["ann", "bob", "cem", "dan"].map(|client| delay(&[descriptor(&[("client", client)])]));
    assert_eq!(delays, DELAYS);
    let path = |client, path| [("client", client), ("path", path)];
    let [a, b] = ["/a1", "/a2"].map(|name| delay(&[descriptor(&path("ann", name))]));
    assert_eq!(a, b, "their values share a counter");
    let other = [descriptor(&[("client", "ann")]), descriptor(&[("all", "x")])];
    assert_eq!(delay(&other), DELAYS[0], "the other descriptors have no effect");
}

#[test]
fn clients_that_share_a_counter_are_spread_by_their_other_descriptors() {
    let of = |client| delay(&[descriptor(&[("all", "x")]), descriptor(&[("client", client)])]);
    let clients: Vec<String> = (0..100).map(|client| client.to_string()).collect();
    let mut delays: Vec<u64> = clients.iter().map(|client| of(client)).collect();
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays, (0..=10).collect::<Vec<_>>());
}

#[test]
fn clients_of_one_window_return_evenly_over_the_whole_spread() {
    let rules = rules(RULES);
    let mut returning = [0_u32; 11];
    for client in 0..1_000 {
        let client = format!("client-{client}");
        let descriptors = [descriptor(&[("client", &client)])];
        let limited = denied(&rules, &descriptors[0], Duration::from_secs(30));
        returning
            [usize::try_from(headers::delay("d", &descriptors, 0, &limited).as_secs()).expect("small")] += 1;
    }
    // 91 on average, with a standard deviation of 9; without a spread, 1,000 return in one second.
    assert!(returning.iter().all(|clients| (55..=127).contains(clients)), "{returning:?}");
}

#[test]
fn a_rule_without_a_spread_has_none_and_neither_have_a_ban_and_permits() {
    let rules = rules(RULES);
    for (key, is_spread) in [("client", true), ("never", false), ("unstated", false)] {
        let descriptors = [descriptor(&[(key, "ann")])];
        let limited = denied(&rules, &descriptors[0], Duration::from_secs(1));
        assert_eq!(!headers::delay("d", &descriptors, 0, &limited).is_zero(), is_spread, "{key}");
        let ban = Ban { until: 60, level: NonZeroU8::MIN, is_new: false, is_enforced: true };
        for (is_enforced, is_exact) in [(true, true), (false, !is_spread)] {
            let ban = Some(Ban { is_enforced, ..ban });
            let banned = Limited { verdict: Verdict { ban, ..limited.verdict }, ..limited.clone() };
            assert_eq!(headers::delay("d", &descriptors, 0, &banned).is_zero(), is_exact, "{key}");
        }
        let permits = Limited { algorithm: Algorithm::Concurrency, ..limited };
        assert_eq!(
            headers::delay("d", &descriptors, 0, &permits),
            Duration::ZERO,
            "permits are released at any moment"
        );
    }
}

proptest! {
    #[test]
    fn a_denial_is_never_shorter_and_at_most_the_spread_longer(
        waits in prop::collection::vec((1_u64..200_000_000, any::<bool>(), "[a-z]{0,3}"), 1..4),
        listed in prop::option::of(0_u64..100_000),
    ) {
        let rules = rules(RULES);
        let descriptors: Vec<_> =
            waits.iter().map(|(_, _, value)| descriptor(&[("client", value)])).collect();
        let statuses = waits.iter().zip(&descriptors).map(|((wait, is_quota, _), descriptor)| {
            let limited = denied(&rules, descriptor, Duration::from_micros(*wait));
            Status::Limited(Limited { is_quota: *is_quota, ..limited })
        });
        let listed = listed.map(|wait| ListDecision::Denied { retry_after: Duration::from_millis(wait) });
        let decision =
            Decision { code: Code::OverLimit, degraded: None, listed, shed: None, statuses: statuses.collect() };
        let exact = decision.retry_after().expect("denied");
        let delayed = headers::retry_after(&decision, "d", &descriptors).expect("denied");
        prop_assert!(exact <= delayed && delayed <= exact + Duration::from_secs(10), "{exact:?} {delayed:?}");
        prop_assert_eq!(headers::retry_after(&decision, "d", &descriptors), Some(delayed));
        let passing = Decision { code: Code::Ok, ..decision };
        prop_assert_eq!(headers::retry_after(&passing, "d", &descriptors), None);
    }
}
