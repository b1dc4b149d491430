//! Budgets: reservations against a plain list of leases.

use std::num::{NonZeroU32, NonZeroU64};

use super::*;

const TTL: u32 = 30;

fn budget(limit: u32, window: u32, unsettled: Unsettled) -> Policy {
    let quota = Quota { limit: limit.into(), window: Window::from_seconds(window).expect("in range") };
    let reserve = Reserve { ttl: NonZeroU32::new(TTL).expect("not 0"), unsettled, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
}

fn lease(number: u64) -> LeaseId {
    LeaseId::new(NonZeroU64::new(number).expect("not 0"))
}

fn acquire(number: u64, amount: u64) -> Hits {
    Hits::Acquire { amount: NonZeroU64::new(amount).expect("not 0"), lease: lease(number) }
}

fn settle(number: u64, used: u64) -> Hits {
    Hits::Settle { lease: lease(number), used }
}

/// A counter, and the second that it is at.
struct Counter {
    policy: Policy,
    state: CounterState,
    second: u64,
}

impl Counter {
    fn new(policy: Policy) -> Self {
        Self { policy, state: CounterState::default(), second: 0 }
    }

    /// Its lease 1 holds 60 hits.
    fn leased(policy: Policy) -> Self {
        let mut counter = Self::new(policy);
        assert!(counter.decide(acquire(1, 60)).admitted);
        counter
    }

    fn decide(&mut self, hits: Hits) -> Verdict {
        let now = Timestamp::from_micros(START + self.second * 1_000_000);
        let admitted = self.policy.apply(&mut self.state, now, hits, Charging::AllOrNone);
        let summary = self.policy.summary(&self.state, now, hits);
        self.policy.verdict(summary, now, hits, admitted, Charging::AllOrNone)
    }

    /// Used and held hits.
    fn counts(&mut self) -> (u64, u64) {
        let verdict = self.decide(Hits::Peek);
        (verdict.used, verdict.held)
    }
}

#[test]
fn parallel_reservations_never_exceed_the_limit() {
    let mut counter = Counter::new(budget(2_000, 3_600, Unsettled::Charge));
    let admitted: Vec<_> = (1..=20).filter(|number| counter.decide(acquire(*number, 480)).admitted).collect();
    assert_eq!((admitted, counter.counts()), (vec![1, 2, 3, 4], (0, 1_920)));
    for number in 1..=4 {
        counter.decide(settle(number, 100));
    }
    assert_eq!(counter.counts(), (400, 0));
}

#[test]
fn usage_beyond_the_reservation_counts_beyond_the_limit_too() {
    let mut counter = Counter::leased(budget(100, 3_600, Unsettled::Charge));
    assert!(counter.decide(settle(1, 500)).admitted);
    assert_eq!(counter.counts(), (500, 0));
    let denied = counter.decide(acquire(2, 1));
    assert!(!denied.admitted && denied.retry_after > Duration::from_secs(1), "{denied:?}");
}

#[test]
fn a_lease_that_only_others_deny_may_pass_soon() {
    let mut counter = Counter::leased(budget(100, 3_600, Unsettled::Charge));
    let denied = counter.decide(acquire(2, 60));
    assert_eq!((denied.admitted, denied.retry_after, denied.over), (false, Duration::from_secs(1), 20));
    assert_eq!(counter.decide(acquire(3, 101)).retry_after, Duration::MAX);
}

#[test]
fn unsettled_leases_are_charged_or_released() {
    for (unsettled, used) in [(Unsettled::Charge, 60), (Unsettled::Release, 0)] {
        let mut counter = Counter::leased(budget(100, 3_600, unsettled));
        counter.second = u64::from(TTL) - 1;
        assert_eq!(counter.counts(), (0, 60), "{unsettled:?}");
        counter.second = u64::from(TTL);
        assert_eq!(counter.counts(), (used, 0), "{unsettled:?}");
        counter.decide(acquire(2, 7));
        counter.decide(settle(2, 0));
        let used = if used > 0 { used + 7 } else { 0 };
        assert_eq!(counter.counts(), (used, 0), "no usage was seen, {unsettled:?}");
        // It ended, so what was used counts in place of what was charged; once.
        for late in [25, 0, 99] {
            counter.decide(settle(1, late));
            assert_eq!(counter.counts(), (used.min(7) + 25, 0), "{unsettled:?}");
        }
    }
}

#[test]
fn a_late_settlement_replaces_the_charge_of_the_end_for_one_more_time_to_live() {
    for (late, used) in [(0, 60), (1, 1), (60, 60), (500, 500)] {
        let mut counter = Counter::leased(budget(1_000, 3_600, Unsettled::Charge));
        counter.second = 2 * u64::from(TTL) - 1;
        counter.decide(settle(1, late));
        assert_eq!(counter.counts(), (used, 0), "{late}");
        counter.second += u64::from(TTL);
        assert_eq!(counter.counts(), (used, 0), "{late}");
    }
    let mut counter = Counter::leased(budget(1_000, 3_600, Unsettled::Charge));
    counter.second = 2 * u64::from(TTL);
    counter.decide(settle(1, 40));
    assert_eq!(counter.counts(), (100, 0), "it is forgotten");
}

#[test]
fn a_late_settlement_takes_nothing_from_the_hits_of_another_window() {
    for (late, counted) in [(0, 0), (40, 0), (90, 30)] {
        let mut counter = Counter::leased(budget(1_000, 10, Unsettled::Charge));
        counter.second = u64::from(TTL);
        assert_eq!(counter.counts(), (60, 0), "charged in the window of its end");
        counter.second += 10;
        counter.decide(Hits::charge(7));
        counter.decide(settle(1, late));
        assert_eq!(counter.counts(), (7 + counted, 0), "{late}");
    }
}

#[test]
fn a_known_lease_reserves_no_more_than_it_holds() {
    let mut counter = Counter::leased(budget(100, 3_600, Unsettled::Charge));
    let mut reserve = |amount, counts| {
        let verdict = counter.decide(acquire(1, amount));
        assert_eq!(verdict.admitted, !verdict.has_conflict(), "{verdict:?}");
        assert_eq!((verdict.used, verdict.held), counts);
        verdict.admitted
    };
    assert_eq!([60, 40, 61, 200].map(|amount| reserve(amount, (0, 60))), [true, true, false, false]);
    counter.decide(settle(1, 10));
    assert!(counter.decide(acquire(1, 1)).has_conflict(), "settled");
    counter.decide(acquire(2, 60));
    counter.second = u64::from(TTL);
    counter.decide(acquire(3, 1));
    assert!(counter.decide(acquire(2, 60)).has_conflict(), "ended");
    let denied = counter.decide(acquire(4, 100));
    assert!(!denied.admitted && !denied.has_conflict(), "{denied:?}");
}

#[test]
fn what_ended_in_an_earlier_window_counts_no_more() {
    let mut counter = Counter::leased(budget(100, 10, Unsettled::Charge));
    // Two windows after that in which it ended.
    counter.second = u64::from(TTL) + 20;
    assert_eq!(counter.counts(), (0, 0));
}

#[test]
fn usage_counts_in_the_window_in_which_it_is_settled() {
    let mut counter = Counter::leased(budget(100, 10, Unsettled::Charge));
    counter.second = 15;
    assert_eq!(counter.counts(), (0, 60), "held over the end of the window");
    counter.decide(settle(1, 40));
    assert_eq!(counter.counts(), (40, 0));
}

#[test]
fn a_cancelled_lease_leaves_nothing() {
    let mut counter = Counter::leased(budget(100, 3_600, Unsettled::Charge));
    for _ in 0..2 {
        counter.decide(Hits::Release(lease(1)));
        assert_eq!(counter.counts(), (0, 0));
    }
    counter.second = u64::from(TTL) + 1;
    assert_eq!(counter.counts(), (0, 0));
}

#[test]
fn leases_of_a_counter_are_bounded() {
    let mut counter = Counter::new(budget(u32::MAX, 3_600, Unsettled::Charge));
    let most = u64::try_from(crate::algorithm::budget::MAX_LEASES).expect("fits");
    for number in 1..=most + 10 {
        counter.decide(acquire(number, 1));
    }
    let (used, held) = counter.counts();
    // The oldest ended, some together.
    assert_eq!(used + held, most + 10);
    assert!((10..=16).contains(&used), "{used}");
}

#[test]
fn a_call_ends_some_of_many_leases_and_those_that_it_names() {
    let mut counter = Counter::new(budget(u32::MAX, 3_600, Unsettled::Release));
    let reserve = |counter: &mut Counter, first: u64| {
        (first..first + 2_000).for_each(|number| assert!(counter.decide(acquire(number, 1)).admitted));
    };
    reserve(&mut counter, 1);
    counter.second = 1;
    counter.decide(acquire(2_001, 1));
    counter.second = u64::from(TTL);
    // Batches of seven, until 500 have ended.
    let held: Vec<_> = (0..4).map(|_| counter.counts().1).collect();
    assert_eq!(held, [1_497, 993, 489, 1]);

    reserve(&mut counter, 3_000);
    counter.second = 1 + 2 * u64::from(TTL);
    assert_eq!(counter.counts(), (0, 0), "all have ended");

    reserve(&mut counter, 6_000);
    counter.second += 1;
    counter.decide(acquire(9_000, 1));
    counter.second += u64::from(TTL) - 1;
    counter.decide(settle(7_900, 5));
    // The named one has ended too, so what was used counts.
    assert_eq!(counter.counts(), (5, 2_001 - 1 - 2 * 504));
}

#[test]
fn a_cap_cuts_a_reservation_to_a_share_of_the_limit() {
    let ttl = NonZeroU32::new(TTL).expect("not 0");
    let reserve = |add, cap| Reserve { ttl, unsettled: Unsettled::Charge, add, cap: NonZeroU32::new(cap) };
    let amount = |reserve: Reserve, hits| reserve.amount(NonZeroU64::new(hits).expect("not 0"), 2_000).get();
    assert_eq!(amount(reserve(0, 0), 5_000), 5_000);
    assert_eq!(amount(reserve(500, 0), 480), 980);
    assert_eq!(amount(reserve(500, 2_500), 480), 500);
    assert_eq!(amount(reserve(0, 1), 480), 1, "never less than one hit");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire { number: u64, amount: u64 },
    Settle { number: u64, used: u64 },
    Cancel { number: u64 },
    Wait { seconds: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..=40_u64, 1..=30_u64).prop_map(|(number, amount)| Step::Acquire { number, amount }),
        3 => (1..=40_u64, 0..=60_u64).prop_map(|(number, used)| Step::Settle { number, used }),
        1 => (1..=40_u64).prop_map(|number| Step::Cancel { number }),
        2 => (0..=9_u64).prop_map(|seconds| Step::Wait { seconds }),
    ];
    vec(step, 1..200)
}

