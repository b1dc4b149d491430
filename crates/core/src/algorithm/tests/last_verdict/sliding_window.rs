//! Shares of sliding windows.

use super::*;

#[test]
fn a_share_of_a_sliding_window_has_no_room_before_the_whole_has() {
    let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(21, 7));
    // 17 hits of the previous window, of which 14 count for 412 ms more, and 7 of this one.
    whole.state = CounterState::Words([1_700_000_092, 7, 17]);
    let at = 78_823_532;
    let denial = whole.charge(at, Hits::ONE);
    assert_eq!(denial.retry_after, Duration::from_micros(411_764));
    for number in 2..=5 {
        let mut share = whole.share(&denial, 0, instances(number));
        assert_eq!(share.drain(at + 411_763), 0, "{number} instances");
    }
}

#[test]
fn a_sliding_window_at_a_steady_rate_is_continued() {
    let quota = quota_of(300, 60);
    let alone = Counter::whole(Algorithm::SlidingWindow, quota).policy;
    for (policy, start) in [alone, alone.region_share(300, 300)]
        .into_iter()
        .flat_map(|policy| [0, 25, 40].map(|start| (policy, start * 1_000_000)))
    {
        let mut whole = Counter::of(policy);
        // 90 % of the limit, for two windows.
        let at = |hit: u64| start + hit * 222_222;
        let verdict = (0..540_u64).map(|hit| whole.charge(at(hit), Hits::ONE)).last().expect("one");
        let mut shares: Vec<_> = (0..3).map(|_| whole.share(&verdict, 0, instances(3))).collect();
        let continued = (540..810_u64)
            .filter(|hit| shares[(hit % 3) as usize].charge(at(*hit), Hits::ONE).admitted)
            .count();
        assert!(continued >= 260, "{continued} of 270 from {start} on: {policy:?}");
    }
}

#[test]
fn a_share_of_a_sliding_window_decays_as_the_whole_does_whatever_the_limit() {
    const DAY: u64 = 86_400_000_000;
    let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(1_000_000, 86_400));
    let edge = DAY - START % DAY;
    let at = edge + DAY + DAY / 2;
    whole.charge(edge, Hits::charge(400_000));
    whole.charge(at, Hits::charge(800_000));
    let denial = whole.charge(at, Hits::ONE);
    assert!(!denial.admitted);
    let share = whole.share(&denial, 0, instances(1));
    let later = Timestamp::from_micros(START + at + DAY / 3);
    let unused = |counter: &Counter| counter.policy.peek(&mut counter.state.clone(), later).remaining;
    assert!(unused(&share) <= unused(&whole));
    assert!(unused(&share) >= unused(&whole) - 2, "{} of {}", unused(&share), unused(&whole));
}

#[test]
fn after_a_change_of_length_a_share_of_a_sliding_window_admits_what_remained() {
    let now = Timestamp::from_micros(START);
    let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(100, 60));
    let former = Counter::whole(Algorithm::SlidingWindow, quota_of(100, 30)).policy;
    whole.policy = whole.policy.succeeding(&former, now);
    // START is 20 s after the start of a minute.
    let verdict = whole.charge(39_000_000, Hits::charge(50));
    let mut share = whole.share(&verdict, 0, instances(2));
    assert_eq!((share.drain(39_000_000), share.drain(40_000_000)), (25, 0));
}

#[test]
fn tokens_charged_ahead_of_a_sliding_window_count_until_its_end() {
    let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(100, 60));
    let verdict = whole.charge(40_000_000, Hits::ONE);
    let last = whole.policy.last_verdict(&verdict, 50);
    let state = whole.policy.share_after(&last, verdict.decided_at, instances(1)).expect("remembered");
    let mut share = Counter { policy: whole.policy, state };
    assert_eq!((share.drain(40_000_000), share.drain(99_000_000)), (49, 0));
    assert!(!last.is_over(Timestamp::from_micros(START + 150_000_000)), "it counts in the next window");
}

#[test]
fn a_denial_of_a_sliding_window_stands_after_it_was_made_shorter() {
    // The windows of the former length end between those of the new one.
    for (former, length, limit) in [(3_600, 60, 100), (20, 16, 1), (74, 29, 1), (62, 52, 3)] {
        let old = Counter::whole(Algorithm::SlidingWindow, quota_of(limit, former)).policy;
        let mut whole = Counter::of(old);
        whole.charge(0, Hits::charge(limit));
        let since = Timestamp::from_micros(START + 1_000_000);
        let new = Counter::whole(Algorithm::SlidingWindow, quota_of(limit, length)).policy;
        whole.policy = new.succeeding(&old, since);
        let denial = whole.charge(2_000_000, Hits::ONE);
        assert!(!denial.admitted);
        let retry_at = 2_000_000 + denial.retry_after.as_micros() as u64;
        let mut share = whole.share(&denial, 0, instances(1));
        assert_eq!(share.drain(retry_at - 1), 0, "{former} s, then {length} s");
    }
}

#[test]
fn the_debt_of_a_sliding_window_lasts_no_longer_where_shares_are_rounded_down() {
    for (limit, number) in [(19, 10), (15, 8), (99, 50), (29, 10), (299, 10)] {
        let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(limit, 60));
        // START is 20 s after the start of a minute.
        whole.charge(39_000_000, Hits::charge(limit));
        whole.charge(41_000_000, Hits::Overdraw(limit.try_into().expect("not 0")));
        let denial = whole.charge(41_000_000, Hits::ONE);
        let retry_at = 41_000_000 + denial.retry_after.as_micros() as u64;
        let mut share = whole.share(&denial, 0, instances(number));
        assert_eq!(share.drain(retry_at - 1), 0);
        assert!(share.drain(retry_at + 1_000_000) > 0, "{limit} by {number}");
    }
}

#[test]
fn a_denial_of_a_sliding_window_stands_after_the_clock_stepped_back() {
    let mut whole = Counter::whole(Algorithm::SlidingWindow, quota_of(100, 60));
    whole.charge(60_000_000, Hits::charge(100));
    let denial = whole.charge(30_000_000, Hits::ONE);
    let retry_at = 30_000_000 + denial.retry_after.as_micros() as u64;
    assert_eq!(whole.share(&denial, 0, instances(2)).drain(retry_at - 1), 0);
}
