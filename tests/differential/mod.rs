//! The scripts against their Rust twins: random operations at given times, every verdict the same.

mod bans;
mod batched_runs;
mod few_counters;
mod loans;
mod regressions;
mod reservations;
mod segmented_cells;
mod utilization;

use std::{collections::HashMap, sync::LazyLock};

use futures_util::future::join_all;
use proptest::test_runner::{Config, TestRunner};
use proptest::{collection::vec, prelude::*, strategy::ValueTree as _};
use tollgate::algorithm::{CounterState, Reserve, Unsettled};
use tollgate::ban::{BanCheck, BanEffect, BanParameters, BanPolicy};
use tollgate::store::redis::{CommandKeys, Run};
use tollgate::store::request::Check;
use tollgate::{SyncMode, calendar::Calendar, clock::Timestamp, quota::Unit};

use crate::support::prelude::*;
use crate::support::stores::{NumberedCheck, charging_with};

/// Histories of all algorithms; each is some forty calls of one to three checks.
const HISTORIES: u64 = 1_344 * Algorithm::ALL.len() as u64;

/// Histories that are replayed at the same time.
const CONCURRENT_HISTORIES: usize = 32;

fn policy() -> impl Strategy<Value = Policy> {
    let limit = prop_oneof![
        2 => 0..=3_u64,
        2 => 1..=20_u64,
        1 => Just(1_000_003),
        2 => Just(u32::MAX.into()),
        1 => wide_amount(),
    ];
    let seconds = prop_oneof![1..=5_u32, Just(60), Just(61), Just(3_600), Just(31_536_000)];
    let algorithm = proptest::sample::select(&Algorithm::ALL[..]);
    let unused = prop_oneof![3 => Just(0), 1 => 1..=100_u8];
    let overdraft = (proptest::option::weighted(0.2, 1..=50_u32), any::<bool>(), unused);
    let parameters =
        (proptest::option::of(1..=8_u32), prop_oneof![Just(0), 0..=900_000_u64], 1..=90_u64, overdraft);
    let window = prop_oneof![
        5 => seconds.prop_map(|seconds| Window::from_seconds(seconds).expect("in range")),
        1 => Just(Window::in_calendar(*UNEVEN)),
    ];
    let origin = prop_oneof![
        3 => Just(Origin::Rule),
        1 => Just(Origin::Override),
        1 => (0..14_400_000_000_u64).prop_map(Origin::ChangedRule),
    ];
    let stated = (limit, window, algorithm, parameters, origin);
    stated.prop_map(|(limit, window, algorithm, parameters, origin)| {
        let (burst, interval, ttl, (max_debt, carry, unused_percent)) = parameters;
        let (quota, seconds) = (Quota { limit, window }, window.seconds());
        let parameters = Parameters {
            burst: burst.filter(|_| seconds <= 3_600),
            min_interval: Duration::from_micros(interval),
            lease_ttl: Duration::from_secs(ttl),
            overdraft: max_debt.is_some(),
            max_debt: max_debt.filter(|_| seconds <= 3_600),
            carry,
            unused_percent,
            reserve: None,
        };
        let policy = Policy::new(algorithm, quota, &parameters).unwrap_or(Policy::nearest(
            algorithm,
            quota,
            &Parameters::default(),
        ));
        match origin {
            Origin::Rule => policy,
            Origin::Override => policy.with_quota(quota),
            Origin::ChangedRule(micros) => {
                let former = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
                policy.succeeding(&former, at(micros))
            }
        }
    })
}

/// Windows of a quarter of an hour to five hours, around the times of the histories.
static UNEVEN: LazyLock<Calendar> = LazyLock::new(|| {
    let quarters = [1, 2, 20, 3, 8, 1, 5].into_iter().cycle().take(2_000);
    let starts = quarters.scan(at(0).seconds() - 1_000_000 / 900 * 900, |next, quarters| {
        *next += quarters * 900;
        Some(*next)
    });
    Calendar::new(Unit::Day, "Test".into(), None, starts).expect("ascending quarters")
});

/// Origin of a policy.
#[derive(Clone, Copy, Debug)]
enum Origin {
    Rule,
    /// A limit override on the rule's counter.
    Override,
    /// A rule that replaced another one at this time.
    ChangedRule(u64),
}

