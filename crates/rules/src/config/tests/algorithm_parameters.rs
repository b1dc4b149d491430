//! Parameters of single algorithms: `min_interval` of exact logs, `lease_ttl` of concurrency limits.

use std::time::Duration;

use tollgate_core::algorithm::{Algorithm, DEFAULT_LEASE_TTL, Parameters};
use tollgate_core::quota::{Unit, Window};

use super::*;

const LOG: &str = "algorithm: sliding_window_log, unit: second, requests_per_unit: 5";
const CONCURRENCY: &str = "algorithm: concurrency, requests_per_unit: 5";

fn limit_of(defaults: &str, limit: &str) -> (Quota, Policy) {
    super::limit_of(&rule_of(&with(defaults, limit)))
}

/// Asserts what is said of the limit `k`.
#[track_caller]
fn rejected(limit: &str, says: &str) {
    assert_eq!(errors(&with("", limit)), format!("a.yaml:5: descriptors[0].rate_limit{says}"));
}

#[test]
fn a_log_may_have_a_minimal_interval() {
    for (stated, millis) in [
        ("", 0),
        (", min_interval: 50ms", 50),
        (", min_interval: 0.5s", 500),
        (", min_interval: 1s", 1_000),
        (", min_interval: 0s", 0),
    ] {
        let (_, policy) = limit_of("", &format!("{LOG}{stated}"));
        assert_eq!(policy.min_interval(), Duration::from_millis(millis), "{stated}");
    }
}

#[test]
fn an_invalid_minimal_interval_is_rejected() {
    const EXPECTED: &str = "expected e.g. 200us, 50ms, 1.5s, 5m or 1h30m";
    for text in ["50", "1.5us", "-5ms", "''", "often"] {
        let shown = text.trim_matches('\'');
        rejected(
            &format!("{LOG}, min_interval: {text}"),
            &format!(".min_interval: `{shown}` is not a duration; {EXPECTED}"),
        );
    }
    rejected(
        &format!("{LOG}, min_interval: 1001ms"),
        ".min_interval: is too long; expected a min_interval that is no longer than the window",
    );
    rejected(
        "algorithm: sliding_window, unit: second, requests_per_unit: 5, min_interval: 5ms",
        ".min_interval: is not a key of sliding_window; expected `algorithm: sliding_window_log`",
    );
}

#[test]
fn a_concurrency_limit_has_a_time_to_live_in_place_of_a_window() {
    for (stated, ttl, window) in [
        ("", DEFAULT_LEASE_TTL, 60),
        (", lease_ttl: 90s", Duration::from_secs(90), 90),
        (", lease_ttl: 1500ms", Duration::from_millis(1_500), 2),
        (", lease_ttl: 1s", Duration::from_secs(1), 1),
        (", lease_ttl: 30d", Duration::from_secs(2_592_000), 2_592_000),
    ] {
        let (quota, policy) = limit_of("", &format!("{CONCURRENCY}{stated}"));
        assert_eq!(quota, Quota { limit: 5, window: Window::from_seconds(window).unwrap() });
        let parameters = Parameters { lease_ttl: ttl, ..Parameters::default() };
        assert_eq!(Policy::new(Algorithm::Concurrency, quota, &parameters), Ok(policy), "{stated}");
    }
}

#[test]
fn an_invalid_time_to_live_is_rejected() {
    for text in ["999ms", "0s", "30d1us", "99999999999w"] {
        rejected(
            &format!("{CONCURRENCY}, lease_ttl: {text}"),
            &format!(".lease_ttl: `{text}` is out of range; expected 1 second to 30 days"),
        );
    }
    assert_says(
        &errors(&with("", &format!("{CONCURRENCY}, lease_ttl: 60"))),
        &["a.yaml:5: descriptors[0].rate_limit.lease_ttl: `60` is not a duration; expected"],
    );
    rejected(
        "unit: second, requests_per_unit: 5, lease_ttl: 60s",
        ".lease_ttl: is not a key of fixed_window; expected `algorithm: concurrency`",
    );
    rejected(
        &format!("{CONCURRENCY}, burst: 5"),
        ".burst: is not a key of concurrency; expected `algorithm: token_bucket`",
    );
}

#[test]
fn a_concurrency_limit_states_no_window() {
    for (key, stated) in [("unit", "minute"), ("window", "30s"), ("unit_multiplier", "2")] {
        rejected(
            &format!("{CONCURRENCY}, {key}: {stated}"),
            &format!(
                ".{key}: a concurrency limit has no window; expected `lease_ttl`, the maximum time for which a permit is held"
            ),
        );
    }
    let both = errors(&with("", &format!("{CONCURRENCY}, unit: minute, unit_multiplier: 2")));
    assert_eq!(both.lines().count(), 2, "{both}");
}

