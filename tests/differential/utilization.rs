//! Sums of reported utilization: Lua against Rust.

use fastrand::Rng;
use tollgate::store::{key::CellKey, redis::add_utilization};
use tollgate_shedding::{SharedSums, SheddingPolicy, UtilizationSums};

use super::*;

fn interval(random: &mut Rng) -> UtilizationSums {
    let weight = if random.bool() { random.f64() } else { 0.0 };
    UtilizationSums {
        weight,
        utilization: weight * random.f64(),
        passed: weight * random.f64(),
        requested: std::array::from_fn(|_| f64::from(random.u32(..10_000))),
    }
}

fn is_near(one: &UtilizationSums, other: &UtilizationSums) -> bool {
    let numbers = |sums: &UtilizationSums| {
        let [critical, high, default, low] = sums.requested;
        [sums.weight, sums.utilization, sums.passed, critical, high, default, low]
    };
    numbers(one)
        .into_iter()
        .zip(numbers(other))
        .all(|(one, other)| (one - other).abs() <= 1e-9 * one.abs() + 1e-12)
}

#[tokio::test]
async fn shared_sums_are_those_of_one_instance() {
    let (redis, store) = Redis::start_store();
    let mut random = Rng::with_seed(7);
    for history in 0..20 {
        let policy = SheddingPolicy {
            target: 0.8,
            half_life: Duration::from_millis(random.u64(1_000..60_000)),
            floor: 0.01,
            stale_after: Duration::from_secs(10),
        };
        let domain = format!("domain {history}");
        let key = CellKey::global(&domain, RecordId::alone(Algorithm::FixedWindow)).utilization();
        let (mut sums, mut now) = (SharedSums::default(), 0_u64);
        for step in 0..20 {
            // A clock may be set back, after a failover.
            now = if random.u32(..8) == 0 {
                now.saturating_sub(500_000)
            } else {
                now + random.u64(..5_000_000)
            };
            let (now, added) = (at(now), interval(&mut random));
            let expected = sums.add(&policy, &added, now);
            let store = store.clone().at_time(now);
            let shared = add_utilization(&store, &key, &policy, &added, Duration::from_secs(5)).await;
            let shared = shared.expect("Redis responds");
            assert!(is_near(&shared.sums, &expected.sums), "{history}.{step}: {shared:?}, {expected:?}");
            assert_eq!(shared.report_age, expected.report_age, "{history}.{step}");
        }
        let left: i64 = cmd("PTTL").arg(key.as_bytes()).query(&mut redis.connect()).expect("answers");
        assert!((1..=960_000).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn shared_sums_that_are_no_numbers_are_begun_anew() {
    let (redis, store) = Redis::start_store();
    let policy = SheddingPolicy {
        target: 0.8,
        half_life: Duration::from_secs(3),
        floor: 0.01,
        stale_after: Duration::from_secs(10),
    };
    let key = CellKey::global("d", RecordId::alone(Algorithm::FixedWindow)).utilization();
    let added =
        UtilizationSums { weight: 0.5, utilization: 0.4, passed: 0.5, requested: [0.0, 1.0, 2.0, 3.0] };
    let good = "1 1 1 1 1 1 1 1 1";
    for at in 0..9 {
        for broken in ["nan", "-nan", "inf", "-1", "x"] {
            let mut numbers: Vec<_> = good.split(' ').collect();
            numbers[at] = broken;
            let stored = numbers.join(" ");
            cmd("SET").arg(key.as_bytes()).arg(&stored).exec(&mut redis.connect()).expect("set");
            let shared = add_utilization(&store, &key, &policy, &added, Duration::from_secs(5)).await;
            assert!(is_near(&shared.expect("Redis responds").sums, &added), "{stored}");
        }
    }
}
