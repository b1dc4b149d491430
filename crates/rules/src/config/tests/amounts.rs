//! Limits of more than 32 bits.

use tollgate_core::descriptor::Hits;

use super::{assert_says, errors, limit_of, rule_of, with};

#[test]
fn a_fixed_window_counts_up_to_what_redis_counts_exactly() {
    for (limit, kind) in
        [(u64::from(u32::MAX), 0), (u64::from(u32::MAX) + 1, 14), (50_000_000_000, 14), (Hits::MAX, 14)]
    {
        let rule = rule_of(&with("unit: month", &format!("requests_per_unit: {limit}, ban: {{}}")));
        let (quota, policy) = limit_of(&rule);
        assert_eq!((quota.limit, policy.limit(), policy.kind() as u8), (limit, limit, kind));
        assert_eq!(rule.record_id().kind(), kind);
    }
}

#[test]
fn other_limits_are_refused_with_the_reason() {
    let large = "4294967296";
    for (limit, keys, message) in [
        (large, "algorithm: sliding_window", "is too large; expected a limit of at most 4294967295, or"),
        (large, "algorithm: token_bucket", "is too large; expected a limit of at most 4294967295, or"),
        (large, "algorithm: sliding_window_log", "is too large; expected a limit of at most 10000"),
        (large, "overdraft: true, carry: true", "is too large; expected a limit of at most 4294967295"),
        (large, "scope: global", "is too large for `scope: global`; expected at most 4294967295"),
        (
            "9007199254740992",
            "",
            "expected a whole number from 0 to 9007199254740991, found `9007199254740992`",
        ),
    ] {
        let text = errors(&with("unit: month", &format!("requests_per_unit: {limit}, {keys}")));
        assert_says(&text, &[&format!("requests_per_unit: {message}")]);
    }
}
