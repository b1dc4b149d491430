//! `notify` of a limit: percentages, and limits that cannot have it.

use super::{assert_says, domain, errors, minutely, rule_of};

#[test]
fn percentages_are_read_in_any_order_and_an_empty_list_has_none() {
    for (notify, expected) in
        [("[100%, 50%, 80%]", Some("50%, 80%, 100%")), ("[1000%]", Some("1000%")), ("[]", None), ("~", None)]
    {
        let rule = rule_of(&minutely("", &format!("notify: {notify}")));
        assert_eq!(rule.notify.as_ref().map(ToString::to_string).as_deref(), expected);
    }
}

#[test]
fn values_that_are_no_percentages_are_reported() {
    for (notify, message) in [
        ("notify: 80%", "notify: expected a list, found the text \"80%\""),
        ("notify: [80]", "notify[0]: expected a whole percentage from 1% to 1000%, such as 80%, found `80`"),
        ("notify: [0%]", "notify[0]: expected a whole percentage from 1% to 1000%"),
        ("notify: [50%, 1001%]", "notify[1]: expected a whole percentage from 1% to 1000%"),
        ("notify: [0.5%]", "notify[0]: expected a whole percentage from 1% to 1000%"),
        (
            "notify: [1%, 2%, 3%, 4%, 5%, 6%, 7%, 8%, 9%, 10%, 11%]",
            "notify: has too many percentages; expected at most 10",
        ),
    ] {
        assert_says(&errors(&minutely("", notify)), &[message]);
    }
}

#[test]
fn limits_without_windows_of_their_own_are_refused_with_the_reason() {
    for (limit, message) in [
        ("algorithm: sliding_window", "is not a key of sliding_window, whose usage never begins anew"),
        ("algorithm: token_bucket", "is not a key of token_bucket"),
        ("algorithm: sliding_window_log", "is not a key of sliding_window_log"),
        ("scope: global", "contradicts `scope: global`, of whose use each region would notify"),
    ] {
        assert_says(&errors(&minutely("", &format!("{limit}, notify: [80%]"))), &[message]);
    }
    let unlimited = domain("  - key: k\n    rate_limit: {unlimited: true, notify: [80%]}\n");
    assert_says(&errors(&unlimited), &["notify: contradicts `unlimited: true`; remove one of them"]);
}
