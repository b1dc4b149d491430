//! Headers and bodies of denials, in each of their formats.

use super::bans::{BANNING, call_each_second};
use super::*;

const DENIALS: &str = "
domain: d
descriptors:
- {key: minute, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: named, rate_limit: {window: 15m, requests_per_unit: 1, name: password_reset}}
- {key: bucket, rate_limit: {algorithm: token_bucket, unit: minute, requests_per_unit: 100, burst: 2}}
- {key: log, rate_limit: {algorithm: sliding_window_log, unit: hour, requests_per_unit: 2, min_interval: 500ms}}
- {key: job, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
- {key: one_job, rate_limit: {algorithm: concurrency, requests_per_unit: 1, name: jobs}}
- {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: other_quota, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: spread, rate_limit: {unit: hour, requests_per_unit: 0, retry_after_spread: 30s}}
";

fn service(options: ResponseOptions) -> TestService {
    TestService::with_rules(DENIALS, Modes::default(), options)
}

fn with_body() -> TestService {
    service(ResponseOptions { problem_body: true, ..options(HeaderStyle::Off) })
}

fn body(response: &RateLimitResponse) -> serde_json::Value {
    serde_json::from_slice(&response.raw_body).expect("JSON")
}

#[tokio::test]
async fn the_body_states_the_limit_in_a_sentence_and_the_time_of_the_reset() {
    let service = with_body();
    // The minute ends in 39.5 s; the quarter of an hour in 99.5 s.
    for (hits, key, detail, reset_at) in [
        (3, "minute", "Rate limit of 2 requests per 60 seconds exceeded; retry in 40 seconds.", 940),
        (
            2,
            "named",
            "Rate limit \"password_reset\" of 1 request per 15 minutes exceeded; retry in 100 seconds.",
            1_000,
        ),
        (
            3,
            "bucket",
            "Rate limit of 100 requests per 60 seconds with a burst of 2 exceeded; retry in 1 second.",
            902,
        ),
        (
            2,
            "log",
            "Rate limit of 2 requests per hour with 500ms between them exceeded; retry in 1 second.",
            901,
        ),
        (3, "job", "Limit of 2 concurrent requests exceeded; retry in 1 second.", 902),
        (2, "one_job", "Limit \"jobs\" of 1 concurrent request exceeded; retry in 1 second.", 902),
    ] {
        let response = service.call_times(hits, &[key]).await;
        let body = body(&response);
        assert_eq!(body["detail"], detail, "{key}");
        assert_eq!(body["reset_at"], 1_700_000_000_u64 + reset_at, "{key}");
        assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
        assert_eq!(body["retry_after"].to_string(), header(&response, "Retry-After").expect("is set"));
    }
}

#[tokio::test]
async fn the_body_of_a_banned_client_states_the_ban_and_its_end() {
    let options = ResponseOptions { problem_body: true, ..options(HeaderStyle::Off) };
    let service = TestService::with_rules(BANNING, Modes::default(), options);
    let body = body(&call_each_second(&service, &["client"], 5).await);
    assert_eq!(body["type"], "https://iana.org/assignments/http-problem-types#abnormal-usage-detected");
    assert_eq!(
        body["detail"],
        "Banned for repeated requests over the rate limit of 1 request per hour; retry in 89 seconds."
    );
    let began = u64::from(service.clock.now().seconds()) - 1;
    assert_eq!((&body["reset_at"], &body["retry_after"]), (&(began + 90).into(), &89.into()));
}

#[tokio::test]
async fn retry_after_is_a_header_only_where_it_is_on() {
    for is_on in [true, false] {
        let options = ResponseOptions {
            retry_after_header: is_on,
            problem_body: true,
            ..options(HeaderStyle::XRatelimit)
        };
        let denied = service(options).call_times(3, &["minute"]).await;
        assert_eq!(denied.overall_code(), OverLimit);
        assert_eq!(header(&denied, "Retry-After"), is_on.then_some("40"));
        // Neither the other headers nor the body depend on it.
        assert_eq!(header(&denied, "X-RateLimit-Reset"), Some("40"));
        assert_eq!(body(&denied)["retry_after"], 40);
    }
}

#[tokio::test]
async fn the_body_states_the_limit_that_the_client_waits_for() {
    let service = with_body();
    let both = body(&service.call_times(3, &["named", "minute"]).await);
    assert_eq!(
        both["detail"],
        "Rate limit \"password_reset\" of 1 request per 15 minutes exceeded; retry in 100 seconds."
    );
    assert_eq!(both["violated-policies"].as_array().map(Vec::len), Some(2));
    let quotas = body(&service.call_times(2, &["quota", "other_quota"]).await);
    assert_eq!(quotas["detail"], "Rate limit of 1 request per hour exceeded; retry in 1900 seconds.");
    assert_eq!(quotas["reset_at"], 1_700_002_800);
}

#[tokio::test]
async fn a_thousand_clients_of_one_window_return_over_the_spread_while_the_reset_is_exact() {
    let options = ResponseOptions { problem_body: true, ..options(HeaderStyle::Ratelimit) };
    let service = service(options);
    let mut returning = [0_u32; 31];
    for client in 0..1_000 {
        let call = || service.call(vec![descriptor("spread", &client.to_string())]);
        let response = call().await;
        let retry_after: u64 = header(&response, "Retry-After").expect("is set").parse().expect("a number");
        let delay = retry_after.checked_sub(1_900).expect("never earlier");
        returning[usize::try_from(delay).expect("at most the spread")] += 1;
        assert_eq!(header(&response, "RateLimit-Reset"), Some("1900"));
        assert_eq!(response.statuses[0].duration_until_reset.expect("a reset").seconds, 1_900);
        let body = body(&response);
        assert_eq!((&body["reset_at"], &body["retry_after"]), (&1_700_002_800.into(), &retry_after.into()));
        assert_eq!(call().await.response_headers_to_add, response.response_headers_to_add);
    }
    // 32 a second on average, with a standard deviation of 6; without a spread, 1,000 in one second.
    assert!(returning.iter().all(|clients| (8..=60).contains(clients)), "{returning:?}");
}

#[tokio::test]
async fn the_reset_is_unix_time_in_its_header_or_beside_it() {
    let style = HeaderStyle::XRatelimit;
    let reset_at = |name: &str| HeaderNames { reset_at: Some(name.to_owned()), ..HeaderNames::default() };
    let in_header = ResponseOptions { header_names: reset_at("X-RateLimit-Reset"), ..options(style) };
    let response = service(in_header).call_times(1, &["minute"]).await;
    assert_eq!(header(&response, "X-RateLimit-Reset"), Some("1700000940"));
    assert_eq!(header(&response, "X-RateLimit-Reset-At"), None);
    let header_names = reset_at("X-RateLimit-Reset-At");
    for style in [style, HeaderStyle::Ietf] {
        let beside = ResponseOptions { header_names: header_names.clone(), ..options(style) };
        let response = service(beside).call_times(1, &["minute"]).await;
        assert_eq!(header(&response, "X-RateLimit-Reset-At"), Some("1700000940"));
        match style {
            HeaderStyle::Ietf => assert_eq!(header(&response, "RateLimit"), Some("\"minute\";r=1;t=40")),
            _ => assert_eq!(header(&response, "X-RateLimit-Reset"), Some("40")),
        }
    }
    let off = ResponseOptions { header_names, ..options(HeaderStyle::Off) };
    assert_eq!(service(off).call_times(1, &["minute"]).await.response_headers_to_add, []);
}