/// A lease of the oracle: its end, and what it holds or was charged.
#[derive(Clone, Copy)]
enum Known {
    Open(u64),
    Settled,
    Charged(u64),
}

/// Used hits, and the leases with their ends.
#[derive(Default)]
struct Oracle {
    used: u64,
    leases: std::collections::BTreeMap<u64, (u64, Known)>,
}

impl Oracle {
    fn held(&self) -> u64 {
        let held = |(_, known): &(u64, Known)| if let Known::Open(held) = known { *held } else { 0 };
        self.leases.values().map(held).sum()
    }

    fn end_due(&mut self, second: u64, is_charged: bool) {
        let due = |(_, (end, _)): &(&u64, &(u64, Known))| *end <= second;
        while let Some((number, (end, known))) =
            self.leases.iter().filter(due).min_by_key(|(_, (end, _))| *end)
        {
            let (number, end, known) = (*number, *end, *known);
            self.leases.remove(&number);
            let Known::Open(held) = known else { continue };
            if is_charged {
                self.used += held;
                if end + u64::from(TTL) > second {
                    self.leases.insert(number, (second + u64::from(TTL), Known::Charged(held)));
                }
            }
        }
    }

    fn settle(&mut self, number: u64, actual: u64, end: u64, is_charged: bool) {
        let Some((_, known)) = self.leases.get_mut(&number) else {
            if actual > 0 {
                self.used += actual;
                self.leases.insert(number, (end, Known::Settled));
            }
            return;
        };
        match *known {
            Known::Open(held) => {
                self.used += if actual == 0 && is_charged { held } else { actual };
                *known = Known::Settled;
            }
            Known::Charged(hits) if actual > 0 => {
                self.used = self.used + actual - hits;
                *known = Known::Settled;
            }
            Known::Charged(_) | Known::Settled => {}
        }
    }
}

