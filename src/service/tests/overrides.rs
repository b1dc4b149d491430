//! Lists and switches that operators set at run time.

use super::*;
use crate::{
    control::{List, ListEntry, Pair, Runtime, Switch, SwitchMode, compile_overrides},
    lease,
};

/// An entry that never ends, for every domain.
fn entry(list: List, pairs: &[(&str, &str)]) -> ListEntry {
    let pair = |(key, value): &(&str, &str)| Pair { key: (*key).into(), value: (*value).into() };
    ListEntry {
        id: "1".into(),
        list,
        domain: "*".into(),
        descriptor: pairs.iter().map(pair).collect(),
        reason: "the reason".into(),
        author: "the author".into(),
        created_at_ms: 0,
        expires_at_ms: None,
    }
}

fn allow(pairs: &[(&str, &str)]) -> ListEntry {
    entry(List::Allow, pairs)
}

fn deny(pairs: &[(&str, &str)]) -> ListEntry {
    entry(List::Deny, pairs)
}

fn switch(rule: &str, mode: SwitchMode) -> Switch {
    Switch {
        domain: "d".into(),
        rule: rule.into(),
        mode,
        reason: String::new(),
        author: String::new(),
        created_at_ms: 0,
        expires_at_ms: None,
    }
}

impl Asked {
    fn over(&self, entries: Vec<ListEntry>, switches: Vec<Switch>) {
        let runtime = Runtime { generation: 1, entries, switches };
        let (overrides, problems) = compile_overrides(&runtime, NOW.as_micros() / 1_000);
        assert_eq!(problems, Vec::<String>::new());
        self.rules.override_with(Arc::new(overrides));
    }

    /// How much is left of the limit of `key`, without charging any of it.
    async fn left(&self, key: &str) -> u32 {
        self.over(vec![], vec![]);
        let look = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, "x") };
        self.about(vec![look]).await.statuses[0].limit_remaining
    }
}

#[tokio::test]
async fn what_is_denied_by_a_list_is_over_the_limit_and_charges_nothing() {
    let asked = Asked::plain();
    asked.over(vec![deny(&[("two", "x")])], vec![]);
    let answer = asked.repeatedly(3, &["day", "two", "unknown"]).await;
    assert_eq!(codes(&answer), (OverLimit, vec![Ok, OverLimit, Ok]));
    assert!(answer.statuses.iter().all(|status| status.current_limit.is_none()));
    assert_eq!(header(&answer, "Retry-After"), Some("3600"));
    assert_eq!(header(&answer, "RateLimit-Limit"), None, "no limit was over");
    let metadata = format!("{:?}", answer.dynamic_metadata.expect("metadata"));
    assert!(metadata.contains("\"list\": Value { kind: Some(StringValue(\"deny\"))"), "{metadata}");
    assert!(!metadata.contains("the reason") && !metadata.contains("the author"), "{metadata}");
    assert_eq!((asked.left("day").await, asked.left("two").await), (1, 2));
}

#[tokio::test]
async fn what_is_allowed_by_a_list_passes_all_limits_and_lists_and_charges_nothing() {
    let asked = Asked::plain();
    assert_eq!(asked.repeatedly(2, &["day"]).await.overall_code(), OverLimit);
    asked.over(vec![deny(&[("two", "*")]), allow(&[("unknown", "x")])], vec![]);
    let answer = asked.repeatedly(3, &["day", "two", "unknown"]).await;
    assert_eq!(codes(&answer), (Ok, vec![Ok, Ok, Ok]));
    assert_eq!(header(&answer, "Retry-After"), None);
    let metadata = format!("{:?}", answer.dynamic_metadata.expect("metadata"));
    assert!(metadata.contains("\"list\": Value { kind: Some(StringValue(\"allow\"))"), "{metadata}");
    // Without the entry that allows it, it is denied.
    assert_eq!(asked.repeatedly(1, &["two"]).await.overall_code(), OverLimit);
    assert_eq!(asked.left("two").await, 2);
}

#[tokio::test]
async fn an_entry_holds_for_its_domain_and_where_there_are_no_rules() {
    let asked = Asked::plain();
    let about = async |domain: &str| {
        let descriptors = vec![descriptor("two", "x")];
        let request = RateLimitRequest { domain: domain.into(), descriptors, hits_addend: 0 };
        codes(
            &asked
                .service
                .answer(&request, Patience::UNKNOWN, &mut Span::off())
                .await
                .expect("an answer")
                .response,
        )
    };
    asked.over(vec![ListEntry { domain: "e".into(), ..deny(&[("two", "x")]) }], vec![]);
    assert_eq!(about("e").await, (OverLimit, vec![OverLimit]));
    assert_eq!(about("d").await.0, Ok);
    asked.over(
        vec![deny(&[("two", "x")]), ListEntry { domain: "e".into(), ..allow(&[("two", "*")]) }],
        vec![],
    );
    assert_eq!(about("e").await.0, Ok);
    assert_eq!(about("f").await.0, OverLimit);
}

