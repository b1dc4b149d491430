//! The scripts against their Rust twins: random operations at given times, every verdict the same.

use std::collections::HashMap;

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use tollgate::{
    algorithm::{Algorithm, Policy, Verdict, Words},
    clock::Timestamp,
    descriptor::Hits,
    quota::{Quota, Window},
    rules::RecordId,
    store::key::{Ask, Call},
};

use crate::support::{
    redis::Redis,
    stores::{Subject, at, call},
};

/// Histories per algorithm mix; each is some forty calls of one to three asks.
const HISTORIES: u64 = 1_500;

fn policy() -> impl Strategy<Value = Policy> {
    let limit = prop_oneof![0..=3_u32, 1..=20_u32, Just(1_000_003), Just(u32::MAX)];
    let seconds = prop_oneof![1..=5_u32, Just(60), Just(61), Just(3_600), Just(31_536_000)];
    let algorithm = prop_oneof![Just(Algorithm::FixedWindow), Just(Algorithm::TokenBucket)];
    (limit, seconds, algorithm, proptest::option::of(1..=8_u32)).prop_map(
        |(limit, seconds, algorithm, burst)| {
            let quota = Quota { limit, window: Window::from_seconds(seconds).expect("in range") };
            let burst = burst.filter(|_| seconds <= 3_600);
            Policy::new(algorithm, quota, burst).unwrap_or(Policy::with_full_burst(algorithm, quota))
        },
    )
}

fn hits() -> impl Strategy<Value = Hits> {
    prop_oneof![
        4 => Just(Hits::ONE),
        2 => (0..=5_u64).prop_map(Hits::charge),
        2 => (0..=5_u64).prop_map(Hits::refund),
        1 => any::<u64>().prop_map(Hits::charge),
        1 => any::<u64>().prop_map(Hits::refund),
    ]
}

/// How far the clock moves before a call, in microseconds; sometimes backwards.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0),
        4 => 0..=1_500_000_i64,
        2 => 0..=90_000_000_i64,
        1 => -3_000_000..=0_i64,
        1 => -7_200_000_000..=7_200_000_000_i64,
    ]
}

type Step = (i64, Vec<(u8, Policy, Hits)>);

fn history() -> impl Strategy<Value = Vec<Step>> {
    // Few policies for few counters, so that counters meet changed limits and windows.
    proptest::collection::vec(policy(), 1..4).prop_flat_map(|policies| {
        let ask = (0..3_u8, proptest::sample::select(policies), hits());
        proptest::collection::vec((step(), proptest::collection::vec(ask, 1..4)), 1..80)
    })
}

/// A cell as the definition has it: the algorithms' functions, and an end, at which all of it is forgotten.
#[derive(Default)]
struct Model {
    records: HashMap<RecordId, Words>,
    ends: u32,
}

impl Model {
    fn decide(&mut self, now: Timestamp, call: &Call) -> Vec<Verdict> {
        let (mut changed, mut ends) = (false, self.ends);
        let mut verdicts = Vec::new();
        for Ask { record, policy, hits, .. } in call.asks() {
            let known = self.records.get(record).copied();
            let mut state = known.unwrap_or_default();
            let admitted = policy.apply(&mut state, now, *hits);
            verdicts.push(policy.verdict(state, now, *hits, admitted));
            let ends_at = policy.expires_at(state);
            if known.map_or(ends_at > now.seconds(), |known| known != state) {
                changed = true;
                self.records.insert(*record, state);
            }
            ends = ends.max(ends_at);
        }
        // What changed nothing is not written, its end included.
        match changed {
            true if ends <= now.seconds() => *self = Self::default(),
            true => self.ends = ends,
            false => {}
        }
        verdicts
    }
}

/// The same histories each time, so that a failure can be met again.
#[tokio::test]
async fn the_scripts_decide_as_their_rust_twins() {
    let operations = compare(TestRunner::deterministic(), HISTORIES).await;
    assert!(operations >= 100_000, "only {operations} operations");
}

/// Other histories each time:
/// `cargo test --release --test integration -- --ignored differential::many_random_histories`
#[tokio::test]
#[ignore = "takes minutes"]
async fn many_random_histories() {
    compare(TestRunner::new(Config::default()), 40 * HISTORIES).await;
}

/// Decides random histories in Lua and in Rust; gives the number of operations compared.
async fn compare(mut runner: TestRunner, histories: u64) -> usize {
    let redis = Redis::start();
    let lua = Subject::Redis(redis.store());
    let mut operations = 0;
    for number in 0..histories {
        let history = history().new_tree(&mut runner).expect("generates").current();
        let mut rust = Model::default();
        let mut micros = 7_200_000_000_i64;
        for (at_step, (step, asks)) in history.iter().enumerate() {
            micros = (micros + step).max(0);
            let now = at(u64::try_from(micros).expect("not negative"));
            let call = call(&number.to_string(), asks);
            let (expected, found) = (rust.decide(now, &call), lua.decide(now, &call).await);
            assert_eq!(expected, found, "step {at_step} of {:#?}", &history[..=at_step]);
            operations += asks.len();
        }
    }
    operations
}
