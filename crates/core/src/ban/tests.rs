use std::num::NonZeroU8;

use proptest::{collection::vec, prelude::*};

use super::{Ban, BanParameters, BanPolicy, BanRecord};
use crate::clock::Timestamp;
use crate::quota::{Quota, Unit, Window};

const MINUTE: Quota = Quota { limit: 60, window: Window::of(Unit::Minute) };

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + micros)
}

fn second(second: u64) -> Timestamp {
    at(second * 1_000_000 + 1)
}

fn policy(parameters: BanParameters) -> BanPolicy {
    BanPolicy::new(&parameters, MINUTE).expect("in range")
}

/// Three bad seconds within ten lead to a minute; two such intervals to two.
fn growing() -> BanPolicy {
    policy(BanParameters {
        threshold: 3,
        interval: 10,
        duration: 60,
        max_duration: Some(150),
        forgive: 1_000,
        ..BanParameters::default()
    })
}

/// Denies one hit in each of some seconds, and returns the second in which a ban began.
fn deny_in(
    record: &mut BanRecord,
    policy: &BanPolicy,
    seconds: impl IntoIterator<Item = u64>,
) -> Option<u64> {
    seconds.into_iter().find(|now| {
        let is_new = record.settle(policy, second(*now), 0).is_some_and(|ban| ban.is_new);
        record.count(policy, second(*now), 0, 1);
        is_new
    })
}

/// The second in which a ban of a new client begins.
fn banned_in(policy: &BanPolicy, seconds: impl IntoIterator<Item = u64>) -> Option<u64> {
    deny_in(&mut BanRecord::default(), policy, seconds)
}

fn ban_at(record: &BanRecord, now: u64) -> Option<(u64, u8)> {
    let ban = record.active(second(now))?;
    Some((u64::from(ban.until - second(0).seconds()), ban.level.get()))
}

#[test]
fn enough_bad_seconds_ban_when_the_last_of_them_is_over() {
    let (policy, mut record) = (growing(), BanRecord::default());
    assert_eq!(deny_in(&mut record, &policy, [0, 1, 2, 3, 4]), Some(3));
    assert_eq!(ban_at(&record, 3), Some((63, 1)));
    assert_eq!(ban_at(&record, 62), Some((63, 1)));
    assert_eq!(ban_at(&record, 63), None);
}

#[test]
fn the_last_second_of_an_interval_is_judged_in_the_one_after_it() {
    let every = policy(BanParameters { threshold: 10, interval: 10, ..BanParameters::default() });
    assert_eq!(banned_in(&every, 0..=10), Some(10));
    assert_eq!(banned_in(&every, (0..10).chain([11])), None);
}

#[test]
fn bad_seconds_of_two_intervals_do_not_add_up() {
    assert_eq!(banned_in(&growing(), [0, 1, 20, 21, 40, 41, 60, 61]), None);
}

#[test]
fn a_second_with_more_admitted_than_denied_hits_is_not_bad() {
    let policy = growing();
    for (admitted, denied, is_banned) in [(2, 1, false), (1, 1, true), (0, 1, true), (500, 499, false)] {
        let mut record = BanRecord::default();
        let mut has_ban = false;
        for now in 0..9 {
            has_ban |= record.settle(&policy, second(now), 0).is_some();
            record.count(&policy, second(now), 0, denied);
            record.count(&policy, second(now), admitted, 0);
        }
        assert_eq!(has_ban, is_banned, "{admitted} admitted, {denied} denied");
    }
}

#[test]
fn admitted_hits_leave_no_record() {
    let mut record = BanRecord::default();
    for now in 0..100 {
        assert_eq!(record.settle(&growing(), second(now), 0), None);
        record.count(&growing(), second(now), 5, 0);
    }
    assert_eq!(record, BanRecord::default());
}

#[test]
fn hits_denied_without_the_store_make_a_second_bad() {
    let (policy, mut record) = (growing(), BanRecord::default());
    // Each second admits one hit, and reports that ten were denied since the one before.
    let began = (0..9).find(|now| {
        let ban = record.settle(&policy, second(*now), 10);
        record.count(&policy, second(*now), 1, 0);
        ban.is_some_and(|ban| ban.is_new)
    });
    assert_eq!(began, Some(3));
}

#[test]
fn a_report_counts_in_the_second_of_the_last_decision() {
    let (policy, mut record) = (growing(), BanRecord::default());
    record.count(&policy, second(0), 0, 1);
    record.settle(&policy, second(1), 500);
    // A second with one admitted hit, which 500 hits denied before it do not make bad.
    record.count(&policy, second(1), 1, 0);
    record.settle(&policy, second(2), 0);
    record.count(&policy, second(2), 0, 1);
    record.settle(&policy, second(3), 0);
    record.count(&policy, second(3), 0, 1);
    assert_eq!(record.settle(&policy, second(3), 0), None, "two bad seconds so far");
    assert!(record.settle(&policy, second(4), 0).is_some());
}

