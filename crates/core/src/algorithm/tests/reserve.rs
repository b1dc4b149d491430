//! What is reserved is never more than would have passed when it is spent.

use proptest::{collection::vec, prelude::*};

use super::*;

/// What one of several instances does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Charges so many hits, and wishes to reserve.
    Charge(u64, Prefetch),
    /// Spends so many tokens of one of the reservations, if there is time.
    Spend(usize, u32),
    /// Gives so many tokens of one of them back, at any time.
    GiveBack(usize, u32),
}

/// Tokens that an instance may spend.
#[derive(Debug)]
struct Reserved {
    tokens: u32,
    made_at: Timestamp,
    until: Timestamp,
}

/// A counter that is charged ahead, and one that is charged only when tokens are spent.
struct Both {
    policy: Policy,
    ahead: State,
    truth: State,
    reserved: Vec<Reserved>,
}

fn wish() -> impl Strategy<Value = Prefetch> {
    let share = prop_oneof![Just(u16::MAX), any::<u16>()];
    (0..=20_u32, share, 0..=400_u16).prop_map(|(most, share, hold_millis)| Prefetch {
        most,
        share,
        hold_millis,
    })
}

fn deeds() -> impl Strategy<Value = Vec<(u64, Deed)>> {
    let step = prop_oneof![2 => Just(0), 4 => 0..=60_000_u64, 1 => 0..=700_000_u64];
    let deed = prop_oneof![
        3 => (1..=3_u64, wish()).prop_map(|(hits, wish)| Deed::Charge(hits, wish)),
        2 => (1..=8_u64).prop_map(|hits| Deed::Charge(hits, Prefetch::default())),
        5 => (any::<usize>(), 1..=20_u32).prop_map(|(which, tokens)| Deed::Spend(which, tokens)),
        2 => (any::<usize>(), 1..=20_u32).prop_map(|(which, tokens)| Deed::GiveBack(which, tokens)),
    ];
    vec((step, deed), 1..300)
}

impl Both {
    fn new(policy: Policy) -> Self {
        Self { policy, ahead: State::default(), truth: State::default(), reserved: Vec::new() }
    }

    /// Whether so many hits pass where they are charged when they are spent.
    fn truly_pass(&mut self, now: Timestamp, hits: u64) -> bool {
        self.policy.apply(&mut self.truth, now, Hits::charge(hits), Charging::AllOrNone)
    }

    /// Takes tokens from one of the reservations.
    fn take(
        &mut self,
        which: usize,
        tokens: u32,
        may: impl Fn(&Reserved) -> bool,
    ) -> Option<(u32, Timestamp)> {
        let at = which.checked_rem(self.reserved.len())?;
        let reserved = &mut self.reserved[at];
        let tokens = tokens.min(reserved.tokens);
        (may(reserved) && tokens > 0).then(|| {
            reserved.tokens -= tokens;
            (tokens, reserved.made_at)
        })
    }

    /// Does it; whether what passed would have passed the other one, too.
    fn does(&mut self, now: Timestamp, deed: Deed) -> bool {
        match deed {
            Deed::Charge(hits, wish) => {
                let asked = Hits::charge(hits);
                if !self.policy.apply(&mut self.ahead, now, asked, Charging::EachForItself) {
                    return true;
                }
                let tokens = self.policy.reserve(&mut self.ahead, now, wish);
                let hold = now.plus(Duration::from_millis(u64::from(wish.hold_millis)));
                let until = self.policy.reserved_until(now).map_or(hold, |end| end.min(hold));
                self.reserved.push(Reserved { tokens, made_at: now, until });
                self.truly_pass(now, hits)
            }
            Deed::Spend(which, tokens) => match self.take(which, tokens, |reserved| now < reserved.until) {
                Some((tokens, _)) => self.truly_pass(now, u64::from(tokens)),
                None => true,
            },
            Deed::GiveBack(which, tokens) => {
                if let Some((tokens, made_at)) = self.take(which, tokens, |_| true) {
                    let amount = std::num::NonZeroU64::new(u64::from(tokens)).expect("some");
                    let undo = Hits::Undo { amount, made_at };
                    self.policy.apply(&mut self.ahead, now, undo, Charging::EachForItself);
                }
                true
            }
        }
    }
}

/// Nothing passes that would not have passed when it is spent.
fn never_too_much(policy: Policy, deeds: &[(u64, Deed)]) -> Result<(), TestCaseError> {
    let mut both = Both::new(policy);
    let mut now = START;
    for (at, (step, deed)) in deeds.iter().enumerate() {
        now += step;
        let passes = both.does(Timestamp::from_micros(now), *deed);
        prop_assert!(passes, "step {at}: {deed:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_bucket_reserves_nothing_that_would_not_pass_when_it_is_spent(
        limit in 1..=200_u32,
        seconds in 1..=3_u32,
        burst in 1..=60_u32,
        deeds in deeds(),
    ) {
        let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
        let parameters = Parameters { burst: Some(burst), ..Parameters::default() };
        never_too_much(Policy::new(Algorithm::TokenBucket, quota, &parameters).expect("valid"), &deeds)?;
    }

    #[test]
    fn windows_reserve_nothing_that_would_not_pass_when_it_is_spent(
        limit in 1..=60_u32,
        seconds in 1..=3_u32,
        slides in any::<bool>(),
        deeds in deeds(),
    ) {
        let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
        let algorithm = if slides { Algorithm::SlidingWindow } else { Algorithm::FixedWindow };
        never_too_much(Policy::new(algorithm, quota, &Parameters::default()).expect("valid"), &deeds)?;
    }
}

#[test]
fn a_share_of_what_remains_is_reserved_and_no_more_than_is_wished() {
    let quota = Quota { limit: 100, window: Window::from_seconds(1_000).expect("in range") };
    let now = Timestamp::from_micros(START);
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::TokenBucket] {
        let policy = Policy::new(algorithm, quota, &Parameters::default()).expect("valid");
        let mut state = State::default();
        assert!(policy.apply(&mut state, now, Hits::charge(20), Charging::EachForItself));
        let half = Prefetch { most: 50, share: 1 << 15, hold_millis: 200 };
        let too_little = Prefetch { most: 100, ..half };
        assert_eq!(policy.reserve(&mut state, now, too_little), 0);
        assert_eq!(policy.reserve(&mut state, now, half), 40);
        assert_eq!(policy.reserve(&mut state, now, Prefetch { most: 7, ..half }), 7);
        let left = 100 - 20 - 40 - 7;
        assert!(!policy.apply(&mut state.clone(), now, Hits::charge(left + 1), Charging::AllOrNone));
        assert!(policy.apply(&mut state, now, Hits::charge(left), Charging::AllOrNone));
        let before = state.clone();
        assert_eq!(policy.reserve(&mut state, now, half), 0);
        assert_eq!(state, before);
    }
}
