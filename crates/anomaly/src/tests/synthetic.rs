//! Four weeks of synthetic traffic: false alarms, and the time until anomalies are found.

use super::traffic::{DAY, Rule};
use crate::{AnomalyKind, Sensitivity, Series};

const DAYS: u64 = 28;
const RULES: u64 = 50;
/// Begin of the anomalies, and of the slow ones.
const CHANGE: u64 = 22 * DAY + 617;
const DRIFT: u64 = 14 * DAY;
/// Rules with fewer hits per minute are too quiet for these anomalies to be more than chance.
const MIN_RATE: f64 = 10.0;

/// A rule and what was learned of it.
#[derive(Clone)]
struct Learned {
    rule: Rule,
    series: Series,
}

impl Learned {
    fn new(seed: u64) -> Self {
        Self { rule: Rule::by_chance(seed), series: Series::default() }
    }

    /// Adds minutes with the rate times the first and the denied share plus the second part of `change`. Returns the
    /// anomalies that begin, each with the minute in which it was found.
    fn run(
        &mut self,
        minutes: std::ops::Range<u64>,
        change: impl Fn(u64) -> (f64, f64),
    ) -> Vec<(u64, AnomalyKind)> {
        let mut found = Vec::new();
        for minute in minutes {
            let (rate, share) = change(minute);
            let counts = self.rule.counts(minute, rate, share);
            let events = self.series.observe(minute, Some(counts), Sensitivity::Medium);
            found.extend(
                events.iter().filter(|event| event.end.is_none()).map(|event| (minute, event.anomaly.kind)),
            );
        }
        found
    }

    /// The delay until an anomaly that begins now is found, if it is found within these minutes.
    fn delay(
        &self,
        begin: u64,
        minutes: u64,
        kind: AnomalyKind,
        change: impl Fn(u64) -> (f64, f64),
    ) -> Option<u64> {
        let found = self.clone().run(begin..begin + minutes, change);
        found.iter().find(|(_, of)| *of == kind).map(|(minute, _)| minute - begin + 1)
    }
}

/// An anomaly that is to be found in a share of the rules within some minutes.
struct Scenario {
    name: &'static str,
    kind: AnomalyKind,
    begin: u64,
    within: u64,
    /// Percentage of the rules with enough traffic.
    found: usize,
    /// Rate and denied share by the minutes since the start.
    change: fn(u64) -> (f64, f64),
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "step to 3 times",
        kind: AnomalyKind::RateHigh,
        begin: CHANGE,
        within: 90,
        found: 85,
        change: |_| (3.0, 0.0),
    },
    Scenario {
        name: "spike to 5 times for 10 minutes",
        kind: AnomalyKind::RateHigh,
        begin: CHANGE,
        within: 10,
        found: 90,
        change: |minute| (if minute < 10 { 5.0 } else { 1.0 }, 0.0),
    },
    Scenario {
        name: "drop to nothing",
        kind: AnomalyKind::RateLow,
        begin: CHANGE,
        within: 10,
        found: 90,
        change: |_| (0.0, 0.0),
    },
    Scenario {
        name: "drop to 30 %",
        kind: AnomalyKind::RateLow,
        begin: CHANGE,
        within: 120,
        found: 75,
        change: |_| (0.3, 0.0),
    },
    Scenario {
        name: "denied share plus 50 points",
        kind: AnomalyKind::DeniedShareHigh,
        begin: CHANGE,
        within: 60,
        found: 85,
        change: |_| (1.0, 0.5),
    },
    Scenario {
        name: "drift of 3 % a day",
        kind: AnomalyKind::RateDrift,
        begin: DRIFT,
        within: 12 * DAY,
        found: 90,
        change: |minute| (1.03_f64.powf(minute as f64 / DAY as f64), 0.0),
    },
];

#[test]
fn four_weeks_have_few_false_alarms_and_anomalies_are_found_in_time() {
    let mut delays: Vec<Vec<Option<u64>>> = SCENARIOS.iter().map(|_| Vec::new()).collect();
    let mut false_alarms = Vec::new();
    for seed in 0..RULES {
        let mut learned = Learned::new(seed);
        let has_traffic = learned.rule.base >= MIN_RATE;
        let mut from = 0;
        for begin in [DRIFT, CHANGE, DAYS * DAY] {
            let alarms = learned.run(from..begin, |_| (1.0, 0.0));
            false_alarms.extend(alarms.into_iter().map(|(minute, kind)| (seed, minute, kind)));
            from = begin;
            for (scenario, delays) in SCENARIOS.iter().zip(&mut delays) {
                // A drift takes days: of every third rule.
                let is_sampled = scenario.kind != AnomalyKind::RateDrift || seed % 3 == 0;
                if scenario.begin == begin && has_traffic && is_sampled {
                    let change = |minute| (scenario.change)(minute - begin);
                    delays.push(learned.delay(begin, scenario.within, scenario.kind, change));
                }
            }
        }
    }
    for (scenario, delays) in SCENARIOS.iter().zip(&mut delays) {
        delays.sort_by_key(|delay| delay.unwrap_or(u64::MAX));
        let found = delays.iter().flatten().count();
        let median = delays.get(delays.len() / 2).copied().flatten();
        println!(
            "{}: {found} of {} within {} min, median {median:?}",
            scenario.name,
            delays.len(),
            scenario.within
        );
        assert!(100 * found >= scenario.found * delays.len(), "{}: {delays:?}", scenario.name);
    }
    println!(
        "seeds 0..{RULES}, {} false alarms in the 20 days after learning: {false_alarms:?}",
        false_alarms.len()
    );
    assert!(false_alarms.iter().all(|(_, minute, _)| *minute >= 8 * DAY), "none while learning");
    assert!(false_alarms.len() <= 3, "at most one a week in a fleet of {RULES}");
}

/// `FLEETS=20 WEEKS=13 cargo test -p tollgate-anomaly --lib -- --ignored --nocapture false_alarms`
#[test]
#[ignore = "a measurement of many weeks"]
fn false_alarms_of_many_fleets() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (fleets, weeks) = (setting("FLEETS", 4), setting("WEEKS", 13));
    let mut by_kind = std::collections::BTreeMap::<_, usize>::new();
    for fleet in 0..fleets {
        for seed in 0..RULES {
            let mut learned = Learned::new(1_000 * fleet + seed);
            for (minute, kind) in learned.run(0..weeks * 7 * DAY, |_| (1.0, 0.0)) {
                *by_kind.entry(kind).or_default() += 1;
                let Rule { base, rough, slow, jobs, .. } = learned.rule;
                println!(
                    "fleet {fleet}, day {}: {kind:?} {base:.0}/min {rough} {slow} {jobs:?}",
                    minute / DAY
                );
            }
        }
    }
    let all: usize = by_kind.values().sum();
    let fleet_weeks = fleets * (weeks - 1);
    println!("{all} in {fleet_weeks} weeks of fleets of {RULES}: {by_kind:?}");
    assert!(all as u64 <= fleet_weeks, "at most one a week in a fleet of {RULES}");
}