#[tokio::test]
async fn a_denied_client_is_told_when_its_ban_ends_and_passes_from_then_on() {
    let asked = Asked::plain();
    let until = |millis: u64| Some(NOW.as_micros() / 1_000 + millis);
    let ends = |millis| ListEntry { expires_at_ms: until(millis), ..deny(&[("two", "x")]) };
    asked.over(vec![ends(9_500), ends(2_000)], vec![]);
    let denied = asked.repeatedly(1, &["two"]).await;
    assert_eq!((denied.overall_code(), header(&denied, "Retry-After")), (OverLimit, Some("10")));
    asked.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_499_000));
    assert_eq!(header(&asked.repeatedly(1, &["two"]).await, "Retry-After"), Some("1"));
    asked.clock.set(Timestamp::from_micros(NOW.as_micros() + 9_500_000));
    assert_eq!(asked.repeatedly(1, &["two"]).await.overall_code(), Ok);
    asked.clock.set(NOW);
    asked.over(vec![ends(100 * 3_600_000)], vec![]);
    assert_eq!(header(&asked.repeatedly(1, &["two"]).await, "Retry-After"), Some("3600"));
}

#[tokio::test]
async fn a_look_is_answered_as_the_request_would_be() {
    let asked = Asked::plain();
    let look = |key| RateLimitDescriptor { hits_addend: Some(0), ..descriptor(key, "x") };
    asked.repeatedly(2, &["day"]).await;
    asked.over(vec![deny(&[("two", "x")]), allow(&[("day", "x")])], vec![]);
    assert_eq!(asked.about(vec![look("two")]).await.overall_code(), OverLimit);
    assert_eq!(asked.about(vec![look("day")]).await.overall_code(), Ok);
}

#[tokio::test]
async fn refunds_are_made_whatever_lists_and_switches_say() {
    for (entries, switches) in [
        (vec![deny(&[("two", "x")])], vec![]),
        (vec![allow(&[("two", "x")]), allow(&[("day", "x")])], vec![]),
        (vec![], vec![switch("two", SwitchMode::Off)]),
    ] {
        let asked = Asked::plain();
        asked.repeatedly(2, &["two"]).await;
        asked.over(entries, switches);
        let refund = RateLimitDescriptor { is_negative_hits: true, ..descriptor("two", "x") };
        assert_eq!(codes(&asked.about(vec![refund.clone()]).await), (Ok, vec![Ok]));
        // In the company of something else too.
        asked.about(vec![descriptor("day", "x"), refund]).await;
        assert_eq!(asked.left("two").await, 2);
    }
}

const PLACES: &str = "
domain: d
descriptors:
- {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 2, lease_ttl: 60s}}
";

#[tokio::test]
async fn places_are_given_back_by_who_is_denied_and_not_held_by_who_is_allowed() {
    for (entries, switches) in [
        (vec![deny(&[("user", "x")])], vec![]),
        (vec![allow(&[("user", "x")])], vec![]),
        (vec![], vec![switch("user", SwitchMode::Off)]),
    ] {
        let asked = Asked::by(PLACES, Modes::default(), answers(HeaderStyle::Off));
        let lease_of = |answer: &RateLimitResponse| {
            let fields = answer.dynamic_metadata.as_ref()?.fields.get(lease::KEY)?;
            match &fields.kind {
                Some(prost_types::value::Kind::StringValue(lease)) => Some(lease.clone()),
                _ => None,
            }
        };
        let lease = lease_of(&asked.repeatedly(1, &["user"]).await).expect("a lease");
        assert_eq!(asked.left("user").await, 1);
        asked.over(entries.clone(), switches.clone());
        assert_eq!(lease_of(&asked.repeatedly(3, &["user"]).await), None);
        assert_eq!(asked.left("user").await, 1, "nothing was taken");
        asked.over(entries, switches);
        let mut release = descriptor("user", "x");
        release.entries.push(Entry { key: lease::KEY.into(), value: lease });
        assert_eq!(codes(&asked.about(vec![release]).await), (Ok, vec![Ok]));
        assert_eq!(asked.left("user").await, 2, "the place was given back");
    }
}

#[tokio::test]
async fn a_denied_request_passes_in_the_shadow_mode_of_the_process_and_still_charges_nothing() {
    let asked = Asked::with(Modes { shadow: true, ..Modes::default() }, answers(HeaderStyle::Off));
    asked.over(vec![deny(&[("two", "x")])], vec![]);
    let answer = asked.repeatedly(1, &["two"]).await;
    assert_eq!(codes(&answer), (Ok, vec![OverLimit]));
    assert_eq!(header(&answer, "Retry-After"), None);
    assert_eq!(asked.left("two").await, 2);
}

