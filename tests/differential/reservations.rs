//! Budgets in Lua against their Rust twin: random reservations, settlements and other operations at given times.

use std::collections::HashSet;

use super::*;

/// Histories; each is some forty calls of one to three checks.
const HISTORIES: u64 = 2_000;

fn budget() -> impl Strategy<Value = Policy> {
    let limit = prop_oneof![1 => 0..=3_u32, 4 => 1..=60_u32, 1 => Just(u32::MAX)];
    let seconds = prop_oneof![1..=5_u32, Just(60), Just(61), Just(3_600)];
    let ttl = prop_oneof![2..=10_u32, 2..=90_u32];
    (limit, seconds, ttl, any::<bool>()).prop_map(|(limit, seconds, ttl, is_charged)| {
        let quota = Quota { limit: limit.into(), window: Window::from_seconds(seconds).expect("in range") };
        let reserve = Reserve {
            ttl: ttl.try_into().expect("not 0"),
            unsettled: if is_charged { Unsettled::Charge } else { Unsettled::Release },
            add: 0,
            cap: None,
        };
        let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
        Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
    })
}

fn many_leases() -> impl Strategy<Value = LeaseId> {
    prop_oneof![1..=6_u64, 1..=60_u64]
        .prop_map(|number| LeaseId::new(NonZeroU64::new(number).expect("not 0")))
}

fn operation() -> impl Strategy<Value = Hits> {
    prop_oneof![
        1 => hits(),
        6 => (1..=9_u64, many_leases()).prop_map(|(amount, lease)| {
            Hits::Acquire { amount: NonZeroU64::new(amount).expect("not 0"), lease }
        }),
        4 => (many_leases(), 0..=12_u64).prop_map(|(lease, used)| Hits::Settle { lease, used }),
        1 => (many_leases(), any::<u64>()).prop_map(|(lease, used)| Hits::Settle { lease, used: used % Hits::MAX }),
        1 => many_leases().prop_map(Hits::Release),
    ]
}

/// Checks as Envoy sends them at the end of a stream: a settlement, followed by one without usage.
fn settled_twice(mut checks: Vec<(NumberedCheck, Veto)>) -> Vec<(NumberedCheck, Veto)> {
    if let Some(((number, policy, Hits::Settle { lease, .. }), veto)) = checks.first().copied() {
        checks.truncate(1);
        checks.push(((number, policy, Hits::Settle { lease, used: 0 }), veto));
    }
    checks
}

fn budgets() -> impl Strategy<Value = Vec<Step>> {
    let policies = vec(prop_oneof![4 => budget(), 1 => policy()], 1..4);
    policies.prop_flat_map(|policies| {
        let check = (0..2_u8, proptest::sample::select(policies), operation());
        let checks = vec((check, veto()), 1..4);
        let checks = (checks, any::<bool>()).prop_map(|(checks, is_last)| match is_last {
            true => settled_twice(checks),
            false => checks,
        });
        let charging = prop_oneof![Just(Charging::Independent), Just(Charging::AllOrNone)];
        vec((step(), charging, checks), 1..80)
    })
}

/// The checks of a call, in which a lease reserves once of each counter.
fn once_each(checks: Vec<(NumberedCheck, Veto)>) -> Vec<(NumberedCheck, Veto)> {
    let mut reserved = HashSet::new();
    let once = |((number, policy, hits), veto): (NumberedCheck, Veto)| {
        let is_first = match hits {
            Hits::Acquire { lease, .. } => reserved.insert((number, lease)),
            // No request reserves under a lease that it settles.
            Hits::Settle { lease, .. } | Hits::Release(lease) => {
                reserved.insert((number, lease));
                true
            }
            _ => true,
        };
        ((number, policy, if is_first { hits } else { Hits::Peek }), veto)
    };
    checks.into_iter().map(once).collect()
}

/// Fixed seeds, so that a failure is reproducible.
#[tokio::test]
async fn reservations_are_decided_as_by_their_rust_twin() {
    let mut runner = TestRunner::deterministic();
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let (mut reserved, mut settled) = (0, 0);
    let replayed = replay_all(&mut runner, budgets(), HISTORIES, |number, history| {
        replay_budgets(&lua, number, history)
    });
    for (of_reserved, of_settled) in replayed.await {
        (reserved, settled) = (reserved + of_reserved, settled + of_settled);
    }
    assert!(reserved > 10_000 && settled > 10_000, "only {reserved} reservations, {settled} settlements");
}

/// Decides one history in Lua and in Rust; gives the number of reservations that passed, and of settlements.
async fn replay_budgets(lua: &Subject, number: u64, history: Vec<Step>) -> (u64, u64) {
    let mut rust = Model::default();
    let mut micros = 7_200_000_000_i64;
    let (mut reserved, mut settled) = (0, 0);
    for (at_step, (step, charging, checks)) in history.iter().enumerate() {
        micros = (micros + step).max(0);
        let now = at(u64::try_from(micros).expect("not negative"));
        let checks = once_each(rust.resolve(checks));
        let call = charging_with(*charging, &number.to_string(), &checks);
        let (expected, found) = (rust.decide(now, &call), lua.decide(now, &call).await);
        assert_eq!(expected, found, "step {at_step}: {checks:#?} of {:#?}", &history[..=at_step]);
        for (((_, _, hits), _), verdict) in checks.iter().zip(&found) {
            match hits {
                Hits::Acquire { .. } if verdict.admitted => reserved += 1,
                Hits::Settle { .. } => settled += 1,
                _ => {}
            }
        }
    }
    (reserved, settled)
}

