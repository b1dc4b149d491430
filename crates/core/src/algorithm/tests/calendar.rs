//! Fixed windows of a calendar.

use super::*;
use crate::calendar::tests::uneven_days;

const DAY: u64 = 86_400;

/// A limit of 10 hits in uneven days, and the ends of the windows that contain seconds.
fn policy() -> (Policy, impl Fn(u64) -> u64) {
    let calendar = uneven_days(100);
    let quota = Quota { limit: 10, window: Window::in_calendar(calendar) };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).expect("valid");
    (policy, move |second| u64::from(calendar.window(u32::try_from(second).expect("in range")).end))
}

fn at_second(second: u64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn decide(policy: &Policy, state: &mut CounterState, second: u64, hits: u64) -> Verdict {
    let (now, hits) = (at_second(second), Hits::charge(hits));
    let admitted = policy.apply(state, now, hits, Charging::Independent);
    policy.verdict(policy.summary(state, now, hits), now, hits, admitted, Charging::Independent)
}

#[test]
fn hits_count_until_the_end_of_their_window_and_no_longer() {
    let (policy, end_of) = policy();
    let mut state = CounterState::default();
    let mut start = 20 * DAY;
    for window in 0..50 {
        let end = end_of(start);
        let first = decide(&policy, &mut state, start, 10);
        assert_eq!(
            (first.admitted, first.used, first.reset_after.as_secs()),
            (true, 10, end - start),
            "{window}"
        );
        let last = decide(&policy, &mut state, end - 1, 1);
        assert_eq!((last.admitted, last.retry_after.as_secs()), (false, 1), "{window}");
        start = end;
    }
}

#[test]
fn usage_of_a_clock_that_was_far_ahead_counts_in_the_present_window_only() {
    let (policy, end_of) = policy();
    for (ahead, expected) in [(3, None), (40, Some(end_of(30 * DAY)))] {
        let mut state = CounterState::default();
        decide(&policy, &mut state, (30 + ahead) * DAY, 10);
        let verdict = decide(&policy, &mut state, 30 * DAY, 1);
        let end = expected.unwrap_or(end_of((30 + ahead) * DAY));
        assert_eq!(
            (verdict.admitted, verdict.reset_after.as_secs()),
            (false, end - 30 * DAY),
            "{ahead} days"
        );
    }
}

#[test]
fn a_change_from_a_fixed_length_keeps_the_usage_until_the_later_end() {
    let (policy, end_of) = policy();
    let quota = Quota { limit: 10, window: Window::from_seconds(172_800).expect("in range") };
    let former = Policy::new(Algorithm::FixedWindow, quota, &Parameters::default()).expect("valid");
    let mut state = CounterState::default();
    assert!(decide(&former, &mut state, 30 * DAY, 10).admitted);
    let verdict = decide(&policy, &mut state, 30 * DAY, 1);
    assert_eq!((verdict.admitted, verdict.reset_after.as_secs()), (false, 2 * DAY));
    assert!(decide(&policy, &mut state, 32 * DAY, 10).admitted);
    assert!(end_of(32 * DAY) > 32 * DAY);
}