#[test]
fn bans_double_up_to_the_maximum_and_are_forgiven_one_at_a_time() {
    let (policy, mut record) = (growing(), BanRecord::default());
    assert_eq!(policy.max_level(), 3);
    let mut now = 0;
    for (level, length) in [(1, 60), (2, 120), (3, 150), (3, 150)] {
        let began = deny_in(&mut record, &policy, now..now + 5).expect("banned");
        assert_eq!(ban_at(&record, began), Some((began + length, level)));
        now = began + length;
    }
    // Two of three are forgiven, and the third is begun.
    let began = deny_in(&mut record, &policy, now + 2_000..now + 2_005).expect("banned");
    assert_eq!(ban_at(&record, began), Some((began + 120, 2)));
    let long_after = began + 120 + 2_000;
    assert_eq!(u64::from(record.expires_at() - second(0).seconds()), long_after);
    let began = deny_in(&mut record, &policy, long_after..long_after + 5).expect("banned");
    assert_eq!(ban_at(&record, began), Some((began + 60, 1)));
}

#[test]
fn knocking_neither_extends_a_ban_nor_counts_for_the_next() {
    let (policy, mut record) = (growing(), BanRecord::default());
    deny_in(&mut record, &policy, 0..5);
    let words = record.words();
    deny_in(&mut record, &policy, 4..63);
    assert_eq!(record.words(), words);
    assert_eq!(deny_in(&mut record, &policy, [63, 64, 65]), None);
    assert_eq!(deny_in(&mut record, &policy, [66]), Some(66));
}

#[test]
fn without_growth_every_ban_is_a_first_one_and_leaves_nothing() {
    let policy = policy(BanParameters { threshold: 1, ..BanParameters::default() });
    let mut record = BanRecord::default();
    for start in [0, 700, 1_400] {
        let began = deny_in(&mut record, &policy, [start, start + 1]).expect("banned");
        assert_eq!(ban_at(&record, began), Some((began + 600, 1)));
        assert_eq!(u64::from(record.expires_at() - second(0).seconds()), began + 600);
    }
}

#[test]
fn bans_of_the_maximum_length_in_a_row_list_the_client() {
    let parameters = BanParameters { threshold: 3, interval: 10, duration: 60, ..BanParameters::default() };
    for (growth, forgive, levels) in [(None, 86_400, 3), (Some(120), 86_400, 4), (Some(60), 1, 0)] {
        let policy =
            policy(BanParameters { max_duration: growth, forgive, list_after: Some(3), ..parameters });
        let (mut record, mut now, mut listed) = (BanRecord::default(), 0, Vec::new());
        for number in 1..=5 {
            let began = deny_in(&mut record, &policy, now..now + 5).expect("banned");
            let (until, level) = ban_at(&record, began).expect("active");
            assert!(until <= began + u64::from(policy.max_duration));
            if policy.lists(level) {
                listed.push(number);
            }
            now = until;
        }
        // Where a second forgives a ban, there are no bans in a row.
        let expected: Vec<u32> = if levels == 0 { Vec::new() } else { (levels..=5).collect() };
        assert_eq!(listed, expected, "{growth:?}");
    }
    assert!(!growing().lists(growing().max_level()), "without `list_after` none does");
    assert!((1..=31).all(|count| {
        let parameters = BanParameters { list_after: Some(count), ..parameters };
        u32::from(policy(parameters).max_level()) == count
    }));
}

#[test]
fn an_interval_that_reaches_too_far_ahead_is_replaced() {
    // The clock was set back by an hour, or the interval was that of an earlier rule.
    let long = policy(BanParameters { threshold: 3, interval: 3_600, ..BanParameters::default() });
    for (earlier, then) in [(growing(), 3_600), (long, 0)] {
        let mut record = BanRecord::default();
        assert_eq!(deny_in(&mut record, &earlier, [then, then + 1]), None);
        assert_eq!(deny_in(&mut record, &growing(), [2, 30, 60, 90]), None, "each begins an interval");
    }
    assert_eq!(banned_in(&growing(), [3, 4, 2, 3, 4]), Some(3), "a small step does not");
}

#[test]
fn a_lifted_ban_keeps_its_level() {
    let (policy, mut record) = (growing(), BanRecord::default());
    deny_in(&mut record, &policy, 0..5);
    record.lift();
    assert_eq!(ban_at(&record, 4), None);
    let began = deny_in(&mut record, &policy, 5..10).expect("banned");
    assert_eq!(ban_at(&record, began), Some((began + 120, 2)));
    let mut counting = BanRecord::default();
    deny_in(&mut counting, &policy, [0]);
    let before = counting;
    counting.lift();
    assert_eq!(counting, before);
}

#[test]
fn a_ban_is_never_longer_than_the_policy_has_it() {
    let (long, mut record) = (growing(), BanRecord::default());
    deny_in(&mut record, &long, 0..5);
    let short = policy(BanParameters { threshold: 3, interval: 10, duration: 5, ..BanParameters::default() });
    assert!(record.settle(&short, second(10), 0).is_some());
    assert_eq!(ban_at(&record, 10), Some((15, 1)));
    // A clock that was an hour ahead.
    let mut ahead = BanRecord::default();
    deny_in(&mut ahead, &long, 3_600..3_605);
    assert!(ahead.settle(&long, second(0), 0).is_some());
    assert_eq!(ban_at(&ahead, 0), Some((60, 1)));
}

