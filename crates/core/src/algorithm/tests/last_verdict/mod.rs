//! Shares that start from the last verdict of the whole counter.

mod debts;
mod sliding_window;

use std::num::NonZeroU32;

use super::*;

/// Algorithms whose counters are remembered.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog, Algorithm::TokenBucket];

/// Policies of limits, also of a limit of which one of several regions has the whole.
fn policies(quota: Quota) -> Vec<Policy> {
    let limit = quota.limit as u32;
    let of = |algorithm| Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
    let mut policies: Vec<Policy> = ALGORITHMS.into_iter().map(of).collect();
    policies.push(of(Algorithm::SlidingWindow).region_share(limit, limit));
    policies
}

/// A counter, alone or in shares.
struct Counter {
    policy: Policy,
    state: CounterState,
}

impl Counter {
    fn of(policy: Policy) -> Self {
        Self { policy, state: CounterState::default() }
    }

    fn whole(algorithm: Algorithm, quota: Quota) -> Self {
        Self::with(algorithm, quota, Parameters::default())
    }

    fn with(algorithm: Algorithm, quota: Quota, parameters: Parameters) -> Self {
        Self::of(Policy::new(algorithm, quota, &parameters).expect("valid"))
    }

    fn charge(&mut self, at: u64, hits: Hits) -> Verdict {
        let now = Timestamp::from_micros(START + at);
        let admitted = self.policy.apply(&mut self.state, now, hits, Charging::AllOrNone);
        let summary = self.policy.summary(&self.state, now, hits);
        self.policy.verdict(summary, now, hits, admitted, Charging::AllOrNone)
    }

    /// The share of one of `instances` that all had the verdict, `later` microseconds before the store failed.
    fn share(&self, verdict: &Verdict, later: u64, instances: NonZeroU32) -> Self {
        let last = self.policy.last_verdict(verdict, 0);
        let last_reply_at = verdict.decided_at.plus(Duration::from_micros(later));
        let state = self.policy.share_after(&last, last_reply_at, instances).expect("remembered");
        Self { policy: self.policy.shared_by(instances), state }
    }

    /// Number of single hits that pass at a time.
    fn drain(&mut self, at: u64) -> u64 {
        (0..100).take_while(|_| self.charge(at, Hits::ONE).admitted).count() as u64
    }
}

fn instances(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("at least one")
}

/// The counter after a history, the time of the last decision, and its verdict.
fn after(policy: Policy, history: &[(u64, Hits)]) -> (Counter, u64, Verdict) {
    let mut whole = Counter::of(policy);
    let verdicts: Vec<_> = history.iter().map(|(at, hits)| (*at, whole.charge(*at, *hits))).collect();
    let (at, verdict) = *verdicts.last().expect("one");
    (whole, at, verdict)
}

fn large_quota() -> impl Strategy<Value = Quota> {
    (6..=40_u64, 1..=7_u32).prop_map(|(limit, seconds)| quota_of(limit, seconds))
}

proptest! {
    #[test]
    fn shares_admit_at_once_what_remained_divided_by_the_instances(
        quota in large_quota(), number in 1..=5_u32, history in history()
    ) {
        for policy in policies(quota) {
            let (whole, at, verdict) = after(policy, &history);
            let mut share = whole.share(&verdict, 0, instances(number));
            let (admitted, remaining) = (share.drain(at), verdict.remaining / u64::from(number));
            // A verdict rounds the debt of a bucket up to a microsecond.
            let is_rounded = policy.algorithm() == Algorithm::TokenBucket && admitted + 1 == remaining;
            prop_assert!(admitted == remaining || is_rounded, "{:?}: {} of {}", policy, admitted, remaining);
        }
    }

    #[test]
    fn shares_together_admit_no_more_than_the_counter_would(
        quota in large_quota(), number in 1..=5_u32, history in history(), pauses in vec(0..=900_000_u64, 1..30)
    ) {
        for policy in policies(quota) {
            // The times of the hits of a log are estimated.
            if policy.algorithm() == Algorithm::SlidingWindowLog {
                continue;
            }
            let (mut whole, mut at, verdict) = after(policy, &history);
            let mut shares: Vec<_> =
                (0..number).map(|_| whole.share(&verdict, 0, instances(number))).collect();
            // The estimate of a sliding window is rounded in each share, in each window.
            let windows = pauses.iter().sum::<u64>() / 1_000_000 / u64::from(quota.window.seconds()) + 2;
            let slack = if policy.algorithm() == Algorithm::SlidingWindow { windows * u64::from(number) } else { 0 };
            let (mut of_whole, mut of_shares) = (0, 0);
            for pause in &pauses {
                at += pause;
                of_whole += whole.drain(at);
                of_shares += shares.iter_mut().map(|share| share.drain(at)).sum::<u64>();
                prop_assert!(of_shares <= of_whole + slack, "{:?}: {} of {}", policy, of_shares, of_whole);
            }
        }
    }

    #[test]
    fn a_denial_stands_until_its_time(
        quota in large_quota(), number in 1..=5_u32, history in history(), part in 0.0..1.0_f64
    ) {
        for policy in policies(quota) {
            let (mut whole, at, _) = after(policy, &history);
            whole.drain(at);
            let denial = whole.charge(at, Hits::ONE);
            let before = (denial.retry_after.as_micros() as f64 * part) as u64;
            let mut share = whole.share(&denial, 0, instances(number));
            prop_assert!(!denial.admitted);
            prop_assert_eq!(share.drain(at + before), 0, "{:?}", policy);
            let unused = denial.reset_after.as_micros() as u64;
            prop_assert!(share.drain(at + unused) > 0, "{:?} stays exhausted", policy);
        }
    }

    #[test]
    fn an_older_verdict_leaves_at_least_half_of_what_remained(
        quota in large_quota(), number in 2..=5_u32, history in history(), later in 0..=1_000_000_u64
    ) {
        for policy in policies(quota) {
            let (whole, at, verdict) = after(policy, &history);
            let fresh = whole.share(&verdict, 0, instances(number)).drain(at);
            let admitted = whole.share(&verdict, later, instances(number)).drain(at);
            prop_assert!(admitted <= fresh && admitted >= fresh.div_ceil(2), "{:?}", policy);
        }
    }
}