#[tokio::test]
async fn a_ban_is_no_quota_that_another_one_makes_up_for() {
    let asked = Asked::with(Modes { quota: true, ..Modes::default() }, answers(HeaderStyle::Off));
    asked.over(vec![deny(&[("two", "x")])], vec![]);
    assert_eq!(asked.repeatedly(1, &["two", "day"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn the_body_of_a_banned_request_speaks_of_no_limit() {
    let answers = Answers { problem_body: true, ..answers(HeaderStyle::Off) };
    let asked = Asked::with(Modes::default(), answers);
    asked.over(vec![deny(&[("two", "x")])], vec![]);
    let answer = asked.repeatedly(1, &["two"]).await;
    let body: serde_json::Value = serde_json::from_slice(&answer.raw_body).expect("JSON");
    assert_eq!(body["type"], "about:blank");
    assert_eq!((&body["retry_after"], body.get("violated-policies")), (&3600.into(), None));
}

#[tokio::test]
async fn a_rule_that_is_switched_off_limits_and_charges_nothing_and_replaces_as_before() {
    let asked = Asked::plain();
    asked.repeatedly(1, &["two"]).await;
    asked.over(vec![], vec![switch("two", SwitchMode::Off), switch("better", SwitchMode::Off)]);
    let answer = asked.repeatedly(5, &["two"]).await;
    assert_eq!(codes(&answer), (Ok, vec![Ok]));
    assert_eq!((answer.statuses[0].limit_remaining, &answer.statuses[0].current_limit), (u32::MAX, &None));
    let mut brought = descriptor("two", "x");
    brought.limit = Some(RateLimitOverride { requests_per_unit: 0, unit: 3, unit_multiplier: None });
    assert_eq!(asked.about(vec![brought]).await.overall_code(), Ok, "what comes along to it is off too");
    assert_eq!(asked.left("two").await, 1);
    asked.over(vec![], vec![switch("better", SwitchMode::Off)]);
    assert_eq!(codes(&asked.repeatedly(3, &["two", "better"]).await), (Ok, vec![Ok, Ok]));
    assert_eq!(asked.left("two").await, 1, "it was replaced");
}

#[tokio::test]
async fn a_quota_that_is_switched_off_is_one_that_never_runs_out() {
    let asked = Asked::plain();
    let keys = ["other_quota", "quota"];
    assert_eq!(asked.repeatedly(2, &["quota"]).await.overall_code(), OverLimit, "used up");
    asked.over(vec![], vec![switch("other_quota", SwitchMode::Off)]);
    assert_eq!(codes(&asked.repeatedly(3, &keys).await), (Ok, vec![Ok, OverLimit]));
    assert_eq!(asked.repeatedly(1, &["quota"]).await.overall_code(), OverLimit, "there is no other one");
    // A limit that is none does not make up for a quota, switched off or not.
    asked.over(vec![], vec![switch("two", SwitchMode::Off)]);
    assert_eq!(asked.repeatedly(1, &["two", "quota"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn where_all_are_quotas_switching_one_off_is_as_good_as_removing_it() {
    let asked = Asked::with(Modes { quota: true, ..Modes::default() }, answers(HeaderStyle::Off));
    asked.repeatedly(2, &["day"]).await;
    assert_eq!(asked.repeatedly(1, &["day", "unknown"]).await.overall_code(), Ok, "what no rule limits");
    asked.over(vec![], vec![switch("two", SwitchMode::Off)]);
    assert_eq!(codes(&asked.repeatedly(3, &["day", "two"]).await), (Ok, vec![OverLimit, Ok]));
    assert_eq!(asked.repeatedly(1, &["day"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn a_rule_that_is_switched_to_shadow_counts_and_lets_pass() {
    let asked = Asked::plain();
    asked.over(vec![], vec![switch("two", SwitchMode::Shadow)]);
    let answer = asked.repeatedly(3, &["two"]).await;
    assert_eq!((codes(&answer), answer.statuses[0].limit_remaining), ((Ok, vec![Ok]), 0));
    asked.over(vec![], vec![]);
    assert_eq!(asked.repeatedly(1, &["two"]).await.overall_code(), OverLimit, "what was counted stays");
}

#[tokio::test]
async fn a_rule_that_is_only_watched_keeps_no_other_from_being_charged() {
    let rules = "
domain: d
atomic: true
descriptors:
- {key: one, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: ten, rate_limit: {unit: hour, requests_per_unit: 10}}
";
    let asked = Asked::by(rules, Modes::default(), answers(HeaderStyle::Off));
    asked.repeatedly(3, &["one", "ten"]).await;
    assert_eq!(asked.left("ten").await, 9);
    asked.over(vec![], vec![switch("one", SwitchMode::Shadow)]);
    assert_eq!(asked.repeatedly(3, &["one", "ten"]).await.overall_code(), Ok);
    assert_eq!(asked.left("ten").await, 6);
}