#[test]
fn large_limits_count_in_units() {
    let quota = Quota { limit: 50_000, window: Window::of(Unit::Second) };
    let parameters = BanParameters { threshold: 3, interval: 10, ..BanParameters::default() };
    let policy = BanPolicy::new(&parameters, quota).expect("in range");
    assert_eq!(policy.grain, 196);
    for (admitted, denied, is_banned) in [(50_000, 40_000, false), (50_000, 70_000, true), (9, 90_000, true)]
    {
        let mut record = BanRecord::default();
        let mut has_ban = false;
        for step in 0..9_000_u64 {
            let now = at(step * 1_003);
            has_ban |= record.settle(&policy, now, 0).is_some();
            record.count(&policy, now, admitted / 1_000, denied / 1_000);
        }
        assert_eq!(has_ban, is_banned, "{admitted} admitted, {denied} denied a second");
    }
}

#[test]
fn parameters_out_of_range_are_refused() {
    let default = BanParameters::default;
    for (parameters, key) in [
        (BanParameters { interval: 0, ..default() }, "interval"),
        (BanParameters { interval: 3_601, ..default() }, "interval"),
        (BanParameters { threshold: 0, ..default() }, "threshold"),
        (BanParameters { threshold: 301, ..default() }, "threshold"),
        (BanParameters { duration: 0, ..default() }, "duration"),
        (BanParameters { max_duration: Some(599), ..default() }, "max_duration"),
        (BanParameters { forgive: 0, ..default() }, "forgive"),
        (BanParameters { list_after: Some(0), ..default() }, "list_after"),
        (BanParameters { list_after: Some(32), ..default() }, "list_after"),
        (BanParameters { max_duration: Some(2_400), list_after: Some(30), ..default() }, "list_after"),
    ] {
        assert_eq!(BanPolicy::new(&parameters, MINUTE).map_err(|error| error.key), Err(key));
    }
}

#[test]
fn a_ban_takes_eight_bytes_in_a_verdict() {
    assert_eq!(size_of::<Option<Ban>>(), 8);
}

/// Seconds to wait, hits reported, admitted and denied.
fn step() -> impl Strategy<Value = (u64, u16, u64, u64)> {
    (
        prop_oneof![4 => 0..3_u64, 1 => 0..100_u64, 1 => 0..3_000_u64],
        prop_oneof![3 => Just(0), 1 => 0..2_000_u16],
        0..5_u64,
        0..5_u64,
    )
}

proptest! {
    #[test]
    fn a_record_survives_its_stored_form(steps in vec(step(), 1..100)) {
        let (policy, mut record, mut now) = (growing(), BanRecord::default(), 0);
        for (wait, reported, admitted, denied) in steps {
            now += wait;
            let (mut stored, time) = (BanRecord::from_words(record.words()), second(now));
            prop_assert_eq!(stored.words(), record.words());
            prop_assert_eq!(stored.settle(&policy, time, reported), record.settle(&policy, time, reported));
            stored.count(&policy, time, admitted, denied);
            record.count(&policy, time, admitted, denied);
            prop_assert_eq!(stored, record);
        }
    }

    #[test]
    fn an_expired_record_decides_like_none(
        steps in vec(step(), 1..60),
        after in vec(step(), 1..60),
    ) {
        let (policy, mut record, mut now) = (growing(), BanRecord::default(), 0);
        for (wait, reported, admitted, denied) in steps {
            now += wait;
            record.settle(&policy, second(now), reported);
            record.count(&policy, second(now), admitted, denied);
        }
        now = now.max(u64::from(record.expires_at().saturating_sub(second(0).seconds())));
        let mut unused = BanRecord::default();
        for (wait, reported, admitted, denied) in after {
            now += wait;
            let time = second(now);
            prop_assert_eq!(record.settle(&policy, time, reported), unused.settle(&policy, time, reported));
            record.count(&policy, time, admitted, denied);
            unused.count(&policy, time, admitted, denied);
        }
    }

    #[test]
    fn bans_have_the_length_of_their_level_and_need_bad_seconds(steps in vec(step(), 1..200)) {
        let (policy, mut record, mut now) = (growing(), BanRecord::default(), 0);
        let mut seconds_denied = std::collections::BTreeSet::new();
        for (wait, _, admitted, denied) in steps {
            now += wait;
            let time = second(now);
            if let Some(ban) = record.settle(&policy, time, 0).filter(|ban| ban.is_new) {
                prop_assert_eq!(u64::from(ban.until - second(0).seconds()), now + u64::from(policy.length(ban.level.get())));
                prop_assert!(ban.level <= NonZeroU8::new(policy.max_level()).expect("positive"));
                let recent = seconds_denied.range(now.saturating_sub(10)..now).count();
                prop_assert!(recent >= 3, "{recent} seconds with denials");
                seconds_denied.clear();
            }
            let is_banned = record.active(time).is_some();
            record.count(&policy, time, admitted, denied);
            if !is_banned && denied > 0 {
                seconds_denied.insert(now);
            }
        }
    }
}
