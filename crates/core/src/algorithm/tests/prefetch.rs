//! Prefetched tokens are never more than would have passed when they are spent.

use proptest::{collection::vec, prelude::*};

use super::*;

/// Step of one of several instances.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Charges hits, with a prefetch.
    Charge(u64, Prefetch),
    /// Spends tokens of one of the prefetches, if its hold has not ended.
    Spend(usize, u32),
    /// Refunds tokens of one of the prefetches, at any time.
    Refund(usize, u32),
}

/// Prefetched tokens of an instance.
#[derive(Debug)]
struct Prefetched {
    tokens: u32,
    made_at: Timestamp,
    until: Timestamp,
}

/// A counter that is charged ahead, and one that is charged when tokens are spent.
struct Both {
    policy: Policy,
    ahead: CounterState,
    truth: CounterState,
    prefetched: Vec<Prefetched>,
}

fn prefetch() -> impl Strategy<Value = Prefetch> {
    let share = prop_oneof![Just(u16::MAX), any::<u16>()];
    (0..=20_u32, share, 0..=400_u16).prop_map(|(max_tokens, share, hold_millis)| Prefetch {
        max_tokens,
        share,
        hold_millis,
    })
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let elapsed = prop_oneof![2 => Just(0), 4 => 0..=60_000_u64, 1 => 0..=700_000_u64];
    let step = prop_oneof![
        3 => (1..=3_u64, prefetch()).prop_map(|(hits, prefetch)| Step::Charge(hits, prefetch)),
        2 => (1..=8_u64).prop_map(|hits| Step::Charge(hits, Prefetch::default())),
        5 => (any::<usize>(), 1..=20_u32).prop_map(|(which, tokens)| Step::Spend(which, tokens)),
        2 => (any::<usize>(), 1..=20_u32).prop_map(|(which, tokens)| Step::Refund(which, tokens)),
    ];
    vec((elapsed, step), 1..300)
}

impl Both {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            ahead: CounterState::default(),
            truth: CounterState::default(),
            prefetched: Vec::new(),
        }
    }

    /// Whether hits pass the counter that is charged when tokens are spent.
    fn truly_pass(&mut self, now: Timestamp, hits: u64) -> bool {
        self.policy.apply(&mut self.truth, now, Hits::charge(hits), Charging::AllOrNone)
    }

    /// Takes tokens from one of the prefetches.
    fn take(
        &mut self,
        which: usize,
        tokens: u32,
        may: impl Fn(&Prefetched) -> bool,
    ) -> Option<(u32, Timestamp)> {
        let at = which.checked_rem(self.prefetched.len())?;
        let prefetched = &mut self.prefetched[at];
        let tokens = tokens.min(prefetched.tokens);
        (may(prefetched) && tokens > 0).then(|| {
            prefetched.tokens -= tokens;
            (tokens, prefetched.made_at)
        })
    }

    /// Executes a step. Returns whether hits that passed would have passed the other counter, too.
    fn execute(&mut self, now: Timestamp, step: Step) -> bool {
        match step {
            Step::Charge(hits, prefetch) => {
                let charge = Hits::charge(hits);
                if !self.policy.apply(&mut self.ahead, now, charge, Charging::Independent) {
                    return true;
                }
                let tokens = self.policy.prefetch(&mut self.ahead, now, prefetch);
                let hold = now.plus(Duration::from_millis(u64::from(prefetch.hold_millis)));
                let until = self.policy.prefetched_until(now).map_or(hold, |end| end.min(hold));
                self.prefetched.push(Prefetched { tokens, made_at: now, until });
                self.truly_pass(now, hits)
            }
            Step::Spend(which, tokens) => match self.take(which, tokens, |prefetched| now < prefetched.until)
            {
                Some((tokens, _)) => self.truly_pass(now, u64::from(tokens)),
                None => true,
            },
            Step::Refund(which, tokens) => {
                if let Some((tokens, made_at)) = self.take(which, tokens, |_| true) {
                    let amount = std::num::NonZeroU64::new(u64::from(tokens)).expect("not 0");
                    let refund = Hits::RefundCharge { amount, made_at };
                    self.policy.apply(&mut self.ahead, now, refund, Charging::Independent);
                }
                true
            }
        }
    }
}

/// Asserts that no tokens pass that would not have passed when they are spent.
fn never_too_much(policy: Policy, steps: &[(u64, Step)]) -> Result<(), TestCaseError> {
    let mut both = Both::new(policy);
    let mut now = START;
    for (at, (elapsed, step)) in steps.iter().enumerate() {
        now += elapsed;
        let passes = both.execute(Timestamp::from_micros(now), *step);
        prop_assert!(passes, "step {at}: {step:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_prefetches_no_tokens_that_would_not_pass_when_spent(
        limit in 1..=200_u32,
        seconds in 1..=3_u32,
        burst in 1..=60_u32,
        steps in steps(),
    ) {
        let quota = Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
        let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
        never_too_much(Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("valid"), &steps)?;
    }

    #[test]
    fn windows_prefetch_no_tokens_that_would_not_pass_when_spent(
        limit in 1..=60_u32,
        seconds in 1..=3_u32,
        slides in any::<bool>(),
        steps in steps(),
    ) {
        let quota = Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
        let algorithm = if slides { Algorithm::SlidingWindow } else { Algorithm::FixedWindow };
        never_too_much(Policy::new(algorithm, quota, &Parameters::default()).expect("valid"), &steps)?;
    }
}

#[test]
fn a_share_of_the_remaining_hits_is_prefetched_and_at_most_the_requested_number() {
    let quota = Quota { limit: 100, window: Window::from_seconds(1_000).expect("in range") };
    let now = Timestamp::from_micros(START);
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let mut state = CounterState::default();
        assert!(policy.apply(&mut state, now, Hits::charge(20), Charging::Independent));
        let half = Prefetch { max_tokens: 50, share: 1 << 15, hold_millis: 200 };
        let too_little = Prefetch { max_tokens: 100, ..half };
        assert_eq!(policy.prefetch(&mut state, now, too_little), 0);
        assert_eq!(policy.prefetch(&mut state, now, half), 40);
        assert_eq!(policy.prefetch(&mut state, now, Prefetch { max_tokens: 7, ..half }), 7);
        let left = 100 - 20 - 40 - 7;
        assert!(!policy.apply(&mut state.clone(), now, Hits::charge(left + 1), Charging::AllOrNone));
        assert!(policy.apply(&mut state, now, Hits::charge(left), Charging::AllOrNone));
        let before = state.clone();
        assert_eq!(policy.prefetch(&mut state, now, half), 0);
        assert_eq!(state, before);
    }
}
