//! Calls on two or three counters that are all of their cell, as those of a rule with a candidate or with several limits.

use super::{batched_runs::in_order, *};

/// Histories of some forty commands.
const HISTORIES_OF_FEW: u64 = 800;

/// Order of a call's checks, which counters are checked, and the repetitions of a command's calls.
#[derive(Clone, Debug)]
struct Call {
    charging: Charging,
    hits: Vec<Hits>,
    vetoes: Vec<Veto>,
    is_reversed: bool,
    checked: usize,
    times: u16,
}

/// Hits that a repeated call may have too.
fn plain_hits() -> impl Strategy<Value = Hits> {
    prop_oneof![8 => Just(Hits::ONE), 3 => (0..=5_u64).prop_map(Hits::charge), 1 => any::<u64>().prop_map(Hits::charge),
        2 => Just(Hits::charge(60_000))]
}

fn few_hits() -> impl Strategy<Value = Hits> {
    prop_oneof![12 => plain_hits(), 1 => (0..=5_u64).prop_map(Hits::refund), 1 => hits()]
}

fn call_on(counters: usize) -> impl Strategy<Value = Call> {
    let all = prop_oneof![15 => Just(counters), 1 => 1..=counters];
    let vetoes = vec(prop_oneof![6 => Just(Veto::Alone), 2 => Just(Veto::Never), 1 => veto()], counters);
    let rare = proptest::bool::weighted(0.03);
    let often = (vec(plain_hits(), counters), 2..=30_u16).prop_map(|(hits, times)| (hits, times, true));
    let once = vec(few_hits(), counters).prop_map(|hits| (hits, 1, false));
    let hits = prop_oneof![1 => often, 3 => once];
    let charging = prop_oneof![Just(Charging::Independent), Just(Charging::AllOrNone)];
    (charging, hits, vetoes, rare, all).prop_map(
        |(charging, (hits, times, is_repeated), vetoes, is_reversed, checked)| {
            let charging = if is_repeated { Charging::Independent } else { charging };
            Call { charging, hits, vetoes, is_reversed, checked, times }
        },
    )
}

/// The policies of the counters, and commands of one to three calls on them.
fn history_of_few() -> impl Strategy<Value = (Vec<Policy>, Vec<(i64, Vec<Call>)>)> {
    let packed = || policy().prop_filter("packed", |policy| !policy.algorithm().has_own_key());
    let plain = packed().prop_filter("plain", |policy| !policy.has_bound());
    prop_oneof![4 => vec(plain, 2..=3), 1 => vec(packed(), 2..=3)].prop_flat_map(|policies| {
        let commands = vec((step(), vec(call_on(policies.len()), 1..=3)), 1..80);
        (Just(policies), commands)
    })
}

fn checks_of(call: &Call, policies: &[Policy]) -> Vec<(NumberedCheck, Veto)> {
    let numbered = (0_u8..).zip(policies).zip(call.hits.iter().zip(&call.vetoes));
    let mut checks: Vec<_> =
        numbered.map(|((number, policy), (hits, veto))| ((number, *policy, *hits), *veto)).collect();
    checks.truncate(call.checked);
    if call.is_reversed {
        checks.reverse();
    }
    checks
}

/// Returns the numbers of compared decisions: of calls that are independent, and of those that charge all or none.
async fn replay_few(
    redis: &Redis,
    number: u64,
    (policies, history): (Vec<Policy>, Vec<(i64, Vec<Call>)>),
) -> [usize; 2] {
    let (mut model, mut micros, mut compared) = (Model::default(), 7_200_000_000_i64, [0; 2]);
    for (at_step, (step, calls)) in history.iter().enumerate() {
        micros = (micros + step).max(0);
        let now = at(u64::try_from(micros).expect("not negative"));
        let requests: Vec<_> = calls
            .iter()
            .map(|call| {
                let checks = model.resolve(&checks_of(call, &policies));
                let request = charging_with(call.charging, &format!("few-{number}"), &checks);
                let is_repeatable = checks.iter().all(|((_, policy, _), _)| !policy.has_bound());
                (with_leased(request), if is_repeatable { call.times } else { 1 })
            })
            .collect();
        let runs: Vec<_> =
            requests.iter().map(|(request, times)| Run { times: *times, ..Run::once(request) }).collect();
        let expected: Vec<_> = runs.iter().map(|run| model.run(now, run)).collect();
        let store = redis.store().at_time(now);
        let found = store.decide_runs(&runs, CommandKeys::NoSlots).await.expect("the store decides");
        for ((found, expected), run) in found.into_iter().zip(expected).zip(&runs) {
            let found = in_order(found.expect("the run is decided"));
            assert_eq!(found.0, expected.0, "step {at_step}: {run:#?} of {:#?}", &history[..=at_step]);
            let is_all_or_none = run.request.charging == Charging::AllOrNone;
            compared[usize::from(is_all_or_none)] += found.0.iter().map(Vec::len).sum::<usize>();
        }
    }
    compared
}

#[tokio::test]
async fn a_few_counters_of_a_cell_are_decided_like_by_their_rust_twins() {
    let redis = Redis::start();
    let mut runner = TestRunner::deterministic();
    let mut all = [0; 2];
    let replay = |number, history| replay_few(&redis, number, history);
    for [independent, all_or_none] in
        replay_all(&mut runner, history_of_few(), HISTORIES_OF_FEW, replay).await
    {
        all[0] += independent;
        all[1] += all_or_none;
    }
    assert!(all[0] >= 100_000 && all[1] >= 20_000, "compared {all:?}");
}
