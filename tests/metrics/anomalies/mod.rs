//! Unusual traffic: the rules of Prometheus on four weeks of synthetic traffic.

mod traffic;

use std::iter;

use self::traffic::{Change, DAY, History};
use super::{alerts::ALERTS, *};

const DAYS: u64 = 28;
/// By default; promtool takes minutes for 50.
const DOMAINS: u64 = 8;
/// False alarms in 50 domains until the first anomaly, of which a week is for learning: at most one a week.
const FALSE_ALARMS_OF_50: u64 = 2;
/// Minute of a day in which anomalies begin: at 10:17.
const BEGIN: u64 = 617;
/// Domains with fewer hits per minute are too quiet for these anomalies to be more than chance.
const MIN_RATE: f64 = 10.0;

/// An anomaly that is to be found in a share of the domains while it lasts.
struct Scenario {
    name: &'static str,
    kind: &'static str,
    begin: u64,
    minutes: u64,
    /// Least percentage of the domains with enough traffic.
    found: usize,
    /// By the minutes since its begin.
    change: fn(u64) -> Change,
}

/// A change that begins on a day and lasts some minutes, and is found in this percentage of the domains.
const fn steady(
    name: &'static str,
    kind: &'static str,
    day: u64,
    minutes: u64,
    found: usize,
    change: fn(u64) -> Change,
) -> Scenario {
    Scenario { name, kind, begin: day * DAY + BEGIN, minutes, found, change }
}

/// A name of domains, and their anomalies.
struct Group {
    name: &'static str,
    /// Every how many domains one is in the group.
    of: u64,
    /// In their order, and on days apart, so that none is usual because of another one.
    scenarios: &'static [Scenario],
}

/// A domain of the first group is a copy of one in the second.
const GROUPS: [Group; 2] = [
    Group {
        name: "drifting",
        of: 3,
        scenarios: &[Scenario {
            name: "drift of 3 % a day",
            kind: "rate_drift",
            begin: 14 * DAY,
            minutes: 12 * DAY,
            found: 90,
            change: |minute| Change { hits: 1.03_f64.powf(minute as f64 / DAY as f64), denied: 0.0 },
        }],
    },
    Group {
        name: "busy",
        of: 1,
        scenarios: &[
            steady("spike to 5 times for 10 minutes", "rate_high", 21, 10, 90, |_| Change {
                hits: 5.0,
                denied: 0.0,
            }),
            steady("drop to nothing", "rate_low", 22, 10, 90, |_| Change { hits: 0.0, denied: 0.0 }),
            steady("step to 3 times", "rate_high", 25, 90, 85, |_| Change { hits: 3.0, denied: 0.0 }),
            steady("drop to 30 %", "rate_low", 26, 120, 75, |_| Change { hits: 0.3, denied: 0.0 }),
            steady("denied share plus 50 points", "denied_share_high", 27, 60, 85, |_| Change {
                hits: 1.0,
                denied: 0.5,
            }),
        ],
    },
];

/// The number of domains.
fn domains() -> u64 {
    env::var("DOMAINS").map_or(DOMAINS, |number| number.parse().expect("a number"))
}

fn is_in(group: &Group, seed: u64) -> bool {
    seed.is_multiple_of(group.of) && History::new(seed).traffic.base >= MIN_RATE
}

/// The domain and its copy, each with its counters.
fn histories(seed: u64) -> Vec<(String, History)> {
    let mut usual = History::new(seed);
    let mut all = Vec::new();
    for Group { name, scenarios, .. } in GROUPS.iter().filter(|group| is_in(group, seed)) {
        usual.run_until(scenarios[0].begin, |_| Change::NONE);
        let mut changed = usual.clone();
        for Scenario { begin, minutes, change, .. } in *scenarios {
            changed.run_until(*begin, |_| Change::NONE);
            changed.run_until(begin + minutes, *change);
        }
        all.push((format!("{name}-{seed}"), changed));
    }
    if usual.traffic.base < MIN_RATE {
        usual.run_until(DAYS * DAY, |_| Change::NONE);
        all.push((format!("quiet-{seed}"), usual));
    }
    all
}

/// Samples that an expression has in a minute.
struct Query {
    expression: String,
    minute: u64,
}

impl Query {
    /// The number of alarms in each domain until the first anomaly.
    fn false_alarms() -> Self {
        let firing = firing("(busy|quiet)-.+", ".+");
        let begun = format!("({firing} unless {firing} offset 5m)[21d:5m]");
        Self {
            expression: format!("sum by (domain, kind) (count_over_time({begun}))"),
            minute: 21 * DAY + BEGIN,
        }
    }

