//! Leased counters: `sync`.

use tollgate_core::{SyncMode, algorithm::Algorithm};

use super::*;

const QUOTA: &str = "unit: minute, requests_per_unit: 5";

fn sync_of(defaults: &str, limit: &str) -> SyncMode {
    rule_of(&with(defaults, limit)).sync
}

/// A limit of the algorithm that is right but for what may be said of it besides.
fn limit(algorithm: Algorithm) -> String {
    let window = if algorithm == Algorithm::Concurrency { "" } else { ", unit: minute" };
    format!("algorithm: {}, requests_per_unit: 5{window}", algorithm.name())
}

#[test]
fn a_limit_is_strict_unless_it_or_the_defaults_say_otherwise() {
    for (defaults, stated, sync) in [
        ("", "", SyncMode::Strict),
        ("", ", sync: strict", SyncMode::Strict),
        ("", ", sync: ~", SyncMode::Strict),
        ("", ", sync: leased", SyncMode::Leased),
        ("sync: leased", "", SyncMode::Leased),
        ("sync: leased", ", sync: strict", SyncMode::Strict),
        ("sync: strict", ", sync: leased", SyncMode::Leased),
        ("", ", sync: auto", SyncMode::Auto),
        ("sync: auto", "", SyncMode::Auto),
        ("sync: auto", ", sync: strict", SyncMode::Strict),
        ("sync: leased", ", sync: auto", SyncMode::Auto),
    ] {
        assert_eq!(sync_of(defaults, &format!("{QUOTA}{stated}")), sync, "{defaults} {stated}");
    }
}

#[test]
fn defaults_lease_the_limits_that_can_be_leased() {
    for (algorithm, can_be_leased) in [
        (Algorithm::FixedWindow, true),
        (Algorithm::SlidingWindow, true),
        (Algorithm::TokenBucket, true),
        (Algorithm::SlidingWindowLog, false),
        (Algorithm::Concurrency, false),
    ] {
        for sync in [SyncMode::Leased, SyncMode::Auto] {
            let expected = if can_be_leased { sync } else { SyncMode::Strict };
            let defaults = format!("sync: {}", sync.name());
            assert_eq!(sync_of(&defaults, &limit(algorithm)), expected, "{algorithm:?}");
        }
        assert_eq!(sync_of("", &format!("{}, sync: strict", limit(algorithm))), SyncMode::Strict);
    }
    for sync in ["leased", "auto"] {
        assert_eq!(sync_of(&format!("sync: {sync}"), "unlimited: true"), SyncMode::Strict);
    }
}

#[test]
fn a_limit_that_can_not_be_leased_is_rejected_with_leased_and_warned_of_with_auto() {
    for algorithm in [Algorithm::SlidingWindowLog, Algorithm::Concurrency] {
        let name = algorithm.name();
        let text = errors(&with("", &format!("{}, sync: leased", limit(algorithm))));
        let expected = format!("rate_limit.sync: {name} cannot be leased; expected `strict`");
        assert_eq!(text, format!("a.yaml:5: descriptors[0].{expected}"));
        let text = with("", &format!("{}, sync: auto", limit(algorithm)));
        let expected = format!("{name} cannot be leased, so each request is a call to the store");
        assert_eq!(
            warnings(&text),
            format!("a.yaml:5: warning: descriptors[0].rate_limit.sync: works as `strict`: {expected}")
        );
        assert_eq!(rule(&loads(&text), &[("k", "x")]).unwrap().sync, SyncMode::Strict);
    }
}

#[test]
fn an_unknown_sync_mode_is_rejected() {
    assert_eq!(
        errors(&with("sync: lease", &format!("{QUOTA}, sync: eventually"))),
        "a.yaml:2: defaults.sync: `lease` is not a sync mode; did you mean `leased`?\n\
         a.yaml:5: descriptors[0].rate_limit.sync: `eventually` is not a sync mode; expected one of strict, leased, auto"
    );
    // It is looked at in a limit that is wrong besides.
    let both = errors(&with("", "unit: minutes, requests_per_unit: 5, sync: eventually"));
    assert_says(&both, &["rate_limit.unit: ", "rate_limit.sync: "]);
    assert_says(
        &errors(&domain("  - key: k\n    sync: leased\n")),
        &["descriptors[0].sync: does not belong to a descriptor; it belongs to `rate_limit`"],
    );
}

#[test]
fn leases_are_warned_of_where_a_request_is_charged_all_or_none() {
    let atomic = |atomic: &str, sync: &str| {
        format!(
            "domain: d\natomic: {atomic}\ndefaults:\n  sync: {sync}\ndescriptors:\n- {{key: a, rate_limit: {{{QUOTA}}}}}\n- {{key: b, rate_limit: {{{QUOTA}, sync: {sync}}}}}\n- {{key: c, rate_limit: {{{QUOTA}, sync: strict}}}}\n"
        )
    };
    for (sync, effect) in [("leased", "has no effect"), ("auto", "works as `strict`")] {
        let says = format!(
            "{effect} beside `atomic: true` at a.yaml:2, which needs all counters of a request at once"
        );
        assert_eq!(
            warnings(&atomic("true", sync)),
            format!(
                "a.yaml:4: warning: defaults.sync: {says}\na.yaml:7: warning: descriptors[1].rate_limit.sync: {says}"
            )
        );
    }
    let loaded = loads(&atomic("true", "leased"));
    let domain = loaded.rules.domain("d").unwrap();
    assert_eq!(domain.sync_of(&rule(&loaded, &[("b", "x")]).unwrap()), SyncMode::Strict);
    let loaded = clean(&atomic("false", "leased"));
    let domain = loaded.rules.domain("d").unwrap();
    assert_eq!(domain.sync_of(&rule(&loaded, &[("b", "x")]).unwrap()), SyncMode::Leased);
}
