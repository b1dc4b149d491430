//! Bans in the scripts against those in Rust: every verdict the same, with its ban.

use tollgate::ban::BanRecord;

use super::*;
use crate::support::stores::policy;

/// Histories; each is some forty calls of one to three checks.
const HISTORIES: u64 = 640;

/// Counters of a cell that is split into segments.
const MANY: u8 = 200;

fn limits() -> impl Strategy<Value = Policy> {
    (common_algorithm(), 0..=4_u32, prop_oneof![Just(1), 2..=5_u32, Just(60)])
        .prop_map(|(algorithm, limit, seconds)| policy(algorithm, limit, seconds))
}

fn ban_policies(limit: u32) -> impl Strategy<Value = BanPolicy> {
    let growth = proptest::option::of(0..=200_u32);
    let list_after = proptest::option::of(1..=4_u32);
    (1..=3_u32, 0..=6_u32, 1..=15_u32, growth, 1..=90_u32, list_after).prop_map(
        move |(threshold, more, duration, growth, forgive, list_after)| {
            let parameters = BanParameters {
                threshold,
                interval: threshold + more,
                duration,
                max_duration: growth.map(|growth| duration + growth),
                forgive,
                list_after,
                ..BanParameters::default()
            };
            let quota = Quota { limit: limit.into(), window: Window::from_seconds(1).expect("in range") };
            BanPolicy::new(&parameters, quota).expect("in range")
        },
    )
}

fn effect() -> impl Strategy<Value = BanEffect> {
    prop_oneof![
        20 => Just(BanEffect::Enforce),
        6 => Just(BanEffect::Watch),
        1 => Just(BanEffect::Lift),
        1 => Just(BanEffect::Forgive),
    ]
}

fn veto() -> impl Strategy<Value = Veto> {
    prop_oneof![
        2 => Just(Veto::Never),
        6 => Just(Veto::Alone),
        1 => Just(Veto::WithQuotas),
        1 => Just(Veto::Always),
    ]
}

/// A check, its veto, and its ban, if any.
type Banned = (NumberedCheck, Veto, Option<BanCheck>);

type Step = (u64, Charging, Vec<Banned>);

fn history() -> impl Strategy<Value = (bool, Vec<Step>)> {
    let rules = vec((limits(), proptest::option::weighted(0.8, ban_policies(1))), 1..4);
    let steps = rules.prop_flat_map(|rules| {
        let check =
            (0..rules.len(), counted_hits(3), veto(), effect()).prop_map(move |(at, hits, veto, effect)| {
                let (policy, ban) = rules[at];
                let ban = ban.map(|policy| BanCheck { policy, effect });
                ((u8::try_from(at).expect("few"), policy, hits), veto, ban)
            });
        let charging = prop_oneof![3 => Just(Charging::Independent), 1 => Just(Charging::AllOrNone)];
        vec((step_forward(), charging, vec(check, 1..4)), 1..80)
    });
    (proptest::bool::weighted(0.3), steps)
}

fn call_of(name: &str, charging: Charging, checks: &[Banned]) -> TagRequest {
    let without_bans: Vec<_> = checks.iter().map(|(check, veto, _)| (*check, *veto)).collect();
    let mut call = charging_with(charging, name, &without_bans);
    for check in call.cells.iter_mut().flat_map(|cell| &mut cell.checks) {
        check.ban = checks[check.descriptor].2;
        // Some of the counters are leased.
        if check.record == RecordId::numbered(1, check.policy.algorithm()).under(&check.policy) {
            check.sync = SyncMode::Leased;
        }
    }
    call
}

/// Gives the number of verdicts under a ban, and of bans that began.
async fn replay(lua: &Subject, number: u64, (is_large, history): (bool, Vec<Step>)) -> (usize, usize) {
    let rust = Subject::memory();
    let name = format!("bans-{number}");
    let mut micros = 7_200_000_000_u64;
    if is_large {
        let year = policy(Algorithm::FixedWindow, 9, 31_536_000);
        let many: Vec<_> =
            (10..10 + MANY).map(|number| ((number, year, Hits::ONE), Veto::Alone, None)).collect();
        for some in many.chunks(150) {
            let call = call_of(&name, Charging::Independent, some);
            assert_eq!(rust.decide(at(micros), &call).await, lua.decide(at(micros), &call).await);
        }
    }
    let (mut banned, mut began) = (0, 0);
    for (at_step, (step, charging, checks)) in history.iter().enumerate() {
        micros += step;
        let call = call_of(&name, *charging, checks);
        let expected = rust.decide(at(micros), &call).await;
        let found = lua.decide(at(micros), &call).await;
        assert_eq!(expected, found, "step {at_step} at {micros}: {checks:#?} of {:#?}", &history[..=at_step]);
        banned += found.iter().filter(|verdict| verdict.ban.is_some_and(|ban| ban.is_enforced)).count();
        began += found.iter().filter(|verdict| verdict.ban.is_some_and(|ban| ban.is_new)).count();
    }
    (banned, began)
}