    /// The minutes until the anomaly was found in each domain.
    fn delays(group: &Group, Scenario { kind, begin, minutes, .. }: &Scenario) -> Self {
        let firing = firing(&format!("{}-.+", group.name), kind);
        let first = format!("min_over_time(timestamp({firing})[{minutes}m:5m])");
        Self { expression: format!("min by (domain) ({first}) / 60 - {begin}"), minute: begin + minutes }
    }
}

fn firing(domain: &str, kind: &str) -> String {
    let alert = "alertname=\"TollgateTrafficAnomaly\", alertstate=\"firing\"";
    format!("ALERTS{{{alert}, domain=~\"{domain}\", kind=~\"{kind}\"}}")
}

/// The values of each query for these domains.
fn measure(seeds: impl Iterator<Item = u64>, queries: &[Query]) -> Vec<Vec<f64>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let rules = read(ALERTS);
    let group = rules.find("  - name: tollgate-traffic").expect("a group");
    fs::write(directory.path().join("rules.yaml"), format!("groups:\n{}", &rules[group..]))
        .expect("writable");
    let series = |(domain, history): (String, History)| history.series(&domain);
    let series = seeds.flat_map(histories).flat_map(series);
    // No series has this value, so that promtool prints those that it has found.
    let query = |query: &Query| {
        let expected = json!([{"labels": "{}", "value": -1}]);
        json!({"expr": query.expression, "eval_time": format!("{}m", query.minute), "exp_samples": expected})
    };
    let test = json!({
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "5m",
        "tests": [{
            "interval": "1m",
            "input_series": series.map(|(series, values)| json!({"series": series, "values": values})).collect::<Value>(),
            "promql_expr_test": queries.iter().map(query).collect::<Value>(),
        }],
    });
    let file = directory.path().join("test.yaml");
    // JSON is YAML.
    fs::write(&file, test.to_string()).expect("writable");
    let (_, output) = promtool(&["test", "rules", file.to_str().expect("UTF-8")], "");
    let found: Vec<_> =
        output.lines().filter_map(|line| line.trim().strip_prefix("got: ")).map(values).collect();
    assert_eq!(found.len(), queries.len(), "{output}");
    found
}

/// The values of samples like `{domain="usual-7"} 1E+00, {domain="usual-9"} 2E+00`.
fn values(samples: &str) -> Vec<f64> {
    let values = samples.split("} ").skip(1).map(|rest| rest.split(',').next().unwrap_or_default());
    values.map(|value| value.parse().expect("a number")).collect()
}

/// The values of each query for all domains, by as many processes as there are processors.
fn measure_all(queries: &[Query]) -> Vec<Vec<f64>> {
    let parts = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let run = |part| scope.spawn(move || measure((0..domains()).skip(part).step_by(parts), queries));
        let running: Vec<_> = (0..parts).map(run).collect();
        running.into_iter().map(|part| part.join().expect("measured")).reduce(|mut all, part| {
            iter::zip(&mut all, part).for_each(|(all, part)| all.extend(part));
            all
        })
    })
    .expect("a part")
}

#[test]
fn four_weeks_have_few_false_alarms_and_anomalies_are_found_in_time() {
    let scenarios =
        || GROUPS.iter().flat_map(|group| group.scenarios.iter().map(move |scenario| (group, scenario)));
    let queries: Vec<_> = iter::once(Query::false_alarms())
        .chain(scenarios().map(|(group, scenario)| Query::delays(group, scenario)))
        .collect();
    let measured = measure_all(&queries);
    let (alarms, delays) = measured.split_first().expect("queries");
    let (domains, alarms) = (domains(), alarms.iter().sum::<f64>());
    println!("{alarms} false alarms in {domains} domains and two weeks after learning");
    for ((group, scenario), delays) in iter::zip(scenarios(), delays) {
        let of = (0..domains).filter(|seed| is_in(group, *seed)).count();
        let Scenario { name, minutes, .. } = scenario;
        let (mut delays, found) = (delays.clone(), delays.len());
        delays.sort_by(f64::total_cmp);
        println!("{name}: {found} of {of} within {minutes} min, median {:?}", delays.get(found / 2));
        // Rounded up, as false alarms: one of few domains is a larger share than one of 50.
        let missed = ((100 - scenario.found) * of).div_ceil(100);
        assert!(found + missed >= of, "{name}: {delays:?}");
    }
    assert!(alarms <= (FALSE_ALARMS_OF_50 * domains).div_ceil(50) as f64, "{alarms} false alarms");
}