/// Amounts of more than 32 bits, at the edges of words and of what a number of Lua holds.
fn wide_amount() -> impl Strategy<Value = u64> {
    let edge =
        prop_oneof![Just(1_u64 << 32), Just(1 << 33), Just(50_000_000_000), Just(1 << 40), Just(Hits::MAX)];
    (edge, 0..=2_u64).prop_map(|(edge, less)| edge - less)
}

fn lease() -> impl Strategy<Value = LeaseId> {
    (1..=6_u64).prop_map(|number| LeaseId::new(NonZeroU64::new(number).expect("not 0")))
}

fn amount() -> impl Strategy<Value = NonZeroU64> {
    (1..=4_u64).prop_map(|amount| NonZeroU64::new(amount).expect("not 0"))
}

fn hits() -> impl Strategy<Value = Hits> {
    prop_oneof![
        4 => Just(Hits::ONE),
        2 => (0..=5_u64).prop_map(Hits::charge),
        2 => (0..=5_u64).prop_map(Hits::refund),
        3 => amount().prop_map(Hits::Overdraw),
        1 => (1..=200_u64).prop_map(|amount| Hits::Overdraw(NonZeroU64::new(amount).expect("not 0"))),
        1 => (1..=Hits::MAX).prop_map(|amount| Hits::Overdraw(NonZeroU64::new(amount).expect("not 0"))),
        1 => any::<u64>().prop_map(Hits::charge),
        1 => any::<u64>().prop_map(Hits::refund),
        1 => wide_amount().prop_map(Hits::charge),
        1 => wide_amount().prop_map(Hits::refund),
        1 => prop_oneof![Just(9_000), Just(60_000)].prop_map(Hits::charge),
        3 => (amount(), lease()).prop_map(|(amount, lease)| Hits::Acquire { amount, lease }),
        2 => lease().prop_map(Hits::Release),
        // When it was made is filled in where the history is known.
        2 => amount().prop_map(|amount| Hits::RefundCharge { amount, made_at: Timestamp::from_micros(0) }),
    ]
}

/// Hits of calls without leases, at most `most` at once.
fn counted_hits(most: u64) -> impl Strategy<Value = Hits> {
    prop_oneof![
        8 => Just(Hits::ONE),
        3 => (0..=most).prop_map(Hits::charge),
        1 => (1..=2_u64).prop_map(Hits::refund),
        1 => Just(Hits::reset()),
    ]
}

fn common_algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![Just(Algorithm::FixedWindow), Just(Algorithm::SlidingWindow), Just(Algorithm::TokenBucket)]
}

/// Forward only: the stores forget expired counters at different times.
fn step_forward() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        8 => 0..=1_200_000_u64,
        2 => 0..=10_000_000_u64,
        1 => 0..=300_000_000_u64,
    ]
}

/// Clock steps before a call, in microseconds; sometimes backwards.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0),
        4 => 0..=1_500_000_i64,
        2 => 0..=90_000_000_i64,
        1 => -3_000_000..=0_i64,
        1 => -7_200_000_000..=7_200_000_000_i64,
    ]
}

fn veto() -> impl Strategy<Value = Veto> {
    prop_oneof![
        8 => Just(Veto::Never),
        8 => Just(Veto::Alone),
        6 => Just(Veto::Counted),
        8 => Just(Veto::WithQuotas),
        2 => Just(Veto::AcrossTags),
        1 => Just(Veto::Always),
    ]
}

/// The clock step, how the counters are charged, and the checks on them, each with its veto.
type Step = (i64, Charging, Vec<(NumberedCheck, Veto)>);

fn history() -> impl Strategy<Value = Vec<Step>> {
    // Few policies for few counters, so that counters meet changed limits and windows.
    vec(policy(), 1..4).prop_flat_map(|policies| {
        let check = (0..3_u8, proptest::sample::select(policies), hits());
        let checks = vec((check, veto()), 1..4);
        let charging = prop_oneof![Just(Charging::Independent), Just(Charging::AllOrNone)];
        vec((step(), charging, checks), 1..80)
    })
}

