//! Cost of regions for decisions that need none of the others: processor time of the service and of Redis.

use super::*;

/// Limits far above what a run sends, and a share of them too.
const RULES: &str = "
domain: web
descriptors:
- {key: regional, rate_limit: {unit: hour, requests_per_unit: 4000000000}}
- {key: global, rate_limit: {unit: hour, requests_per_unit: 4000000000, scope: global}}
";

/// A service with its Redis, and the rule that its requests match.
struct Measured<'m> {
    name: &'static str,
    tollgate: &'m Tollgate,
    redis: &'m Redis,
    key: &'static str,
    /// Processor time for each request in each round: of the service and of Redis, in microseconds.
    costs: Vec<[f64; 2]>,
}

/// A number that an environment variable states.
fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Processor time that a Redis has used.
fn used(redis: &Redis) -> Duration {
    let text: String = cmd("INFO").arg("cpu").query(&mut redis.connect()).expect("the server reports");
    let part = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("reported");
        line.trim_start_matches(':').parse::<f64>().expect("a number")
    };
    Duration::from_secs_f64(part("used_cpu_user") + part("used_cpu_sys"))
}

impl<'m> Measured<'m> {
    const fn new(name: &'static str, tollgate: &'m Tollgate, redis: &'m Redis, key: &'static str) -> Self {
        Self { name, tollgate, redis, key, costs: Vec::new() }
    }

    /// Sends requests for a number of seconds, and notes what each cost.
    fn run(&mut self, seconds: u64) {
        let before = [self.tollgate.processor_time(), used(self.redis)];
        let mut load = tool("tollgate-load");
        load.args(["--target", &format!("http://127.0.0.1:{}", self.tollgate.grpc_port)]);
        load.args(["--domain", "web", "--descriptor", &format!("{}={{key}}", self.key), "--keys", "10000"]);
        load.args(["--warmup", "0s", "--duration", &format!("{seconds}s"), "--json"]);
        let output = load.stderr(Stdio::inherit()).output().expect("it runs");
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(report["ok"], report["requests"], "below the limit: {report}");
        let sent = report["requests"].as_f64().expect("a number");
        let after = [self.tollgate.processor_time(), used(self.redis)];
        self.costs.push([0, 1].map(|at| (after[at] - before[at]).as_secs_f64() * 1e6 / sent));
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[ignore = "a measurement of three minutes"]
#[test]
fn cost_of_regions_for_decisions() {
    let seconds = number("REGIONS_COST_SECONDS", 4);
    let rounds = number("REGIONS_COST_ROUNDS", 9);
    let begun = Instant::now();
    let world = World::start(RULES, Network::NEAR, &[], None);
    let (redis, plain) = (Redis::start(), rules(&RULES.replace(", scope: global", "")));
    let alone = Tollgate::start(plain.path(), &["--store", &redis.url(), "--store-timeout", "20s"]);
    let region = &world.regions[0];
    let mut all = [
        Measured::new("without regions", &alone, &redis, "regional"),
        Measured::new("the same once more", &alone, &redis, "regional"),
        Measured::new("`regional`, with three regions", world.tollgate(0), &region.redis, "regional"),
        Measured::new(
            "`global` below its share, with three regions",
            world.tollgate(0),
            &region.redis,
            "global",
        ),
    ];
    for round in 0..=usize::try_from(rounds).expect("few") {
        for at in 0..all.len() {
            let measured = (round + at) % all.len();
            all[measured].run(seconds);
            // The first round creates the counters.
            if round == 0 {
                all[measured].costs.clear();
            }
        }
    }
    println!("\n| decisions | service, µs | of it | Redis, µs | of it |\n|---|---|---|---|---|");
    let base = all[0].costs.clone();
    for measured in &all {
        let costs = &measured.costs;
        let of = |part: usize| median(costs.iter().map(|cost| cost[part]).collect());
        let ratio = |part: usize| {
            median(costs.iter().zip(&base).map(|(cost, base)| cost[part] / base[part]).collect())
        };
        println!("| {} | {:.2} | {:.3} | {:.2} | {:.3} |", measured.name, of(0), ratio(0), of(1), ratio(1));
    }
    println!(
        "\nmedians of {rounds} rounds of {seconds} s each, ratios of one round; measured in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
}
