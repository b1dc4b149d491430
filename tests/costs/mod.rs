//! Cost of counters in Redis, as docs/concepts/algorithms.md states: bytes, and processor time for each decision.
//!
//! Prints tables; only the bytes are checked, since they do not depend on the machine:
//! `cargo test --release --test integration -- --ignored --nocapture costs::`

use std::{num::NonZeroU64, time::Duration};

use futures_util::{StreamExt as _, stream};
use redis::aio::MultiplexedConnection;
use smallvec::SmallVec;
use tollgate::{
    PathStep, RecordId, SyncMode,
    algorithm::{Algorithm, Charging, Parameters, Policy, Reserve, Unsettled},
    descriptor::{Entry, Hits},
    lease::LeaseId,
    quota::{Quota, Window},
    store::{
        RedisStore,
        key::CellKey,
        redis::{CommandKeys, Run, ScriptClock},
        request::{Cell, Check, TagRequest, Veto},
    },
};

use crate::support::{redis::Redis, stores::at};

/// Calls that await their answers at the same time.
const IN_FLIGHT: usize = 200;

const HOUR: u64 = 3_600_000_000;

/// Limits so high that they deny nothing.
const UNREACHED_LIMIT: u32 = 1_000_000;

/// Some ten characters that no other client has.
fn client_id(number: u32) -> String {
    let mut id = format!("{:08x}{:04x}", number.wrapping_mul(0x9e37_79b1), number & 0xffff);
    id.truncate(8 + number as usize % 5);
    id
}

/// `limit` per hour; what holds places holds them for an hour.
fn hourly(algorithm: Algorithm, limit: u32) -> Policy {
    let window = Window::from_seconds(3_600).expect("in range");
    let parameters = Parameters { lease_ttl: Duration::from_secs(3_600), ..Parameters::default() };
    Policy::new(algorithm, Quota { limit: limit.into(), window }, &parameters).expect("valid")
}

/// A number of hits; for a concurrency limit, permits under a lease of their own.
fn charge(algorithm: Algorithm, hits: u32) -> Hits {
    match (algorithm, NonZeroU64::new(u64::from(hits))) {
        (Algorithm::Concurrency, Some(amount)) => Hits::Acquire { amount, lease: LeaseId::random() },
        _ => Hits::charge(u64::from(hits)),
    }
}

/// A client's request with the same hits on this many counters.
fn request(client: u32, counters: u8, policy: Policy, hits: Hits) -> TagRequest {
    let algorithm = policy.algorithm();
    let entry = Entry { key: "api_key", value: &client_id(client) };
    let mut key = CellKey::open("edge", [entry].into_iter());
    if algorithm.has_own_key() {
        key = key.dedicated(RecordId::numbered(0, algorithm));
    }
    let check = |descriptor: u8| Check {
        descriptor: usize::from(descriptor),
        record: RecordId::numbered(descriptor, algorithm),
        policy,
        hits,
        veto: Veto::Alone,
        sync: SyncMode::Strict,
        ban: None,
        share: None,
    };
    let cell = Cell { key, checks: (0..counters).map(check).collect() };
    TagRequest { cells: SmallVec::from_iter([cell]), charging: Charging::Independent, is_of_rule: false }
}

/// Has every call decided, many at a time, and checks what became of each of its checks.
async fn decide(store: &RedisStore, calls: impl Iterator<Item = TagRequest>, admitted: bool) {
    let decisions = calls.map(|call| async move { store.decide(&call).await });
    let mut decisions = stream::iter(decisions).buffer_unordered(IN_FLIGHT);
    while let Some(verdicts) = decisions.next().await {
        let verdicts = verdicts.expect("the store decides");
        assert!(verdicts.iter().all(|(_, verdict)| verdict.admitted == admitted));
    }
}

/// A figure of `INFO`.
fn info(redis: &Redis, section: &str, name: &str) -> f64 {
    let text: String = redis::cmd("INFO").arg(section).query(&mut redis.connect()).expect("an answer");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|figure| figure.trim().parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// Bytes that the server uses, once they are steady.
async fn used_memory(redis: &Redis) -> f64 {
    let mut before = info(redis, "memory", "used_memory");
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = info(redis, "memory", "used_memory");
        if (now - before).abs() < 10_000.0 {
            return now;
        }
        before = now;
    }
}

