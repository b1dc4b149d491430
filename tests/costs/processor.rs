//! Processor time of decisions.

use redis::aio::MultiplexedConnection;
use tollgate::PathStep;
use tollgate::store::redis::{CommandKeys, Run};

use super::*;

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
        let decisions = runs.chunks(self.runs).map(|runs| store.decide_runs(runs, CommandKeys::NoSlots));
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

#[tokio::test]
#[ignore = "a measurement"]
async fn processor() {
    let (redis, store) = Redis::start_store();
    let client = redis::Client::open(redis.url()).expect("a valid URL");
    let connection = client.get_multiplexed_async_connection().await.expect("it answers");
    let script = redis::Script::new("return 1");
    let mut load = cmd("SCRIPT");
    load.arg("LOAD").arg("return 1");
    load.query::<()>(&mut redis.connect()).expect("an answer");
    let mut nothing = cmd("EVALSHA");
    nothing.arg(script.get_hash()).arg(0);
    let commands = [("PING", cmd("PING")), ("EVALSHA of `return 1`", nothing)];

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
    let (redis, store) = Redis::start_store();
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
        let (redis, store) = Redis::start_store();
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
        let mut usage = cmd("MEMORY");
        let usage = usage.arg("USAGE").arg("{edge|api_key=many}").arg("SAMPLES").arg(0);
        let bytes: usize = usage.query(&mut redis.connect()).expect("a number");
        println!("{counters:>6} {costs:>7.1?} {:>5.1}", bytes as f64 / counters as f64);
    }
}