#[test]
fn charges_of_others_since_the_verdict_are_estimated_from_the_usage_of_the_window() {
    // START is 20 s after the start of a minute.
    let mut whole = Counter::whole(Algorithm::FixedWindow, quota_of(600, 60));
    let verdict = whole.charge(0, Hits::charge(300));
    // 300 hits in 20 s: 30 more in 2 s.
    let mut share = whole.share(&verdict, 2_000_000, instances(3));
    assert_eq!(share.policy.peek(&mut share.state, verdict.decided_at).remaining, 90);
}

#[test]
fn tokens_charged_ahead_count_as_used() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let mut whole = Counter::whole(algorithm, quota_of(90, 60));
        let verdict = whole.charge(0, Hits::charge(30));
        let last = whole.policy.last_verdict(&verdict, 30);
        let state = whole.policy.share_after(&last, verdict.decided_at, instances(3));
        let mut share =
            Counter { policy: whole.policy.shared_by(instances(3)), state: state.expect("remembered") };
        let is_bucket = algorithm == Algorithm::TokenBucket;
        assert_eq!(share.drain(0), if is_bucket { 9 } else { 10 }, "{algorithm:?}");
    }
}

#[test]
fn debts_and_carried_hits_are_divided_too() {
    let parameters = Parameters { overdraft: true, carry: true, max_debt: Some(60), ..Parameters::default() };
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
        let mut whole = Counter::with(algorithm, quota_of(30, 60), parameters);
        let verdict = whole.charge(0, Hits::Overdraw(75.try_into().expect("not 0")));
        let mut share = whole.share(&verdict, 0, instances(3));
        for (seconds, expected) in [(0, 0), (30, 0), (85, 0), (160, 10)] {
            let admitted = whole.drain(seconds * 1_000_000);
            assert!(share.drain(seconds * 1_000_000) * 3 <= admitted, "{algorithm:?} after {seconds} s");
            assert!(admitted >= expected, "{algorithm:?} after {seconds} s");
        }
    }
}

#[test]
fn a_denial_by_the_minimum_interval_stands() {
    let parameters = Parameters { min_interval: Duration::from_secs(5), ..Parameters::default() };
    let mut whole = Counter::with(Algorithm::SlidingWindowLog, quota_of(20, 60), parameters);
    whole.charge(0, Hits::ONE);
    whole.charge(10_000_000, Hits::ONE);
    let denial = whole.charge(10_500_000, Hits::ONE);
    assert_eq!((denial.admitted, denial.retry_after), (false, Duration::from_millis(4_500)));
    // The interval of one of three instances is 15 s.
    let mut share = whole.share(&denial, 0, instances(3));
    assert_eq!((share.drain(24_999_000), share.drain(25_000_000)), (0, 1));
}

#[test]
fn permits_are_not_remembered() {
    let mut whole = Counter::whole(Algorithm::Concurrency, quota_of(30, 60));
    let verdict = whole.charge(0, Hits::ONE);
    let last = whole.policy.last_verdict(&verdict, 0);
    assert_eq!(whole.policy.share_after(&last, verdict.decided_at, instances(3)), None);
}
