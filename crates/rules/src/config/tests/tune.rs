//! `tune` of a limit.

use std::time::Duration;

use super::{assert_says, clean, domain, errors, rule, warnings};
use crate::Tune;

/// A limit of 1,000 a minute with this tuning, and these keys besides, in a descriptor with these.
fn with(descriptor: &str, limit: &str, tune: &str) -> String {
    domain(&format!(
        "  - key: k\n    {descriptor}\n    rate_limit: {{unit: minute, requests_per_unit: 1000, {limit} tune: {{{tune}}}}}\n"
    ))
}

const VALID: &str = "target_denied: 1%, between: [500, 2000], step: 10%";

#[test]
fn a_tuned_limit_has_bounds_a_target_and_a_step() {
    let loaded = clean(&with("", "", &format!("{VALID}, every: 5m")));
    let tune = rule(&loaded, &[("k", "v")]).expect("matches").rollout.tune.clone().expect("tuned");
    let Tune { target, bounds, step, interval } = *tune;
    assert_eq!((target.hundredths(), bounds, step.hundredths()), (100, (500, 2000), 1_000));
    assert_eq!(interval, Duration::from_secs(300));
}

#[test]
fn wrong_bounds_are_reported_by_what_is_wrong() {
    let expected = "expected the lowest and the highest limit, both above 0, e.g. [500, 2000]";
    for (between, wrong) in [
        ("between: [2000, 500],", "the lowest limit 2000 is above the highest 500"),
        ("between: [0, 2000],", "0 is out of range"),
        ("between: [500],", "is not a pair of numbers"),
        ("", "is missing"),
    ] {
        let errors = errors(&with("", "", &format!("target_denied: 1%, {between} step: 10%")));
        assert_says(&errors, &["rate_limit.tune.between", wrong, expected]);
    }
    let excluded = errors(&with("", "", "target_denied: 1%, between: [1, 999], step: 10%"));
    assert_says(&excluded, &["excludes the limit itself", "expected bounds around 1000"]);
}

#[test]
fn tuning_contradicts_shared_numbers_and_held_hits() {
    for (limit, wrong) in [
        ("scope: global,", "cannot be tuned for several regions together; expected `scope: regional`"),
        ("scope: primary,", "cannot be tuned for several regions together; expected `scope: regional`"),
        (
            "reserve: {},",
            "is not supported beside `reserve` or `algorithm: concurrency`; expected a limit without them",
        ),
    ] {
        assert_says(&errors(&with("", limit, VALID)), &["rate_limit.tune: ", wrong]);
    }
    let warnings = warnings(&with("value: v", "", VALID));
    assert_says(&warnings, &["is never tuned", "expected a limit with a counter for each client"]);
}