/// The call with some of its counters leased: those of one number that may be.
fn with_leased(mut call: TagRequest) -> TagRequest {
    let checks = call.cells.iter_mut().flat_map(|cell| &mut cell.checks);
    let may_be = |check: &&mut Check| {
        check.record == RecordId::numbered(1, check.policy.algorithm()).under(&check.policy)
    };
    checks
        .filter(may_be)
        .filter(|check| check.policy.algorithm().can_be_leased())
        .for_each(|check| check.sync = SyncMode::Leased);
    call
}

/// The counters of one tag as the definition has them: the algorithms' functions, and for those that share a cell
/// its end, the latest of theirs, at which all of it is forgotten.
#[derive(Default)]
struct Model {
    states: HashMap<RecordId, (CounterState, Policy)>,
    /// When charges were made.
    decided_at: Vec<Timestamp>,
}

impl Model {
    /// Returns which checks pass, each after the charges before it; what gives back frees nothing for the others.
    fn weigh(&self, now: Timestamp, call: &TagRequest) -> Vec<bool> {
        let mut weighed = HashMap::<RecordId, CounterState>::new();
        let mut weigh = |check: &Check| {
            let known = || self.states.get(&check.record).map(|(state, _)| state.clone()).unwrap_or_default();
            let state = weighed.entry(check.record).or_insert_with(known);
            check.hits.is_refund() || check.policy.apply(state, now, check.hits, Charging::AllOrNone)
        };
        call.checks().map(&mut weigh).collect()
    }

    /// Whether the call charges nothing, given which of its checks pass.
    fn is_vetoed(call: &TagRequest, passes: impl Fn(&Check) -> bool) -> bool {
        let with = |veto| call.checks().filter(move |check| check.veto == veto && !check.hits.is_refund());
        let mut quotas = with(Veto::WithQuotas).peekable();
        let has_quotas = quotas.peek().is_some();
        call.charging == Charging::AllOrNone
            && (with(Veto::Always).next().is_some()
                || with(Veto::Alone).chain(with(Veto::Counted)).any(|check| !passes(check))
                || has_quotas && !quotas.any(passes))
    }

