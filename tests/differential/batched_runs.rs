//! Several runs in one command, against as many decisions of the Rust twins, one after the other.

use tollgate::{algorithm::Prefetch, store::redis::RunOutcome};

use super::*;

/// Histories of some ten commands.
const HISTORIES_OF_COMMANDS: u64 = 640;

/// Tags that the runs of a history share.
const TAGS: u8 = 4;

/// The checks of one run on one tag; repeated if the run allows it.
#[derive(Clone, Debug)]
struct RepeatedCall {
    tag: u8,
    charging: Charging,
    checks: Vec<(NumberedCheck, Veto)>,
    times: u16,
    /// For each check in the call's order.
    prefetches: Vec<Prefetch>,
}

fn prefetch() -> impl Strategy<Value = Prefetch> {
    let max_tokens = prop_oneof![Just(0), 1..=3_u32, 1..=100_000_u32, Just(u32::MAX)];
    let share = prop_oneof![Just(u16::MAX), Just(1 << 15), any::<u16>()];
    let hold = prop_oneof![Just(0), 1..=300_u16, any::<u16>()];
    let prefetch = (max_tokens, share, hold).prop_map(|(max_tokens, share, hold_millis)| Prefetch {
        max_tokens,
        share,
        hold_millis,
    });
    prop_oneof![1 => Just(Prefetch::default()), 2 => prefetch]
}

pub(super) fn prefetches() -> impl Strategy<Value = Vec<Prefetch>> {
    prop_oneof![1 => Just(Vec::new()), 2 => vec(prefetch(), 4)]
}

/// A call of any kind, made once.
fn once(policies: Vec<Policy>) -> impl Strategy<Value = RepeatedCall> {
    let check = (0..3_u8, proptest::sample::select(policies), hits());
    let charging = prop_oneof![Just(Charging::Independent), Just(Charging::AllOrNone)];
    (0..TAGS, charging, vec((check, veto()), 1..4), prefetches()).prop_map(
        |(tag, charging, checks, prefetches)| RepeatedCall { tag, charging, checks, times: 1, prefetches },
    )
}

/// A call that may be made more than once.
fn often(policies: Vec<Policy>) -> impl Strategy<Value = RepeatedCall> {
    let hits = prop_oneof![4 => Just(Hits::ONE), 2 => (0..=5_u64).prop_map(Hits::charge),
        1 => any::<u64>().prop_map(Hits::charge)];
    let check = (0..3_u8, proptest::sample::select(policies), hits);
    let times = prop_oneof![99 => 1..=40_u16, 1 => Just(400)];
    (0..TAGS, vec(check, 1..4), times, prefetches()).prop_map(|(tag, mut checks, times, prefetches)| {
        checks.retain(|(_, policy, _)| !policy.has_bound());
        match checks.first() {
            // A counter with a key of its own is the only one of a repeated call.
            Some((_, policy, _)) if policy.algorithm().has_own_key() => checks.truncate(1),
            _ => checks.retain(|(_, policy, _)| !policy.algorithm().has_own_key()),
        }
        checks.sort_by_key(|(number, policy, _)| (*number, policy.algorithm().kind()));
        checks.dedup_by_key(|(number, policy, _)| (*number, policy.algorithm()));
        if checks.is_empty() {
            checks.push((0, policy_of_a_bucket(), Hits::ONE));
        }
        let checks = checks.into_iter().map(|check| (check, Veto::Alone)).collect();
        RepeatedCall { tag, charging: Charging::Independent, checks, times, prefetches }
    })
}

fn policy_of_a_bucket() -> Policy {
    crate::support::stores::policy(Algorithm::TokenBucket, 20, 60)
}

fn commands() -> impl Strategy<Value = Vec<(i64, Vec<RepeatedCall>)>> {
    vec(policy(), 1..4).prop_flat_map(|policies| {
        let repeated = prop_oneof![once(policies.clone()), often(policies)];
        vec((step(), vec(repeated, 1..=16)), 1..20)
    })
}