proptest! {
    /// In one window, a plain list of leases has the same used and held hits after each step; and in the end all leases
    /// have ended.
    #[test]
    fn usage_is_the_sum_by_the_stated_rule(steps in steps(), is_charged in any::<bool>(), limit in 1..=200_u32) {
        let unsettled = if is_charged { Unsettled::Charge } else { Unsettled::Release };
        let mut counter = Counter::new(budget(limit, 31_536_000, unsettled));
        let mut oracle = Oracle::default();
        for step in steps.into_iter().chain([Step::Wait { seconds: u64::from(TTL) }]) {
            let end = counter.second + u64::from(TTL);
            match step {
                Step::Wait { seconds } => {
                    counter.second += seconds;
                    oracle.end_due(counter.second, is_charged);
                }
                Step::Acquire { number, amount } => {
                    let passes = match oracle.leases.get(&number) {
                        Some((_, Known::Open(held))) => *held >= amount,
                        Some(_) => false,
                        None => oracle.used + oracle.held() + amount <= u64::from(limit),
                    };
                    prop_assert_eq!(counter.decide(acquire(number, amount)).admitted, passes);
                    if passes && !oracle.leases.contains_key(&number) {
                        oracle.leases.insert(number, (end, Known::Open(amount)));
                    }
                }
                Step::Settle { number, used } => {
                    prop_assert!(counter.decide(settle(number, used)).admitted);
                    oracle.settle(number, used, end, is_charged);
                }
                Step::Cancel { number } => {
                    counter.decide(Hits::Release(lease(number)));
                    if let Some((_, Known::Open(_))) = oracle.leases.get(&number) {
                        oracle.leases.remove(&number);
                    }
                }
            }
            prop_assert_eq!(counter.counts(), (oracle.used, oracle.held()));
        }
        prop_assert_eq!(counter.counts().1, 0);
    }
}
