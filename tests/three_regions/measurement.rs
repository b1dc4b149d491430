//! Three regions on three continents under traffic at nine tenths of their limits, partitions, and the loss of a region.
//! Tables of the figures are printed at the end; `docs/internals/testing.md` has the command.

use tokio::runtime;

use super::{
    traffic::{Bound, Outcome, Pattern, Stream, excess, mean, now, passed, passed_by_region, quantile, send},
    *,
};

const RULES: &str = "
domain: web
descriptors:
- key: fixed_minute
  rate_limit: {unit: minute, requests_per_unit: 3000, scope: global}
- key: fixed_second
  rate_limit: {unit: second, requests_per_unit: 100, scope: global}
- key: sliding_minute
  rate_limit: {algorithm: sliding_window, unit: minute, requests_per_unit: 3000, scope: global}
- key: fixed_10s
  rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 500, scope: global}
- key: sliding_10s
  rate_limit: {algorithm: sliding_window, unit: second, unit_multiplier: 10, requests_per_unit: 500, scope: global}
- key: bucket
  rate_limit: {algorithm: token_bucket, unit: second, requests_per_unit: 100, scope: global}
- key: regional
  rate_limit: {unit: minute, requests_per_unit: 3000}
- key: small
  rate_limit: {unit: minute, requests_per_unit: 10, scope: global, on_share_exhausted: wait}
";

const FIXED_SECOND: Stream =
    Stream { key: "fixed_second", limit: 100.0, bound: Bound::Fixed(1.0), rate: 90.0 };
const BUCKET: Stream =
    Stream { key: "bucket", limit: 100.0, bound: Bound::Bucket { burst: 100.0, rate: 100.0 }, rate: 90.0 };
/// Counted in each region alone, to compare its latency.
const REGIONAL: Stream = Stream { key: "regional", limit: 3_000.0, bound: Bound::None, rate: 45.0 };

/// Rules under traffic that shifts in minutes.
const STREAMS: [Stream; 5] = [
    Stream { key: "fixed_minute", limit: 3_000.0, bound: Bound::Fixed(60.0), rate: 45.0 },
    FIXED_SECOND,
    Stream { key: "sliding_minute", limit: 3_000.0, bound: Bound::Sliding(60.0), rate: 45.0 },
    BUCKET,
    REGIONAL,
];

/// Rules in a partition: with windows that end several times in each phase.
const SHORT_STREAMS: [Stream; 5] = [
    Stream { key: "fixed_10s", limit: 500.0, bound: Bound::Fixed(10.0), rate: 45.0 },
    FIXED_SECOND,
    Stream { key: "sliding_10s", limit: 500.0, bound: Bound::Sliding(10.0), rate: 45.0 },
    BUCKET,
    REGIONAL,
];

/// The small limit, all of whose traffic is in one region, and its counters.
const SMALL: Stream = Stream { key: "small", limit: 10.0, bound: Bound::Fixed(60.0), rate: 0.15 };
const SMALL_COUNTERS: usize = 100;

/// Time after a partition within which all is as before.
const HEALING: f64 = 10.0;