impl Model {
    /// Decides a run by its definition: the repeated call, then the prefetch.
    pub(super) fn run(&mut self, now: Timestamp, run: &Run<'_>) -> (Vec<Vec<Verdict>>, Vec<u32>) {
        let each: Vec<_> = (0..run.times).map(|_| self.decide(now, run.request)).collect();
        let admitted = |check: &Check| each.iter().all(|verdicts| verdicts[check.descriptor].admitted);
        let is_vetoed = Self::is_vetoed(run.request, admitted);
        let charge_ahead = |(check, prefetch): (&Check, &Prefetch)| {
            let is_special = check.hits.is_overdraft() || check.policy.has_bound();
            if check.hits.charged() == 0 || is_special || !admitted(check) || is_vetoed {
                return 0;
            }
            self.states
                .get_mut(&check.record)
                .map_or(0, |(state, _)| check.policy.prefetch(state, now, *prefetch))
        };
        let prefetched = run.request.checks().zip(run.prefetches).map(charge_ahead).collect();
        (each, prefetched)
    }
}

pub(super) fn in_order(outcome: RunOutcome) -> (Vec<Vec<Verdict>>, Vec<u32>) {
    let each = outcome.verdicts.into_iter().map(|mut verdicts| {
        verdicts.sort_by_key(|(descriptor, _)| *descriptor);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    });
    (each.collect(), outcome.prefetched.to_vec())
}

/// The wishes for a call: none for a record that it checks twice.
pub(super) fn possible(call: &TagRequest, prefetches: &[Prefetch]) -> Vec<Prefetch> {
    let prefetch = |(check, prefetch): (&Check, &Prefetch)| {
        let is_alone = call.checks().filter(|other| other.record == check.record).count() == 1;
        if is_alone { *prefetch } else { Prefetch::default() }
    };
    call.checks().zip(prefetches).map(prefetch).collect()
}

/// Numbers of compared outcomes.
#[derive(Debug, Default)]
struct Compared {
    operations: usize,
    prefetched: usize,
}

async fn replay_commands(
    store: &RedisStore,
    keys: CommandKeys,
    number: u64,
    history: Vec<(i64, Vec<RepeatedCall>)>,
) -> Compared {
    let mut models = HashMap::<u8, Model>::new();
    let mut micros = 7_200_000_000_i64;
    let mut compared = Compared::default();
    for (at_step, (step, repeated_calls)) in history.iter().enumerate() {
        micros = (micros + step).max(0);
        let now = at(u64::try_from(micros).expect("not negative"));
        let calls: Vec<_> = repeated_calls
            .iter()
            .map(|repeated| {
                let checks = models.entry(repeated.tag).or_default().resolve(&repeated.checks);
                let call = with_leased(charging_with(
                    repeated.charging,
                    &format!("runs-{number}-{}", repeated.tag),
                    &checks,
                ));
                let prefetches = possible(&call, &repeated.prefetches);
                (call, prefetches)
            })
            .collect();
        let runs: Vec<_> = repeated_calls
            .iter()
            .zip(&calls)
            .map(|(repeated, (call, prefetches))| Run {
                request: call,
                times: repeated.times,
                prefetches,
                reported: &[],
            })
            .collect();
        let expected = repeated_calls
            .iter()
            .zip(&runs)
            .map(|(repeated, run)| models.get_mut(&repeated.tag).expect("it was made").run(now, run));
        let expected: Vec<_> = expected.collect();
        let store = store.clone().at_time(now);
        let found = store.decide_runs(&runs, keys).await.expect("the store decides");
        assert_eq!(found.len(), runs.len());
        for ((found, expected), run) in found.into_iter().zip(expected).zip(&runs) {
            let found = in_order(found.expect("the run is decided"));
            assert_eq!(found, expected, "step {at_step}: {run:#?} of {runs:#?}");
            compared.operations += expected.0.iter().map(Vec::len).sum::<usize>();
            compared.prefetched += expected.1.iter().filter(|tokens| **tokens > 0).count();
        }
    }
    compared
}

#[tokio::test]
async fn batched_runs_decide_like_sequential_ones() {
    let (redis, store) = Redis::start_store();
    let mut runner = TestRunner::deterministic();
    let mut all = Compared::default();
    let replayed = replay_all(&mut runner, commands(), HISTORIES_OF_COMMANDS, |number, history| {
        replay_commands(&store, redis.command_keys(number), number, history)
    });
    for compared in replayed.await {
        all.operations += compared.operations;
        all.prefetched += compared.prefetched;
    }
    assert!(all.operations >= 100_000 && all.prefetched >= 2_500, "{all:?}");
}