#[tokio::test]
async fn bans_are_decided_alike_in_memory_and_in_redis() {
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let mut runner = TestRunner::deterministic();
    let (mut banned, mut began) = (0, 0);
    let replayed =
        replay_all(&mut runner, history(), HISTORIES, |number, history| replay(&lua, number, history));
    for (denied, new) in replayed.await {
        banned += denied;
        began += new;
    }
    assert!(banned >= 2_000 && began >= 800, "{banned} verdicts under a ban, {began} bans");
}

/// A counter with its bans, as Rust defines them.
#[derive(Default)]
struct Model {
    state: CounterState,
    record: BanRecord,
}

impl Model {
    fn run(
        &mut self,
        now: Timestamp,
        policy: Policy,
        ban: &BanCheck,
        (times, hits, reported): Repeated,
    ) -> Vec<Verdict> {
        let mut active = ban.report(self.record.settle(&ban.policy, now, reported));
        let is_banned = active.is_some_and(|ban| ban.is_enforced);
        let charge = Hits::charge(hits);
        let charging = if policy.counts_denied() { Charging::Independent } else { Charging::AllOrNone };
        let applied = if is_banned { Hits::Peek } else { charge };
        let (mut verdicts, mut admitted, mut state) = (Vec::new(), 0, self.state.clone());
        for _ in 0..times {
            let passes = policy.apply(&mut state, now, applied, charging) && !is_banned;
            let summary = policy.summary(&state, now, charge);
            let verdict = policy.verdict(summary, now, charge, passes, charging);
            verdicts.push(active.map_or(verdict, |ban| verdict.under(ban, charge)));
            active = active.map(tollgate::ban::Ban::known);
            admitted += if passes { hits } else { 0 };
        }
        if !is_banned {
            self.state = state;
            self.record.count(&ban.policy, now, admitted, u64::from(times) * hits - admitted);
        }
        verdicts
    }
}

/// Repetitions, the hits of each, and the denied hits that are reported.
type Repeated = (u16, u64, u16);

async fn replay_runs(
    store: &RedisStore,
    keys: CommandKeys,
    number: u64,
    (policy, ban, history): (Policy, BanPolicy, Vec<(u64, Repeated, BanEffect)>),
) -> usize {
    let (mut model, mut micros, mut began) = (Model::default(), 7_200_000_000_u64, 0);
    for (at_step, (step, repeated, effect)) in history.iter().enumerate() {
        micros += step;
        let effect = if *effect == BanEffect::Watch { *effect } else { BanEffect::Enforce };
        let ban = BanCheck { policy: ban, effect };
        let (times, hits, reported) = *repeated;
        let checks = [((0, policy, Hits::charge(hits)), Veto::Alone, Some(ban))];
        let request = call_of(&format!("ban-runs-{number}"), Charging::Independent, &checks);
        let run = Run { request: &request, times, prefetches: &[], reported: &[reported] };
        let expected = model.run(at(micros), policy, &ban, *repeated);
        let store = store.clone().at_time(at(micros));
        let mut found = store.decide_runs(&[run], keys).await.expect("the store decides");
        let found = found.remove(0).expect("the run is decided").verdicts;
        let found: Vec<_> = found.into_iter().map(|verdicts| verdicts[0].1).collect();
        assert_eq!(
            found,
            expected,
            "step {at_step} at {micros}: {:#?} of {policy:?}, {ban:?}",
            &history[..=at_step]
        );
        began += found.iter().filter(|verdict| verdict.ban.is_some_and(|ban| ban.is_new)).count();
    }
    began
}

/// A limit of up to 100,000 hits a second, whose bans count in units, and repeated calls with reports.
fn runs() -> impl Strategy<Value = (Policy, BanPolicy, Vec<(u64, Repeated, BanEffect)>)> {
    let scale = prop_oneof![2 => Just(1_u32), 1 => 300..=100_000_u32];
    (scale, limits()).prop_flat_map(|(scale, limits)| {
        let hits = prop_oneof![4 => Just(1_u64), 1 => 1..=u64::from(scale)];
        let reported = prop_oneof![3 => Just(0_u16), 1 => any::<u16>()];
        let repeated = (prop_oneof![Just(1_u16), 1..=9_u16, 1..=300_u16], hits, reported);
        let steps = vec((step_forward(), repeated, effect()), 1..60);
        (Just(limits), ban_policies(scale), steps)
    })
}

#[tokio::test]
async fn repeated_calls_with_reports_ban_like_their_rust_twins() {
    let (redis, store) = Redis::start_store();
    let mut runner = TestRunner::deterministic();
    let replayed = replay_all(&mut runner, runs(), HISTORIES, |number, history| {
        replay_runs(&store, redis.command_keys(number), number, history)
    });
    let began: usize = replayed.await.into_iter().sum();
    assert!(began >= 1_000, "{began} bans");
}