/// A number of minutes of the plan, each as long as `REGIONS_MINUTE` states in seconds.
fn minutes(number: f64) -> Duration {
    let seconds: Option<f64> = env::var("REGIONS_MINUTE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(number * seconds.unwrap_or(60.0))
}

/// Whether a part is measured: all, or those that `REGIONS_PARTS` names.
fn is_measured(part: &str) -> bool {
    env::var("REGIONS_PARTS").map_or(true, |parts| parts.split(',').any(|named| named == part))
}

/// One counter for all.
async fn ideal() -> (Tollgate, Client) {
    let tollgate = Tollgate::serving(
        &RULES.replace(", scope: global", "").replace(", on_share_exhausted: wait", ""),
        &["--store", "memory"],
    );
    let client = tollgate.client().await;
    (tollgate, client)
}

/// Figures, and the hits over a limit.
#[derive(Debug, Default)]
struct Report {
    rows: Vec<String>,
    over: f64,
}

impl Report {
    fn new(title: &str) -> Self {
        let head = "| phase | rule | requests | one counter admits | admitted | of it | by region | over | failed | p50, ms | p99, ms |";
        let line = "|---|---|---|---|---|---|---|---|---|---|---|";
        Self { rows: vec![String::new(), title.to_owned(), head.to_owned(), line.to_owned()], over: 0.0 }
    }

    fn row(&mut self, phase: &str, stream: &Stream, outcome: &Outcome) {
        let [decided, ideal] = [&outcome.decided, &outcome.ideal].map(|all| passed(all));
        let over = excess(stream, &outcome.decided);
        self.over = self.over.max(over);
        self.push(format!(
            "| {phase} | {} | {} | {ideal} | {decided} | {:.2} % | {:?} | {over:.1} | {} | {:.2} | {:.2} |",
            stream.key,
            outcome.decided.len(),
            decided as f64 / ideal.max(1) as f64 * 100.0,
            passed_by_region(&outcome.decided),
            outcome.failed,
            quantile(&outcome.decided, 0.5),
            quantile(&outcome.decided, 0.99),
        ));
    }

    /// Adds a row, and shows the progress.
    fn push(&mut self, row: String) {
        eprintln!("{row}");
        self.rows.push(row);
    }
}

/// Regions under traffic, and what was decided.
struct Traffic<'t> {
    clients: Vec<Client>,
    ideal: &'t Client,
    streams: &'t [Stream],
}

impl Traffic<'_> {
    /// Sends all streams at once to counters of this value.
    async fn send(&self, value: &str, pattern: Pattern, time: Duration) -> Vec<Outcome> {
        let sent =
            self.streams.iter().map(|stream| send(*stream, pattern, &self.clients, self.ideal, value, time));
        join_all(sent).await
    }
}

/// Part 1: distributions of the traffic. Each has counters of its own.
async fn patterns() -> Report {
    let mut report =
        Report::new("Traffic at 0.9 of the limits, round trips of 80, 140 and 200 ms, 0.1 % loss");
    let world = World::start(RULES, Network::FAR, &[], None);
    let (_ideal, ideal) = ideal().await;
    let traffic = Traffic { clients: world.clients().await, ideal: &ideal, streams: &STREAMS };
    for (name, pattern, time) in [
        ("uniform", Pattern::Uniform, 2.0),
        ("hot", Pattern::Hot(0), 2.0),
        ("shifting", Pattern::Shifting(minutes(1.0)), 3.0),
    ] {
        let names = ["tollgate_region_loan_requests_total", "tollgate_region_exchanges_total"];
        let before = names.map(|name| world.metric(name));
        let outcomes = traffic.send(name, pattern, minutes(time)).await;
        for (stream, outcome) in STREAMS.iter().zip(&outcomes) {
            report.row(name, stream, outcome);
        }
        let global = STREAMS.iter().zip(&outcomes).filter(|(stream, _)| stream.key != REGIONAL.key);
        let decisions: usize = global.map(|(_, outcome)| outcome.decided.len()).sum();
        let after = names.map(|name| world.metric(name));
        let [loan_requests, messages] = [after[0] - before[0], after[1] - before[1]];
        let each = [loan_requests, messages].map(|count| count / decisions as f64);
        report.push(format!(
            "| {name} | {loan_requests} loan requests in {messages} messages, which also announce each second: {:.4} and {:.4} a decision |",
            each[0], each[1]
        ));
    }
    report
}

