//! Processor time and bytes of reservations.

use tollgate::algorithm::{Reserve, Unsettled};

use super::*;

/// A limit so high that it denies nothing, with leases of an hour.
fn with_reservations() -> Policy {
    let window = Window::from_seconds(86_400).expect("in range");
    let ttl = 3_600.try_into().expect("not 0");
    let reserve = Reserve { ttl, unsettled: Unsettled::Charge, add: 0, cap: None };
    let parameters = Parameters { reserve: Some(reserve), ..Parameters::default() };
    let quota = Quota { limit: u32::MAX.into(), window };
    Policy::new(Algorithm::FixedWindow, quota, &parameters).expect("valid")
}

/// Microseconds of the server for each of these calls.
async fn cost_of_calls(redis: &Redis, store: &RedisStore, calls: Vec<TagRequest>) -> f64 {
    let (before, count) = (processor_time(redis), calls.len());
    decide(store, calls.into_iter(), true).await;
    (processor_time(redis) - before) / count as f64 * 1e6
}

/// Calls of a measurement.
const CALLS: u32 = 20_000;

/// Prints the cost of a reservation and its settlement, and that of a plain decision.
async fn print_costs(redis: &Redis, store: &RedisStore, budget: Policy) {
    let plain = hourly(Algorithm::FixedWindow, UNREACHED_LIMIT);
    println!("microseconds of Redis' processor: plain decision, reservation, settlement, again; clients");
    for clients in [CALLS, 100, 1] {
        let mut costs = [vec![], vec![], vec![], vec![]];
        for _ in 0..5 {
            // Identical calls in flight are one.
            let spread = CALLS.max(clients);
            let calls = (0..CALLS).map(|call| request(call % spread, 1, plain, Hits::ONE)).collect();
            costs[0].push(cost_of_calls(redis, store, calls).await);
            let leases: Vec<_> = (0..CALLS).map(|_| LeaseId::random()).collect();
            let of_leases = |hits: fn(LeaseId) -> Hits| {
                let calls = leases.iter().zip(0_u32..);
                calls.map(|(lease, call)| request(call % clients, 1, budget, hits(*lease))).collect()
            };
            let amount = NonZeroU64::new(480).expect("not 0");
            let reserve = |lease| Hits::Acquire { amount: NonZeroU64::new(480).expect("not 0"), lease };
            assert_eq!(reserve(leases[0]).charged(), amount.get());
            costs[1].push(cost_of_calls(redis, store, of_leases(reserve)).await);
            for cost in &mut costs[2..] {
                let settle = |lease| Hits::Settle { lease, used: 120 };
                cost.push(cost_of_calls(redis, store, of_leases(settle)).await);
            }
        }
        let costs = costs.map(median);
        println!(
            "{costs:>6.1?} {clients:>6}; together {:.2} x a plain decision",
            (costs[1] + costs[2]) / costs[0]
        );
    }
}

/// Prints the bytes of the leases of a counter, and checks them.
async fn print_bytes(redis: &Redis, store: &RedisStore, budget: Policy) {
    println!("leases of a counter; bytes for each, open and settled");
    for count in [1, 10, 40, 100, 1_000, 10_000, 65_000] {
        let client = CALLS + count;
        let leases: Vec<_> = (0..count).map(|_| LeaseId::random()).collect();
        let amount = NonZeroU64::new(480).expect("not 0");
        let name = format!("{{edge|api_key={}}}*", client_id(client));
        let mut bytes = Vec::new();
        for is_settled in [false, true] {
            let hits = leases.iter().map(|lease| match is_settled {
                false => Hits::Acquire { amount, lease: *lease },
                true => Hits::Settle { lease: *lease, used: 120 },
            });
            decide(store, hits.map(|hits| request(client, 1, budget, hits)), true).await;
            let mut server = redis.connect();
            let keys: Vec<String> = cmd("KEYS").arg(&name).query(&mut server).expect("keys");
            let mut usage = cmd("MEMORY");
            usage.arg("USAGE").arg(&keys[0]).arg("SAMPLES").arg(0);
            let used: u64 = usage.query(&mut server).expect("a number");
            bytes.push(used as f64 / f64::from(count));
        }
        println!("{count:>6} {bytes:>7.1?}");
        assert!(
            bytes.iter().all(|bytes| count < 100 || *bytes <= 200.0),
            "more than 200 bytes for each: {bytes:?}"
        );
    }
}

/// A reservation and its settlement against a plain decision, and the bytes of a lease.
#[tokio::test]
#[ignore = "a measurement"]
async fn reservations() {
    let budget = with_reservations();
    let (redis, store) = Redis::start_store();
    print_costs(&redis, &store, budget).await;
    print_bytes(&redis, &store, budget).await;
}

/// Cost of the alternative: the leases of a counter in one string.
#[tokio::test]
#[ignore = "a measurement"]
async fn leases_in_one_string() {
    const CALLS: usize = 5_000;
    let redis = Redis::start();
    let mut server = redis.connect();
    let script = redis::Script::new(
        "local raw = redis.call('GET', KEYS[1])
        redis.call('SET', KEYS[1], string.sub(raw, 21) .. ARGV[1], 'KEEPTTL')
        return string.find(raw, ARGV[1], 1, true) or 0",
    );
    println!("leases of 20 bytes in one string; microseconds of Redis' processor for each change");
    for leases in [1, 10, 100, 1_000, 10_000, 65_000_usize] {
        let content: Vec<u8> = (0..leases * 20).map(|_| fastrand::u8(..)).collect();
        cmd("SET").arg("leases").arg(content).query::<()>(&mut server).expect("stored");
        let before = processor_time(&redis);
        for _ in 0..CALLS {
            let lease: Vec<u8> = (0..20).map(|_| fastrand::u8(..)).collect();
            script.key("leases").arg(lease).invoke::<u64>(&mut server).expect("an answer");
        }
        println!("{leases:>6} {:>7.1}", (processor_time(&redis) - before) / CALLS as f64 * 1e6);
    }
}
