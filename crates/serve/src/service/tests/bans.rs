//! Responses to banned clients.

use prost_types::{Struct, value::Kind};
use tollgate_limiter::Observations;

use super::*;

pub(super) const BANNING: &str = "
domain: d
descriptors:
- key: client
  rate_limit: {unit: hour, requests_per_unit: 1, ban: {threshold: 2, duration: 90s, list_after: 1, mode: enforce}}
- {key: watched, rate_limit: {unit: hour, requests_per_unit: 1, ban: {threshold: 2, duration: 90s, list_after: 1}}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, ban: {threshold: 2}}}
- {key: other, rate_limit: {unit: hour, requests_per_unit: 100}}
";

fn service(modes: Modes) -> TestService {
    TestService::with_rules(BANNING, modes, options(HeaderStyle::Ratelimit))
}

/// Calls once a second until `count` calls are made, and returns the last response.
pub(super) async fn call_each_second(service: &TestService, keys: &[&str], count: u64) -> RateLimitResponse {
    let mut response = service.call_times(1, keys).await;
    for _ in 1..count {
        service.clock.set(service.clock.now().plus(Duration::from_secs(1)));
        response = service.call_times(1, keys).await;
    }
    response
}

fn ban(response: &RateLimitResponse) -> Option<(f64, f64, String)> {
    let fields = &response.dynamic_metadata.as_ref()?.fields;
    let Some(Kind::StructValue(Struct { fields })) = &fields.get("ban")?.kind else { panic!("no structure") };
    let number = |key: &str| match fields[key].kind {
        Some(Kind::NumberValue(number)) => number,
        _ => panic!("no number"),
    };
    let mode = match &fields["mode"].kind {
        Some(Kind::StringValue(mode)) => mode.clone(),
        _ => panic!("no text"),
    };
    Some((number("until"), number("level"), mode))
}

#[tokio::test]
async fn a_banned_request_has_the_time_to_the_end_of_the_ban_and_a_mark() {
    let service = service(Modes::default());
    // Admits one, and denies in two seconds; the third begins the ban.
    let response = call_each_second(&service, &["client", "other"], 4).await;
    assert_eq!(codes(&response), (OverLimit, vec![OverLimit, Ok]));
    let began = service.clock.now().seconds();
    assert_eq!(ban(&response), Some((f64::from(began + 90), 1.0, "enforce".to_owned())));
    assert_eq!(header(&response, "x-ratelimit-policy"), Some("banned"));
    // Half of the second has passed.
    assert_eq!(response.statuses[0].duration_until_reset.expect("a reset").seconds, 90);
    assert_eq!(header(&response, "Retry-After"), Some("90"));
    service.clock.set(service.clock.now().plus(Duration::from_secs(60)));
    let later = service.call_times(1, &["client"]).await;
    assert_eq!(headers(&later, ["Retry-After", "x-ratelimit-policy"]), [Some("30"), Some("banned")]);
    service.clock.set(service.clock.now().plus(Duration::from_secs(30)));
    let after = service.call_times(1, &["client"]).await;
    assert_eq!((ban(&after), header(&after, "x-ratelimit-policy")), (None, None));
}

#[tokio::test]
async fn a_watched_ban_is_only_shown_in_metadata() {
    let global_shadow = Modes { shadow: true, ..Modes::default() };
    for (modes, key, code) in [
        (Modes::default(), "watched", OverLimit),
        (Modes::default(), "shadow", Ok),
        (global_shadow, "client", Ok),
    ] {
        let response = call_each_second(&service(modes), &[key], 4).await;
        assert_eq!(response.overall_code(), code, "{key}");
        assert_eq!(ban(&response).map(|(_, level, mode)| (level, mode)), Some((1.0, "watch".to_owned())));
        assert_eq!(header(&response, "x-ratelimit-policy"), None);
        // The hour ends in 1,899.5 s, three seconds ago.
        assert_eq!(response.statuses[0].duration_until_reset.expect("a reset").seconds, 1_897);
    }
}

#[tokio::test]
async fn a_ban_is_recorded_once_with_the_entries_of_its_counter() {
    let mut service = service(Modes::default());
    let bans = Observations::default();
    service.inner.limiter.observations = bans.clone();
    call_each_second(&service, &["client", "other", "watched"], 9).await;
    let begun = bans.take_bans(10);
    let named: Vec<_> =
        begun.iter().map(|begun| (&*begun.rule, begun.ban.is_enforced, begun.is_listed)).collect();
    assert_eq!(named, [("client", true, true), ("watched", false, false)]);
    assert_eq!((&*begun[0].domain, &*begun[0].entries), ("d", &[("client".into(), "x".into())][..]));
    assert!(bans.take_bans(10).is_empty() && bans.dropped_bans() == 0);
}