/// Part 2: a partition of five minutes, and a region that is killed, dropped, and returns. All phases have the same counters.
async fn partition() -> Report {
    let mut report = Report::new("A partition of five minutes; a region that is lost, dropped, and returns");
    let mut world = World::start(RULES, Network::FAR, &[], None);
    let (_ideal, ideal) = ideal().await;
    let mut all: Vec<Outcome> = SHORT_STREAMS.iter().map(|_| Outcome::default()).collect();
    let mut phase = async |world: &World, name: &str, pattern: Pattern, time: f64| {
        let traffic = Traffic { clients: world.clients().await, ideal: &ideal, streams: &SHORT_STREAMS };
        let outcomes = traffic.send("all", pattern, minutes(time)).await;
        for ((stream, outcome), all) in SHORT_STREAMS.iter().zip(&outcomes).zip(&mut all) {
            report.row(name, stream, outcome);
            all.extend(outcome);
        }
        outcomes
    };
    world.set_cut_off(2, true);
    phase(&world, "cut off, uniform", Pattern::Uniform, 2.5).await;
    phase(&world, "cut off, hot there", Pattern::Hot(2), 2.5).await;
    world.set_cut_off(2, false);
    let healed = (Instant::now(), now());
    let connected = async {
        while !world.is_connected() {
            sleep(Duration::from_millis(100)).await;
        }
        healed.0.elapsed()
    };
    let (connected, outcomes) =
        tokio::join!(connected, phase(&world, "healed, hot there", Pattern::Hot(2), 0.5));
    world.kill(2);
    phase(&world, "killed", Pattern::Two, 0.5).await;
    world.change_table(|rows| rows[2].is_lost = true);
    world.wait_until_connected();
    phase(&world, "dropped", Pattern::Two, 0.5).await;
    world.change_table(|rows| rows[2].is_lost = false);
    world.launch(2);
    world.wait_until_connected();
    phase(&world, "joining, hot there", Pattern::Hot(2), 0.5).await;
    phase(&world, "returned, hot there", Pattern::Hot(2), 0.5).await;
    for (stream, all) in SHORT_STREAMS.iter().zip(&all) {
        report.row("all phases", stream, all);
    }
    for (stream, outcome) in SHORT_STREAMS.iter().zip(outcomes) {
        let [before, after] = outcome.split(healed.1 + HEALING);
        report.row("within 10 s of healing", stream, &before);
        report.row("10 s after healing", stream, &after);
    }
    report.push(format!("connected {:.1} s after the partition", connected.as_secs_f64()));
    report
}

/// Part 3: hits of small limits that wait for loans.
async fn small() -> Report {
    let mut report =
        Report::new("A limit of 10 a minute with `on_share_exhausted: wait`, all traffic in one region");
    let world = World::start(RULES, Network::FAR, &[], None);
    let (clients, (_ideal, ideal)) = (world.clients().await, ideal().await);
    let values: Vec<String> = (0..SMALL_COUNTERS).map(|number| number.to_string()).collect();
    let sent = values.iter().map(|value| send(SMALL, Pattern::One, &clients, &ideal, value, minutes(4.0)));
    let mut all = Outcome::default();
    for outcome in join_all(sent).await {
        report.over = report.over.max(excess(&SMALL, &outcome.decided));
        all.extend(&outcome);
    }
    report.row("small", &Stream { bound: Bound::None, ..SMALL }, &all);
    let [waiting, ideal] = [&all.decided, &all.ideal].map(|decided| mean(decided));
    report.push(format!("mean {waiting:.2} ms, of the one counter {ideal:.2} ms; {} hits over", report.over));
    report
}

#[ignore = "a measurement of a quarter of an hour"]
#[tokio::test]
async fn three_regions_against_one_counter() {
    let begun = Instant::now();
    let mut reports = Vec::new();
    if is_measured("patterns") {
        reports.push(patterns().await);
    }
    // Few requests, beside the partition.
    let waiting = is_measured("small").then(|| {
        thread::spawn(|| {
            runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(small())
        })
    });
    if is_measured("partition") {
        reports.push(partition().await);
    }
    reports.extend(waiting.map(|waiting| waiting.join().expect("no panic")));
    for row in reports.iter().flat_map(|report| &report.rows) {
        println!("{row}");
    }
    println!("\nmeasured in {:.0} s", begun.elapsed().as_secs_f64());
    for report in reports {
        assert!(report.over <= 0.0, "{} hits over a limit", report.over);
    }
}
