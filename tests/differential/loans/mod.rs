//! Shares of regions under loans, in the scripts and in Rust: every verdict and every ledger the same.

mod bucket;
mod transactions;

use tollgate::algorithm::RegionShare;
use tollgate::store::Store;
use tollgate::store::loans::SharedCounter;
use tollgate::store::loans::regions::{message::LoanRequest, protocol};

use self::transactions::{Move, moves, transact};
use super::*;
use crate::support::stores::policy;

/// Histories; each is some forty calls and transactions.
const HISTORIES: u64 = 320;

/// Counters of a cell that is split into segments.
const MANY: u8 = 200;

/// A limit and the share of it that the region owns.
#[derive(Clone, Copy, Debug)]
struct LentLimit {
    policy: Policy,
    share: RegionShare,
    is_leased: bool,
    has_ban: bool,
}

fn limits() -> impl Strategy<Value = LentLimit> {
    let limit = prop_oneof![1..=8_u32, 20..=60_u32, Just(1_000_003)];
    let seconds = prop_oneof![Just(1), 2..=7_u32, Just(60)];
    (common_algorithm(), limit, seconds, 0..=100_u32, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
        |(algorithm, limit, seconds, part, is_leased, has_ban)| {
            let whole = policy(algorithm, limit, seconds);
            let base = u32::try_from(u64::from(limit) * u64::from(part) / 100).expect("a part");
            let quota =
                Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
            let share = RegionShare::new(quota, base).expect("a limit");
            LentLimit { policy: share.under(whole, base), share, is_leased, has_ban }
        },
    )
}

#[derive(Clone, Debug)]
enum Work {
    Decide(Charging, Vec<(usize, Hits, Veto)>),
    Move(usize, Move),
}

fn history() -> impl Strategy<Value = (bool, Vec<LentLimit>, Vec<(u64, Work)>)> {
    let rules = vec(limits(), 1..4);
    let steps = rules.prop_flat_map(|rules| {
        let veto = prop_oneof![2 => Just(Veto::Never), 6 => Just(Veto::Alone), 1 => Just(Veto::Always)];
        let checks = vec((0..rules.len(), counted_hits(5), veto), 1..4);
        let charging = prop_oneof![3 => Just(Charging::Independent), 1 => Just(Charging::AllOrNone)];
        let work = prop_oneof![
            3 => (charging, checks).prop_map(|(charging, checks)| Work::Decide(charging, checks)),
            2 => (0..rules.len(), moves()).prop_map(|(at, change)| Work::Move(at, change)),
        ];
        (Just(rules), vec((step_forward(), work), 1..80))
    });
    (proptest::bool::weighted(0.2), steps).prop_map(|(is_large, (rules, steps))| (is_large, rules, steps))
}

fn ban() -> BanCheck {
    let parameters = BanParameters { threshold: 2, interval: 4, duration: 3, ..BanParameters::default() };
    let quota = Quota { limit: 9, window: Window::of(Unit::Second) };
    BanCheck { policy: BanPolicy::new(&parameters, quota).expect("valid"), effect: BanEffect::Enforce }
}

fn call_of(
    name: &str,
    charging: Charging,
    limits: &[LentLimit],
    checks: &[(usize, Hits, Veto)],
) -> TagRequest {
    let numbered = |(at, hits, veto): &(usize, Hits, Veto)| -> (NumberedCheck, Veto) {
        ((u8::try_from(*at).expect("few"), limits[*at].policy, *hits), *veto)
    };
    let numbered: Vec<_> = checks.iter().map(numbered).collect();
    let mut call = charging_with(charging, name, &numbered);
    for check in call.cells.iter_mut().flat_map(|cell| &mut cell.checks) {
        let limit = limits[checks[check.descriptor].0];
        check.share = Some(limit.share);
        check.sync = if limit.is_leased { SyncMode::Leased } else { SyncMode::Strict };
        check.ban = limit.has_ban.then(ban);
    }
    call
}

/// Gives the number of denied verdicts, and that of verdicts beyond the base share.
async fn replay(
    lua: &Subject,
    number: u64,
    (is_large, limits, history): (bool, Vec<LentLimit>, Vec<(u64, Work)>),
) -> (usize, usize) {
    let rust = Subject::memory();
    let name = format!("loans-{number}");
    let mut micros = 7_200_000_000_u64;
    if is_large {
        let year = policy(Algorithm::FixedWindow, 9, 31_536_000);
        let many: Vec<_> = (10..10 + MANY).map(|number| ((number, year, Hits::ONE), Veto::Alone)).collect();
        for some in many.chunks(150) {
            let call = charging_with(Charging::Independent, &name, some);
            assert_eq!(rust.decide(at(micros), &call).await, lua.decide(at(micros), &call).await);
        }
    }
    let (mut denied, mut beyond) = (0, 0);
    for (at_step, (step, work)) in history.iter().enumerate() {
        micros += step;
        let context = || format!("step {at_step} at {micros}: {limits:#?} {:#?}", &history[..=at_step]);
        match work {
            Work::Decide(charging, checks) => {
                let call = call_of(&name, *charging, &limits, checks);
                let expected = rust.decide(at(micros), &call).await;
                let found = lua.decide(at(micros), &call).await;
                assert_eq!(expected, found, "{}", context());
                let is_beyond = |((at, ..), verdict): &(&(usize, Hits, Veto), &Verdict)| {
                    verdict.admitted && verdict.used > u64::from(limits[*at].share.base)
                };
                denied += found.iter().filter(|verdict| !verdict.admitted).count();
                beyond += checks.iter().zip(&found).filter(is_beyond).count();
            }
            Work::Move(at, change) => {
                let LentLimit { policy, share, .. } = limits[*at];
                let record = RecordId::numbered(u8::try_from(*at).expect("few"), policy.algorithm());
                let call = call_of(&name, Charging::Independent, &limits, &[(*at, Hits::ONE, Veto::Alone)]);
                let cell = call.cells[0].key.clone();
                let counter = SharedCounter { cell, record, policy, share };
                let expected = transact(&rust, micros, &counter, *change).await;
                assert_eq!(expected, transact(lua, micros, &counter, *change).await, "{}", context());
            }
        }
    }
    (denied, beyond)
}

#[tokio::test]
async fn loans_are_decided_alike_in_memory_and_in_redis() {
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let mut runner = TestRunner::deterministic();
    let (mut denied, mut beyond) = (0, 0);
    let replayed =
        replay_all(&mut runner, history(), HISTORIES, |number, history| replay(&lua, number, history));
    for (some_denied, some_beyond) in replayed.await {
        denied += some_denied;
        beyond += some_beyond;
    }
    assert!(denied >= 1_000 && beyond >= 100, "{denied} denied, {beyond} beyond the share");
}