/// Number of fields of a budget's hash.
fn fields_of(redis: &Redis) -> u64 {
    let mut connection = redis.connect();
    let keys: Vec<String> = cmd("KEYS").arg("*many*").query(&mut connection).expect("keys");
    cmd("HLEN").arg(keys.first().expect("a budget")).query(&mut connection).expect("a number")
}

/// A budget with a window and a time to live in seconds.
fn budget_of(window: u32, ttl: u32, unsettled: Unsettled) -> Policy {
    let quota = Quota { limit: 1_000_000, window: Window::from_seconds(window).expect("in range") };
    let reserve = Reserve { ttl: ttl.try_into().expect("not 0"), unsettled, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
}

/// Leases that end together are ended by several calls, each of which does a bounded part of the work.
#[tokio::test]
async fn many_leases_that_end_together_are_ended_by_several_calls() {
    const LEASES: u64 = 3_000;
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    for unsettled in Unsettled::ALL {
        let policy = budget_of(3_600, 60, unsettled);
        let mut rust = Model::default();
        let acquire = |number| {
            let lease = LeaseId::new(NonZeroU64::new(number).expect("not 0"));
            Hits::Acquire { amount: NonZeroU64::MIN.saturating_add(number % 5), lease }
        };
        let reservations = (1..=LEASES).map(|number| (7_200, acquire(number)));
        let last = [(7_201, acquire(LEASES + 1)), (7_260, Hits::Peek)];
        let named = LeaseId::new(NonZeroU64::new(LEASES).expect("not 0"));
        let settled = [Hits::Settle { lease: named, used: 9 }, acquire(LEASES - 1)];
        let others = (0..8).map(|_| (7_260, Hits::Peek));
        let settled = settled.map(|hits| (7_260, hits));
        let mut fields = u64::MAX;
        for (second, hits) in reservations.chain(last).chain(settled).chain(others) {
            let now = at(second * 1_000_000);
            let name = format!("many-{}", unsettled.name());
            let call = charging_with(Charging::Independent, &name, &[((0, policy, hits), Veto::Never)]);
            assert_eq!(rust.decide(now, &call), lua.decide(now, &call).await, "{hits:?} at {second}");
            if second == 7_260 {
                let left = fields_of(&redis);
                assert!(fields == u64::MAX || fields <= left + 700, "{fields} fields, then {left}");
                fields = left;
            }
        }
        // Charged ones may be remembered.
        assert!(fields < 10 || unsettled == Unsettled::Charge, "all leases but one have ended: {fields}");
        cmd("FLUSHALL").query::<()>(&mut redis.connect()).expect("deleted");
    }
}

/// Leases that ended before the window count no more, though one call ends some of them and a much later one the others.
#[tokio::test]
async fn leases_of_an_earlier_window_count_no_more_whichever_call_ends_them() {
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let policy = budget_of(120, 30, Unsettled::Charge);
    let mut rust = Model::default();
    let acquire = |number| {
        let lease = LeaseId::new(NonZeroU64::new(number).expect("not 0"));
        Hits::Acquire { amount: NonZeroU64::MIN, lease }
    };
    // All end by 7,319; the window of the others begins at 7,320.
    let reservations = (0..750).map(|number| (7_260 + number / 25, acquire(number + 1)));
    for (second, hits) in reservations.chain([(7_321, Hits::Peek), (7_385, Hits::Peek)]) {
        let call = charging_with(Charging::Independent, "earlier", &[((0, policy, hits), Veto::Never)]);
        let now = at(second * 1_000_000);
        assert_eq!(rust.decide(now, &call), lua.decide(now, &call).await, "{hits:?} at {second}");
    }
}

/// A lease that is settled late, by the call that ends it, leaves nothing behind.
#[tokio::test]
async fn late_settlements_leave_no_fields_behind() {
    let redis = Redis::start();
    let lua = Subject::redis(redis.store());
    let policy = budget_of(86_400, 60, Unsettled::Charge);
    let mut rust = Model::default();
    for number in 1..=30 {
        let lease = LeaseId::new(NonZeroU64::new(number).expect("not 0"));
        let begin = 86_400 + number * 200;
        let acquired = Hits::Acquire { amount: NonZeroU64::MIN.saturating_add(9), lease };
        for (second, hits) in [(begin, acquired), (begin + 61, Hits::Settle { lease, used: 3 })] {
            let call = charging_with(Charging::Independent, "many-late", &[((0, policy, hits), Veto::Never)]);
            let now = at(second * 1_000_000);
            assert_eq!(rust.decide(now, &call), lua.decide(now, &call).await, "{hits:?} at {second}");
        }
    }
    let fields = fields_of(&redis);
    assert!(fields < 10, "{fields} fields are left");
}