/// Content that fills a server, to measure its memory.
struct Filling {
    what: &'static str,
    algorithm: Algorithm,
    clients: u32,
    /// Counters of a client that are charged in one call.
    counters: u8,
    /// Calls of a client, evenly over the hour.
    calls: u32,
    /// The unit of counting: counters, requests or permits of a client.
    units: u32,
    /// The most bytes that one may take, where that is promised.
    promised: Option<f64>,
}

impl Filling {
    /// One call on packed counters for each client.
    const fn packed(what: &'static str, algorithm: Algorithm, counters: u8, promised: Option<f64>) -> Self {
        let units = counters as u32;
        Self { what, algorithm, clients: 1_000_000, counters, calls: 1, units, promised }
    }

    /// `length` hits, or places, of each client.
    const fn queued(what: &'static str, algorithm: Algorithm, length: u32, promised: Option<f64>) -> Self {
        let clients = 2_000_000 / length;
        Self { what, algorithm, clients, counters: 1, calls: length, units: length, promised }
    }

    /// Prints what it takes; says whether that is as promised.
    async fn weigh(&self) -> bool {
        let redis = Redis::start();
        let store = redis.store();
        // The script and the connection take some memory too.
        let policy = hourly(self.algorithm, 10_000);
        decide(&store, [request(u32::MAX, self.counters, policy, Hits::ONE)].into_iter(), true).await;
        let empty = used_memory(&redis).await;
        for call in 0..self.calls {
            let now = at(u64::from(call) * HOUR / u64::from(self.calls));
            let store = store.clone().with_clock(ScriptClock::Fixed(now));
            let calls = (0..self.clients)
                .map(|client| request(client, self.counters, policy, charge(self.algorithm, 1)));
            decide(&store, calls, true).await;
        }
        let bytes = used_memory(&redis).await - empty;
        let units = f64::from(self.clients) * f64::from(self.units);
        println!(
            "{:42} {:>11} {:>11} {:>8.1} {:>12.1} {:>10.2}",
            self.what,
            self.clients,
            units,
            bytes / 1e6,
            bytes / f64::from(self.clients),
            bytes / units
        );
        self.promised.is_none_or(|promised| bytes / units <= promised)
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn bytes() {
    println!(
        "{:42} {:>11} {:>11} {:>8} {:>12} {:>10}",
        "bytes in Redis", "clients", "units", "MB", "per client", "per unit"
    );
    let fillings = [
        Filling::packed("fixed_window, 10 counters a client", Algorithm::FixedWindow, 10, Some(32.0)),
        Filling::packed("token_bucket, 10 counters a client", Algorithm::TokenBucket, 10, Some(32.0)),
        Filling::packed("sliding_window, 10 counters a client", Algorithm::SlidingWindow, 10, Some(32.0)),
        Filling::packed("fixed_window, 1 counter a client", Algorithm::FixedWindow, 1, None),
        Filling::packed("token_bucket, 1 counter a client", Algorithm::TokenBucket, 1, None),
        Filling::packed("sliding_window, 1 counter a client", Algorithm::SlidingWindow, 1, None),
        Filling::queued(
            "sliding_window_log, 100 requests a client",
            Algorithm::SlidingWindowLog,
            100,
            Some(12.0),
        ),
        Filling::queued(
            "sliding_window_log, 1,000 requests a client",
            Algorithm::SlidingWindowLog,
            1_000,
            Some(12.0),
        ),
        Filling::queued("concurrency, 10 places a client", Algorithm::Concurrency, 10, None),
        Filling::queued("concurrency, 1,000 places a client", Algorithm::Concurrency, 1_000, None),
    ];
    let mut broken = Vec::new();
    for filling in fillings {
        if !filling.weigh().await {
            broken.push(filling.what);
        }
    }
    assert!(broken.is_empty(), "more bytes than promised: {broken:?}");
}

/// Clients whose decisions are measured, each with a key of its own.
const CLIENTS: u32 = 100_000;

const ROUNDS: u32 = 3;

/// Decisions whose cost is measured.
struct Decisions {
    what: String,
    algorithm: Algorithm,
    counters: u8,
    /// Hits that each counter holds before.
    held: u32,
    limit: u32,
    admitted: bool,
    /// Apart from those of other decisions.
    first_client: u32,
}

impl Decisions {
    /// Clients in an order that is not that of their creation, for the server to find nothing in its caches.
    fn clients(&self) -> impl Iterator<Item = u32> + use<> {
        let first = self.first_client;
        (0..CLIENTS).map(move |number| first + (number * 7_919) % CLIENTS)
    }

    fn calls(&self, hits: impl Fn() -> Hits) -> impl Iterator<Item = TagRequest> {
        let policy = hourly(self.algorithm, self.limit);
        self.clients().map(move |client| request(client, self.counters, policy, hits()))
    }

    async fn prepare(&self, store: &RedisStore) {
        decide(store, self.calls(|| charge(self.algorithm, self.held)), true).await;
    }

    /// Microseconds that the server computes for one.
    async fn cost(&self, redis: &Redis, store: &RedisStore) -> f64 {
        let before = processor_time(redis);
        decide(store, self.calls(|| charge(self.algorithm, 1)), self.admitted).await;
        (processor_time(redis) - before) / f64::from(CLIENTS) * 1e6
    }
}

/// Runs of one command whose cost is measured, each on a key of its own that is there.
struct Together {
    what: &'static str,
    algorithm: Algorithm,
    counters: u8,
    runs: usize,
    times: u16,
}

impl Together {
    /// Microseconds that the server computes for each run; the clients are apart from others.
    async fn cost(&self, redis: &Redis, store: &RedisStore, first_client: u32) -> f64 {
        let policy = hourly(self.algorithm, UNREACHED_LIMIT);
        let client = |number: u32| first_client + (number * 7_919) % CLIENTS;
        let calls: Vec<_> =
            (0..CLIENTS).map(|number| request(client(number), self.counters, policy, Hits::ONE)).collect();
        decide(store, calls.iter().cloned(), true).await;
        let runs: Vec<_> = calls
            .iter()
            .map(|call| Run { request: call, times: self.times, prefetches: &[], reported: &[] })
            .collect();
        let before = processor_time(redis);
        let decisions = runs.chunks(self.runs).map(|runs| store.decide_runs(runs, CommandKeys::Any));
        let mut decisions = stream::iter(decisions).buffer_unordered(IN_FLIGHT / self.runs);
        while let Some(outcomes) = decisions.next().await {
            assert!(outcomes.expect("the store decides").iter().all(Result::is_ok));
        }
        (processor_time(redis) - before) / f64::from(CLIENTS) * 1e6
    }
}

fn all_together() -> [Together; 7] {
    let together =
        |what, algorithm, counters, runs, times| Together { what, algorithm, counters, runs, times };
    [
        together("fixed_window, 1 a call, 16 together", Algorithm::FixedWindow, 1, 16, 1),
        together("token_bucket, 1 a call, 16 together", Algorithm::TokenBucket, 1, 16, 1),
        together("sliding_window, 1 a call, 16 together", Algorithm::SlidingWindow, 1, 16, 1),
        together("fixed_window, 3 a call, 16 together", Algorithm::FixedWindow, 3, 16, 1),
        together("token_bucket, 3 a call, 16 together", Algorithm::TokenBucket, 3, 16, 1),
        together("sliding_window, 3 a call, 16 together", Algorithm::SlidingWindow, 3, 16, 1),
        together("fixed_window, 1 a call, 100 times", Algorithm::FixedWindow, 1, 1, 100),
    ]
}

/// Seconds that the server has computed.
fn processor_time(redis: &Redis) -> f64 {
    info(redis, "cpu", "used_cpu_user") + info(redis, "cpu", "used_cpu_sys")
}

/// Microseconds that the server computes for a command that decides nothing.
async fn cost_of(redis: &Redis, connection: &MultiplexedConnection, command: &redis::Cmd) -> f64 {
    let before = processor_time(redis);
    let answers = (0..CLIENTS).map(|_| {
        let mut connection = connection.clone();
        async move { connection.send_packed_command(command).await.expect("an answer") }
    });
    stream::iter(answers).buffer_unordered(IN_FLIGHT).for_each(async |_| {}).await;
    (processor_time(redis) - before) / f64::from(CLIENTS) * 1e6
}

/// Each algorithm with one counter, and those that share a key with more; what passes and what doesn't.
fn all_decisions() -> Vec<Decisions> {
    let mut all = Vec::new();
    for algorithm in Algorithm::ALL {
        for counters in if algorithm.has_own_key() { &[1][..] } else { &[1, 3, 10] } {
            for admitted in [true, false] {
                // Hits that are there, and the limit.
                let (held, limit) = match (algorithm, admitted) {
                    (Algorithm::SlidingWindowLog, true) => (20, 100),
                    (Algorithm::SlidingWindowLog, false) => (20, 20),
                    (Algorithm::Concurrency, true) => (5, 100),
                    (Algorithm::Concurrency, false) => (5, 5),
                    (_, true) => (1, UNREACHED_LIMIT),
                    (_, false) => (1, 1),
                };
                let what = format!(
                    "{}, {counters} a call, {}",
                    algorithm.name(),
                    if admitted { "admitted" } else { "denied" }
                );
                let first_client = all.len() as u32 * CLIENTS;
                let counters = *counters;
                all.push(Decisions { what, algorithm, counters, held, limit, admitted, first_client });
            }
        }
    }
    all
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::test]
#[ignore = "a measurement"]
async fn processor() {
    let redis = Redis::start();
    let store = redis.store();
    let client = redis::Client::open(redis.url()).expect("a valid URL");
    let connection = client.get_multiplexed_async_connection().await.expect("it answers");
    let script = redis::Script::new("return 1");
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    load.query::<()>(&mut redis.connect()).expect("an answer");
    let mut nothing = redis::cmd("EVALSHA");
    nothing.arg(script.get_hash()).arg(0);
    let commands = [("PING", redis::cmd("PING")), ("EVALSHA of `return 1`", nothing)];

    let all = all_decisions();
    for decisions in &all {
        decisions.prepare(&store).await;
    }
    let mut costs = vec![Vec::new(); commands.len() + all.len()];
    for _ in 0..ROUNDS {
        for (at, (_, command)) in commands.iter().enumerate() {
            costs[at].push(cost_of(&redis, &connection, command).await);
        }
        for (at, decisions) in all.iter().enumerate() {
            costs[commands.len() + at].push(decisions.cost(&redis, &store).await);
        }
    }
    println!("microseconds of Redis' processor for each call, the median of {ROUNDS} × {CLIENTS}");
    let names = commands.iter().map(|(name, _)| *name).chain(all.iter().map(|each| each.what.as_str()));
    for (name, costs) in names.zip(costs) {
        println!("{name:42} {:>6.1}   {costs:.1?}", median(costs.clone()));
    }
    for (at, together) in all_together().iter().enumerate() {
        let first_client = (all.len() + at) as u32 * CLIENTS;
        let mut costs = Vec::new();
        for _ in 0..ROUNDS {
            costs.push(together.cost(&redis, &store, first_client).await);
        }
        println!("{:42} {:>6.1}   {costs:.1?}", together.what, median(costs.clone()));
    }
}

/// Microseconds for one limit, and for several of one descriptor, which are charged all or none; admitted and denied.
#[tokio::test]
#[ignore = "a measurement"]
async fn processor_of_several_limits() {
    let redis = Redis::start();
    let store = redis.store();
    let calls = |limits: u8, limit: u32| {
        let first_client = u32::from(limits) * 2 + u32::from(limit == 1);
        (0..CLIENTS).map(move |number| {
            let client = first_client * CLIENTS + (number * 7_919) % CLIENTS;
            let call = request(client, limits, hourly(Algorithm::FixedWindow, limit), Hits::ONE);
            let charging = if limits == 1 { Charging::Independent } else { Charging::AllOrNone };
            TagRequest { charging, is_of_rule: limits > 1, ..call }
        })
    };
    for limits in [1, 2, 3, 4, 8] {
        let mut costs = [Vec::new(), Vec::new()];
        for (limit, costs) in [UNREACHED_LIMIT, 1].into_iter().zip(&mut costs) {
            decide(&store, calls(limits, limit), true).await;
            for _ in 0..ROUNDS {
                let before = processor_time(&redis);
                decide(&store, calls(limits, limit), limit > 1).await;
                costs.push((processor_time(&redis) - before) / f64::from(CLIENTS) * 1e6);
            }
        }
        let [admitted, denied] = costs.map(median);
        println!("{limits} limits: admitted {admitted:.1}, denied {denied:.1}");
    }
}

/// A request of one tag for the counters of these rules, as a tree has them.
fn of_many_rules(rules: impl Iterator<Item = usize>, policy: Policy) -> TagRequest {
    let key = CellKey::open("edge", [Entry { key: "api_key", value: "many" }].into_iter());
    let check = |(descriptor, rule): (usize, usize)| Check {
        descriptor,
        record: RecordId::of([PathStep::Closed(&format!("path=/{rule}"))], policy.algorithm()),
        policy,
        hits: Hits::ONE,
        veto: Veto::Alone,
        sync: SyncMode::Strict,
        ban: None,
        share: None,
    };
    let cell = Cell { key, checks: rules.enumerate().map(check).collect() };
    TagRequest { cells: SmallVec::from_iter([cell]), charging: Charging::Independent, is_of_rule: false }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn processor_for_a_tag_with_many_counters() {
    const CALLS: usize = 2_000;
    let policy = hourly(Algorithm::FixedWindow, UNREACHED_LIMIT);
    println!("counters in use; microseconds of Redis' processor to charge one, and 64; bytes for each");
    for counters in [1, 64, 128, 1_024, 8_192, 60_000] {
        let redis = Redis::start();
        let store = redis.store();
        for first in (0..counters).step_by(64) {
            let filling = of_many_rules(first..counters.min(first + 64), policy);
            store.decide(&filling).await.expect("the store decides");
        }
        let mut costs = Vec::new();
        for checks in [1, counters.min(64)] {
            let calls = (0..CALLS).map(|call| {
                let rules = (0..checks).map(move |check| (call * 7_919 + check * 31) % counters);
                of_many_rules(rules, policy)
            });
            let calls: Vec<_> = calls.collect();
            let before = processor_time(&redis);
            for call in calls {
                store.decide(&call).await.expect("the store decides");
            }
            costs.push((processor_time(&redis) - before) / CALLS as f64 * 1e6);
        }
        let mut usage = redis::cmd("MEMORY");
        let usage = usage.arg("USAGE").arg("{edge|api_key=many}").arg("SAMPLES").arg(0);
        let bytes: usize = usage.query(&mut redis.connect()).expect("a number");
        println!("{counters:>6} {costs:>7.1?} {:>5.1}", bytes as f64 / counters as f64);
    }
}

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

/// A reservation and its settlement against a plain decision, and the bytes of a lease.
#[tokio::test]
#[ignore = "a measurement"]
async fn reservations() {
    const CALLS: u32 = 20_000;
    let (plain, budget) = (hourly(Algorithm::FixedWindow, UNREACHED_LIMIT), with_reservations());
    let redis = Redis::start();
    let store = redis.store();
    println!("microseconds of Redis' processor: plain decision, reservation, settlement, again; clients");
    for clients in [CALLS, 100, 1] {
        let mut costs = [vec![], vec![], vec![], vec![]];
        for _ in 0..5 {
            // Identical calls in flight are one.
            let spread = CALLS.max(clients);
            let calls = (0..CALLS).map(|call| request(call % spread, 1, plain, Hits::ONE)).collect();
            costs[0].push(cost_of_calls(&redis, &store, calls).await);
            let leases: Vec<_> = (0..CALLS).map(|_| LeaseId::random()).collect();
            let of_leases = |hits: fn(LeaseId) -> Hits| {
                let calls = leases.iter().zip(0_u32..);
                calls.map(|(lease, call)| request(call % clients, 1, budget, hits(*lease))).collect()
            };
            let amount = NonZeroU64::new(480).expect("not 0");
            let reserve = |lease| Hits::Acquire { amount: NonZeroU64::new(480).expect("not 0"), lease };
            assert_eq!(reserve(leases[0]).charged(), amount.get());
            costs[1].push(cost_of_calls(&redis, &store, of_leases(reserve)).await);
            for cost in &mut costs[2..] {
                let settle = |lease| Hits::Settle { lease, used: 120 };
                cost.push(cost_of_calls(&redis, &store, of_leases(settle)).await);
            }
        }
        let costs = costs.map(median);
        println!(
            "{costs:>6.1?} {clients:>6}; together {:.2} x a plain decision",
            (costs[1] + costs[2]) / costs[0]
        );
    }
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
            decide(&store, hits.map(|hits| request(client, 1, budget, hits)), true).await;
            let mut server = redis.connect();
            let keys: Vec<String> = redis::cmd("KEYS").arg(&name).query(&mut server).expect("keys");
            let mut usage = redis::cmd("MEMORY");
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
        redis::cmd("SET").arg("leases").arg(content).query::<()>(&mut server).expect("stored");
        let before = processor_time(&redis);
        for _ in 0..CALLS {
            let lease: Vec<u8> = (0..20).map(|_| fastrand::u8(..)).collect();
            script.key("leases").arg(lease).invoke::<u64>(&mut server).expect("an answer");
        }
        println!("{leases:>6} {:>7.1}", (processor_time(&redis) - before) / CALLS as f64 * 1e6);
    }
}