    fn decide(&mut self, now: Timestamp, call: &TagRequest) -> Vec<Verdict> {
        let passes = self.weigh(now, call);
        let passing: HashMap<_, _> =
            call.checks().zip(&passes).map(|(check, passes)| (check.descriptor, *passes)).collect();
        let is_vetoed = Self::is_vetoed(call, |check| passing[&check.descriptor]);
        let mut shares_cell = false;
        let mut changed = false;
        let mut verdicts = Vec::new();
        for (check, passes) in call.checks().zip(passes) {
            let Check { descriptor, record, policy, hits, .. } = check;
            let known = self.states.get(record).map(|(state, _)| state.clone());
            let mut state = known.clone().unwrap_or_default();
            let counting = check.counting(call.charging);
            let is_counted = !passes && counting == Charging::Independent;
            let held_back = is_vetoed && hits.may_be_withheld() && !is_counted;
            let applied = if held_back { Hits::Peek } else { *hits };
            let decided = policy.apply(&mut state, now, applied, counting);
            let admitted = if is_vetoed && !hits.is_refund() { passes } else { decided };
            let standing = policy.summary(&state, now, *hits);
            let verdict = policy.verdict(standing, now, *hits, admitted, counting);
            self.decided_at.push(verdict.decided_at);
            verdicts.push((*descriptor, verdict));
            if policy.algorithm().has_own_key() {
                self.states.insert(*record, (state, *policy));
                continue;
            }
            shares_cell = true;
            let ends_at = policy.expires_at(&state);
            if known.as_ref().map_or(ends_at > now.seconds(), |known| *known != state) {
                changed = true;
                self.states.insert(*record, (state, *policy));
            }
        }
        // What changed nothing is not written, its end included.
        let packed = self.states.values().filter(|(state, _)| matches!(state, CounterState::Words(_)));
        let ends = packed.map(|(state, policy)| policy.expires_at(state)).max().unwrap_or_default();
        if changed && shares_cell && ends <= now.seconds() {
            self.states.retain(|_, (state, _)| !matches!(state, CounterState::Words(_)));
        }
        verdicts.sort_by_key(|(descriptor, _)| *descriptor);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// The checks with the ends of charges that were made before in place of those of the undone.
    fn resolve(&self, checks: &[(NumberedCheck, Veto)]) -> Vec<(NumberedCheck, Veto)> {
        let resolve = |(at, ((number, policy, hits), veto)): (usize, &(NumberedCheck, Veto))| {
            let hits = match *hits {
                Hits::RefundCharge { amount, .. } => {
                    let before = self.decided_at.len().saturating_sub(1 + at);
                    self.decided_at
                        .get(before)
                        .map_or(Hits::Peek, |made_at| Hits::RefundCharge { amount, made_at: *made_at })
                }
                // Only limits with leases release and settle them.
                Hits::Release(_) | Hits::Settle { .. } if !policy.algorithm().takes_leases() => Hits::Peek,
                // A concurrency limit has no overdraft.
                Hits::Overdraw(amount) if policy.algorithm() == Algorithm::Concurrency => {
                    Hits::Charge(amount)
                }
                hits => hits,
            };
            // A rule has one policy at a time, and so has a key of its own in one call.
            let same = |((other, known, _), _): &&(NumberedCheck, Veto)| {
                other == number && known.algorithm() == policy.algorithm() && known.algorithm().has_own_key()
            };
            let policy = checks.iter().find(same).map_or(*policy, |((_, known, _), _)| *known);
            ((*number, policy, hits), *veto)
        };
        checks.iter().enumerate().map(resolve).collect()
    }
}

/// Fixed seeds, so that a failure is reproducible.
#[tokio::test]
async fn the_scripts_decide_like_their_rust_twins() {
    let operations = compare(TestRunner::deterministic(), HISTORIES).await;
    for algorithm in Algorithm::ALL {
        let count = operations.get(algorithm.name()).copied().unwrap_or_default();
        assert!(count >= 100_000, "only {count} operations of {}", algorithm.name());
    }
}

/// Other histories each time:
/// `cargo test --release --test integration -- --ignored differential::many_random_histories`
#[tokio::test]
#[ignore = "takes minutes"]
async fn many_random_histories() {
    compare(TestRunner::new(Config::default()), 10 * HISTORIES).await;
}

/// Decides random histories in Lua and in Rust, many at a time; gives the number of operations compared of each
/// algorithm.
async fn compare(mut runner: TestRunner, histories: u64) -> HashMap<&'static str, usize> {
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let mut operations = HashMap::new();
    let replayed =
        replay_all(&mut runner, history(), histories, |number, history| replay(&lua, number, history));
    for algorithm in replayed.await.into_iter().flatten() {
        *operations.entry(algorithm.name()).or_default() += 1;
    }
    operations
}

/// Replays random histories, [`CONCURRENT_HISTORIES`] at the same time. Returns what each replay returns, in order.
async fn replay_all<S: Strategy, R>(
    runner: &mut TestRunner,
    histories: S,
    count: u64,
    replay: impl AsyncFn(u64, S::Value) -> R,
) -> Vec<R> {
    let mut replayed = Vec::new();
    for first in (0..count).step_by(CONCURRENT_HISTORIES) {
        let replays = (first..first + CONCURRENT_HISTORIES as u64).map(|number| {
            let history = histories.new_tree(runner).expect("generates").current();
            replay(number, history)
        });
        replayed.extend(join_all(replays).await);
    }
    replayed
}

/// Decides one history in Lua and in Rust; gives the algorithm of each operation.
async fn replay(lua: &Subject, number: u64, history: Vec<Step>) -> Vec<Algorithm> {
    let mut rust = Model::default();
    let mut micros = 7_200_000_000_i64;
    let mut operations = Vec::new();
    for (at_step, (step, charge, checks)) in history.iter().enumerate() {
        micros = (micros + step).max(0);
        let now = at(u64::try_from(micros).expect("not negative"));
        let checks = rust.resolve(checks);
        let call = with_leased(charging_with(*charge, &number.to_string(), &checks));
        let (expected, found) = (rust.decide(now, &call), lua.decide(now, &call).await);
        assert_eq!(expected, found, "step {at_step}: {checks:#?} of {:#?}", &history[..=at_step]);
        operations.extend(checks.iter().map(|((_, policy, _), _)| policy.algorithm()));
    }
    operations
}
