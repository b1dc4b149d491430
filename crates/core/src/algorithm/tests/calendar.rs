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

#[test]
fn a_debt_counts_in_the_next_window_and_in_no_other() {
    let calendar = uneven_days(100);
    let quota = Quota { limit: 10, window: Window::in_calendar(calendar) };
    let parameters = Parameters { overdraft: true, carry: true, ..Parameters::default() };
    let policy = Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid");
    let mut state = CounterState::default();
    let mut start = 20 * DAY;
    for window in 0..40 {
        let end = u64::from(calendar.window(u32::try_from(start).expect("in range")).end);
        // Each second window is left with a debt of 7, of which the next one pays.
        let (hits, used) = if window % 2 == 0 { (17, 17) } else { (3, 10) };
        let overdraft = Hits::Overdraw(std::num::NonZeroU64::new(hits).expect("not 0"));
        policy.apply(&mut state, at_second(start), overdraft, Charging::Independent);
        let read = |state: &mut CounterState, second| decide(&policy, state, second, 0);
        let verdict = read(&mut state, start);
        assert_eq!((verdict.used, verdict.remaining), (used, 0), "{window}");
        let next = u64::from(calendar.window(u32::try_from(end).expect("in range")).end);
        let expected = if window % 2 == 0 { next } else { end };
        assert_eq!(verdict.reset_after.as_secs(), expected - start, "{window}");
        assert_eq!(read(&mut state, end - 1).used, used, "{window}");
        start = end;
    }
}

#[test]
fn a_window_admits_a_share_of_what_the_last_one_left_and_pays_its_debt() {
    let calendar = uneven_days(100);
    for window in [Window::in_calendar(calendar), Window::from_seconds(86_400).expect("in range")] {
        let quota = Quota { limit: 100, window };
        let parameters =
            Parameters { overdraft: true, carry: true, unused_percent: 20, ..Parameters::default() };
        let policy = Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid");
        let end_of =
            |second| u64::from(policy.prefetched_until(at_second(second)).expect("a window").seconds());
        let mut state = CounterState::default();
        let mut start = 20 * DAY;
        // The hits of each window, and what it admits.
        for (hits, admits) in [
            (0, 120),
            (40, 120),
            (116, 116),
            (104, 100),
            (200, 96),
            (20, 0),
            (0, 80),
            (0, 116),
            (120, 120),
            (90, 100),
            (0, 102),
        ] {
            let read = decide(&policy, &mut state, start, 0);
            assert_eq!(read.remaining, admits, "{hits} in {window}");
            if let Some(hits) = std::num::NonZeroU64::new(hits) {
                policy.apply(&mut state, at_second(start), Hits::Overdraw(hits), Charging::Independent);
            }
            start = end_of(start);
            let is_kept = u64::from(policy.expires_at(&state)) > start;
            assert!(is_kept || hits == 0, "{hits}");
        }
    }
}
