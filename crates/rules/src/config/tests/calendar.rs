//! Windows of a calendar: `timezone` and `anchor`.

use tollgate_core::clock::Timestamp;

use super::*;
use crate::config::override_rule;

fn file(limit: &str) -> String {
    with("requests_per_unit: 5", limit)
}

fn quota_of(rule: &Rule) -> Quota {
    limit_of(rule).0
}

fn quota(limit: &str) -> Quota {
    quota_of(&rule_of(&file(limit)))
}

/// The end of the window that contains a UTC time, both as civil texts.
fn reset(limit: &str, at: &str) -> String {
    let at: jiff::Timestamp = at.parse().expect("a time");
    let policy = rule_of(&file(limit)).policy().expect("limited");
    let micros = u64::try_from(at.as_microsecond()).expect("after the epoch");
    let end = policy.prefetched_until(Timestamp::from_micros(micros)).expect("a window");
    jiff::Timestamp::from_second(end.seconds().into()).expect("in range").to_string()
}

#[test]
fn a_time_zone_makes_windows_begin_at_local_midnight() {
    for (limit, at, end) in [
        // A day of 23 hours, one of 25, and one that begins at 01:00.
        ("unit: day, timezone: Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-29T22:00:00Z"),
        ("unit: day, timezone: Europe/Berlin", "2026-03-28T22:59:59Z", "2026-03-28T23:00:00Z"),
        ("unit: day, timezone: Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("unit: day, timezone: America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z"),
        ("unit: day, timezone: UTC", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("unit: week, timezone: Asia/Tokyo", "2026-11-23T12:00:00Z", "2026-11-29T15:00:00Z"),
        ("unit: week, timezone: Asia/Tokyo, anchor: sunday", "2026-11-23T12:00:00Z", "2026-11-28T15:00:00Z"),
        ("unit: month, timezone: Europe/Berlin", "2028-02-10T00:00:00Z", "2028-02-29T23:00:00Z"),
        ("unit: month, timezone: Europe/Berlin, anchor: 15", "2026-03-20T00:00:00Z", "2026-04-14T22:00:00Z"),
        ("unit: month, anchor: 31", "2027-02-01T00:00:00Z", "2027-02-28T00:00:00Z"),
        ("unit: month, anchor: 31", "2027-02-28T00:00:00Z", "2027-03-31T00:00:00Z"),
        ("unit: month, anchor: 31", "2028-02-28T23:00:00Z", "2028-02-29T00:00:00Z"),
        (
            "unit: year, timezone: Europe/London, anchor: 04-06",
            "2026-11-23T00:00:00Z",
            "2027-04-05T23:00:00Z",
        ),
        ("unit: year, anchor: 02-29", "2027-02-27T00:00:00Z", "2027-02-28T00:00:00Z"),
        ("unit: year, anchor: 02-29", "2027-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        // Samoa had no 30 December 2011.
        ("unit: day, timezone: Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"),
        ("unit: day, timezone: Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
    ] {
        assert_eq!(reset(limit, at), end, "{limit} at {at}");
    }
}

#[test]
fn without_these_keys_units_are_those_of_the_reference() {
    assert_eq!(reset("unit: month", "1970-01-15T00:00:00Z"), "1970-01-31T00:00:00Z");
    assert_eq!(reset("unit: week", "1970-01-05T00:00:00Z"), "1970-01-08T00:00:00Z");
    assert_eq!(quota("unit: month").window.calendar(), None);
}

/// Far more windows of calendars than a process can have calendars.
#[test]
fn rules_that_are_loaded_again_and_again_have_the_calendars_of_the_first() {
    let limit = |version: usize, anchor: usize| {
        let zone = ["Indian/Maldives", "indian/maldives"][version % 2];
        format!("{{unit: month, requests_per_unit: {}, timezone: {zone}, anchor: {anchor}}}", version + 1)
    };
    let calendars = |version| {
        let limits: String =
            (1..=4).map(|key| format!("- {{key: k{key}, rate_limit: {}}}\n", limit(version, key))).collect();
        let domain = clean(&format!("domain: d\ndescriptors:\n{limits}"));
        let calendar = |key: &str| quota_of(&rule(&domain, &[(key, "x")]).expect("stated")).window.calendar();
        ["k1", "k2", "k3", "k4"].map(|key| calendar(key).expect("a calendar"))
    };
    let first = calendars(0);
    for version in 1..500 {
        assert_eq!(calendars(version), first);
    }
}

#[test]
fn equal_calendars_are_one_and_have_a_name() {
    let [one, same, first, other] = [
        "unit: month, timezone: europe/berlin, anchor: 15",
        "unit: MONTH, timezone: Europe/Berlin, anchor: \"15\"",
        "unit: month, timezone: Europe/Berlin, anchor: 1",
        "unit: month, timezone: Europe/Berlin",
    ]
    .map(quota);
    assert_eq!(one, same);
    assert_eq!(first, other);
    assert_ne!(one, other);
    assert_eq!(one.to_string(), "5 per month in Europe/Berlin from 15");
    assert_eq!(other.to_string(), "5 per month in Europe/Berlin");
    assert_eq!(quota("unit: year, anchor: 4-6").to_string(), "5 per year in UTC from 04-06");
}

#[test]
fn calendars_that_do_not_exist_are_rejected() {
    for (limit, problem) in [
        (
            "unit: day, timezone: Europe/Brelin",
            "timezone: `Europe/Brelin` is not a time zone; expected a name",
        ),
        ("unit: day, timezone: +02:00", "timezone: `+02:00` is not a time zone"),
        ("unit: hour, timezone: UTC", "timezone: `hour` is no unit of a calendar; expected day, week, month"),
        ("unit: hour, anchor: 3", "anchor: `hour` is no unit of a calendar"),
        (
            "unit: month, unit_multiplier: 3, timezone: UTC",
            "timezone: needs windows of a single unit; expected",
        ),
        ("window: 36h, timezone: UTC", "timezone: needs windows of a single unit"),
        ("unit: day, anchor: 3", "anchor: `3` has no effect on days, which begin at midnight"),
        ("unit: week, anchor: 3", "anchor: `3` is not a day of the week; expected e.g. monday"),
        ("unit: month, anchor: 0", "anchor: `0` is not a day of the month; expected 1 to 31"),
        ("unit: month, anchor: 32", "anchor: `32` is not a day of the month"),
        ("unit: month, anchor: -1", "anchor: `-1` is not a day of the month"),
        ("unit: year, anchor: 15", "anchor: `15` is not a day of the year; expected its month and day"),
        ("unit: year, anchor: 02-30", "anchor: `02-30` is not a day of the year"),
        (
            "unit: day, timezone: UTC, algorithm: token_bucket",
            "timezone: is a key of fixed windows; expected `algorithm: fixed_window`",
        ),
        (
            "unit: day, timezone: UTC, overdraft: true, carry: true, max_debt: 6",
            "max_debt: is more than the limit, but the next window is the last that a debt counts in",
        ),
    ] {
        assert_says(&errors(&file(limit)), &["a.yaml:5: descriptors[0].rate_limit.", problem]);
    }
    let concurrency = file("algorithm: concurrency, timezone: UTC");
    assert_says(&errors(&concurrency), &["rate_limit.timezone: a concurrency limit has no window"]);
    let defaults = "domain: d\ndefaults: {timezone: UTC}\n";
    assert_says(&errors(defaults), &["timezone", "rate_limit"]);
}

#[test]
fn an_override_keeps_the_calendar_unless_it_states_a_window() {
    let stated = rule_of(&file("unit: month, timezone: Europe/Berlin, anchor: 15"));
    let overridden = |with: &str| override_rule("d", &stated, with).map(|rule| quota_of(&rule).to_string());
    assert_eq!(overridden("requests_per_unit: 9").expect("valid"), "9 per month in Europe/Berlin from 15");
    assert_eq!(overridden("anchor: 3").expect("valid"), "5 per month in Europe/Berlin from 3");
    assert_eq!(overridden("timezone: Asia/Tokyo").expect("valid"), "5 per month in Asia/Tokyo from 15");
    assert_eq!(overridden("unit: day").expect("valid"), "5 per day");
    assert_eq!(overridden("unit: day\ntimezone: UTC").expect("valid"), "5 per day in UTC");
    assert_says(
        &overridden("algorithm: sliding_window").expect_err("refused"),
        &["is a key of fixed windows; expected `algorithm: fixed_window`"],
    );
}

#[test]
fn a_nested_limit_inherits_the_calendar_with_the_unit() {
    let file = |nested: &str| {
        format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{requests_per_unit: 5, unit: month, timezone: \
             Asia/Tokyo}}\n    descriptors:\n      - key: n\n        rate_limit: {{inherit: true, {nested}}}\n"
        )
    };
    let nested = |text: &str| {
        quota_of(&rule(&clean(&file(text)), &[("k", "x"), ("n", "y")]).expect("stated")).to_string()
    };
    assert_eq!(nested("requests_per_unit: 9"), "9 per month in Asia/Tokyo");
    assert_eq!(nested("anchor: 3"), "5 per month in Asia/Tokyo from 3");
    assert_eq!(nested("unit: day"), "5 per day");
    assert_eq!(nested("algorithm: token_bucket"), "5 per month");
}