#[test]
fn limits_that_keep_each_hit_are_bounded() {
    const SAYS: &str = ".requests_per_unit: is too large; expected a limit of at most 10000, since this algorithm \
                        stores each hit";
    for algorithm in ["algorithm: concurrency", "algorithm: sliding_window_log, unit: day"] {
        assert_eq!(limit_of("", &format!("{algorithm}, requests_per_unit: 10000")).0.limit, 10_000);
        rejected(&format!("{algorithm}, requests_per_unit: 10001"), SAYS);
    }
}

#[test]
fn a_bucket_that_is_rejected_says_at_which_key() {
    rejected(
        "algorithm: token_bucket, unit: second, requests_per_unit: 4000000000",
        ".requests_per_unit: this bucket refills too fast; expected a token bucket rate that is exact within 1 %: at \
         most about a million per second",
    );
    rejected(
        "algorithm: token_bucket, unit: year, requests_per_unit: 1, burst: 3",
        ".burst: this bucket refills too slowly; expected a burst that refills within 2.8 years at this rate",
    );
}

#[test]
fn defaults_are_for_the_limits_that_they_go_with() {
    let all = "unit: minute, requests_per_unit: 9, burst: 3, min_interval: 50ms, lease_ttl: 90s";
    for algorithm in Algorithm::ALL {
        let (quota, policy) = limit_of(all, &format!("algorithm: {}", algorithm.name()));
        let parameters = Parameters {
            burst: Some(3),
            min_interval: Duration::from_millis(50),
            lease_ttl: Duration::from_secs(90),
            ..Parameters::default()
        };
        assert_eq!(Policy::new(algorithm, quota, &parameters), Ok(policy));
        let window = if algorithm == Algorithm::Concurrency { 90 } else { Unit::Minute.seconds() };
        assert_eq!((quota.limit, quota.window.seconds()), (9, window));
    }
    // What a limit states goes before them.
    let (_, policy) = limit_of(all, "algorithm: sliding_window_log, min_interval: 0s");
    assert_eq!(policy.min_interval(), Duration::ZERO);
    let (quota, _) =
        limit_of("algorithm: concurrency, requests_per_unit: 9, lease_ttl: 90s", "lease_ttl: 2s");
    assert_eq!(quota.window.seconds(), 2);
}

#[test]
fn mistakes_in_defaults_name_their_line() {
    assert_eq!(
        errors("domain: d\ndefaults:\n  min_interval: 5\n  lease_ttl: 31d\n"),
        "a.yaml:3: defaults.min_interval: `5` is not a duration; expected e.g. 200us, 50ms, 1.5s, 5m or 1h30m\n\
         a.yaml:4: defaults.lease_ttl: `31d` is out of range; expected 1 second to 30 days"
    );
    // What is wrong only together with the limit is reported there.
    for (defaults, limit, says) in [
        (
            "min_interval: 2s",
            LOG,
            "`min_interval` of `defaults` at a.yaml:2: is too long; expected a min_interval that is no longer",
        ),
        (
            "requests_per_unit: 10001",
            "algorithm: concurrency",
            "`requests_per_unit` of `defaults` at a.yaml:2: is too large; expected a limit of at most 10000",
        ),
        (
            "burst: 3",
            "algorithm: token_bucket, unit: year, requests_per_unit: 1",
            "`burst` of `defaults` at a.yaml:2: this bucket refills too slowly; expected",
        ),
    ] {
        let text = errors(&with(defaults, limit));
        assert_says(&text, &["a.yaml:5: descriptors[0].rate_limit: ", says]);
    }
}

#[test]
fn a_misspelt_algorithm_is_not_reported_as_one_without_a_window() {
    assert_eq!(
        errors(&with("", "algorithm: concurency, requests_per_unit: 5")),
        "a.yaml:5: descriptors[0].rate_limit.algorithm: `concurency` is not an algorithm; did you mean `concurrency`?"
    );
}

#[test]
fn limits_that_hide_what_gives_leases_back_are_warned_of() {
    let below = |limit: &str, descriptor: &str| {
        domain(&format!(
            "  - key: k\n    rate_limit: {{{limit}}}\n    descriptors:\n      - key: path\n      - {{{descriptor}}}\n"
        ))
    };
    let hidden = "rate_limit: {unit: day, requests_per_unit: 1}";
    for key in ["key: lease", "key: lease, value: x", "key: lease, regex: ^a", "key: 'l*'"] {
        assert_eq!(
            warnings(&below(CONCURRENCY, &format!("{key}, {hidden}"))),
            "a.yaml:7: warning: descriptors[0].descriptors[1]: matches the descriptors that release the \
             leases of the limit above, so that each permit is held for the `lease_ttl`; rename the key"
        );
    }
    clean(&below(CONCURRENCY, "key: lease"));
    clean(&below(CONCURRENCY, &format!("key: leases, {hidden}")));
    clean(&below("unit: day, requests_per_unit: 1", &format!("key: lease, {hidden}")));
}
