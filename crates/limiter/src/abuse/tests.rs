//! Tests of observation and detection, with injected time.

use std::{collections::HashSet, num::NonZeroU64, sync::Arc};

use proptest::prelude::*;
use tollgate_core::{
    clock::Clock,
    descriptor::{Descriptor, Entry, Hits},
};
use tollgate_rules::{
    AbuseMode, List, Listing, Lists, Rules, ValueMatch,
    config::{Options, load_files},
};
use tollgate_store::{MemoryStore, Store};

use super::{
    detector::MAX_WATCHED,
    table::{Counts, MAX_KEYS, ObservedKey, Table},
    *,
};
use crate::{ActiveRules, Deadline, Limiter, Modes};

/// Time between two reports of an instance.
const INTERVAL_MS: u64 = 2_000;

fn rules(abuse: &str) -> Rules {
    let text = format!(
        "domain: d\nabuse: [{{name: a, client_keys: [ip], {abuse}}}]\ndescriptors:\n\
         - {{key: ip, rate_limit: {{unit: year, requests_per_unit: 2}}}}\n\
         - {{key: ip, value: 10.0.0.1, rate_limit: {{unit: year, requests_per_unit: 1}}}}\n\
         - {{key: path, rate_limit: {{unit: year, requests_per_unit: 1}}}}\n\
         - {{key: shadow, shadow_mode: true, descriptors: [{{key: ip, shadow_mode: true, rate_limit: {{unit: year, requests_per_unit: 1}}}}]}}\n"
    );
    load_files([("rules.yaml".to_owned(), text.into_bytes())], Options::default()).expect("valid").rules
}

fn report(keys: &[(&str, u64, u64, bool)], sequence: u64) -> AbuseReport {
    let key = |(value, denied, hits, is_admitted): &(&str, u64, u64, bool)| {
        ReportedKey("d".to_owned(), format!("ip={value}"), *denied, *hits, *is_admitted)
    };
    let keys = keys.iter().map(key).collect();
    AbuseReport {
        sequence,
        interval_ms: INTERVAL_MS,
        keys,
        ..AbuseReport::of([].into_iter(), &Rules::default(), 0, 0, 1).0
    }
}

/// A fleet of instances with one rule.
struct Fleet {
    rules: Rules,
    lists: Lists,
    detector: AbuseDetector,
    round: u64,
}

impl Fleet {
    fn new(abuse: &str) -> Self {
        let (detector, lists) = (AbuseDetector::default(), Lists::default());
        Self { rules: rules(abuse), lists, detector, round: 0 }
    }

    /// The next round, with what each instance reports: values of `ip`, denied requests, hits, and whether any was admitted.
    fn round(&mut self, instances: &[&[(&str, u64, u64, bool)]]) -> Detected {
        self.round += 1;
        let reports: Vec<_> = instances
            .iter()
            .enumerate()
            .map(|(at, keys)| InstanceReport { instance: at.to_string(), report: report(keys, self.round) })
            .collect();
        self.evaluate(self.round * INTERVAL_MS, &reports)
    }

    fn evaluate(&mut self, now_ms: u64, reports: &[InstanceReport]) -> Detected {
        let active = (&self.rules, &self.lists);
        self.detector.evaluate(now_ms, now_ms, 3 * INTERVAL_MS, reports, active)
    }
}

fn values(detected: &Detected) -> Vec<&str> {
    detected.abusers.iter().map(|abuser| &*abuser.descriptor[0].value).collect()
}

#[tokio::test]
async fn denied_requests_of_single_clients_are_counted_and_no_others() {
    let active = Arc::new(ActiveRules::default());
    active.replace(Arc::new(rules("denied_in_a_row: 9")));
    let banned = [("ip", "192.0.2.9", ValueMatch::Exact)];
    let banned = Listing::new("1", List::Deny, "d", banned, None).expect("valid");
    active.set_lists(Arc::new(Lists::new(1, [banned], [])));
    let collector = AbuseCollector::default();
    let limiter = |modes| {
        let store = Store::Memory(MemoryStore::new(100, Clock::System));
        Limiter::new(Arc::clone(&active), store, modes).with_observer(collector.observer())
    };
    let send = async |limiter: &Limiter, entries: &[(&str, &str)], hits: u64| {
        let (rules, hits) = (limiter.rules(), NonZeroU64::new(hits).expect("some"));
        let entries = entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let descriptors = [Descriptor { entries, limit: None, hits: Hits::Charge(hits) }];
        let active = rules.get().expect("active");
        let (decision, _) =
            limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN).await.expect("decided");
        decision.code
    };
    let first = limiter(Modes::default());
    for _ in 0..5 {
        for (key, value) in [("ip", "192.0.2.1"), ("ip", "10.0.0.1"), ("path", "/login"), ("ip", "192.0.2.9")]
        {
            send(&first, &[(key, value)], 1).await;
        }
        send(&first, &[("shadow", ""), ("ip", "192.0.2.2")], 1).await;
    }
    send(&first, &[("ip", "192.0.2.3")], 9).await;
    send(&limiter(Modes { shadow: true, ..Modes::default() }), &[("ip", "192.0.2.4")], 9).await;
    let loaded = active.load().expect("active");
    let (report, dropped) = collector.report(&loaded, 1, INTERVAL_MS, 1);
    let key = |value: &str, denied, is_admitted| {
        ReportedKey("d".to_owned(), format!("ip={value}"), denied, 0, is_admitted)
    };
    // The first client's two admitted requests came before it was denied. Nine hits at once are one request.
    let expected = [key("192.0.2.1", 3, false), key("192.0.2.3", 1, false)];
    assert_eq!((&*report.keys, dropped), (&expected[..], 0));
    assert!(collector.report(&loaded, 2, INTERVAL_MS, 1).0.keys.is_empty());

    collector.watch([("d", "ip=192.0.2.5")]);
    send(&first, &[("ip", "192.0.2.5")], 1).await;
    send(&first, &[("ip", "192.0.2.6")], 1).await;
    let (report, _) = collector.report(&loaded, 3, INTERVAL_MS, 1);
    assert_eq!(report.keys, [key("192.0.2.5", 0, true)], "only watched keys are reported as admitted");
}

#[test]
fn a_key_that_is_below_the_rate_everywhere_and_above_it_in_sum_is_found() {
    let mut fleet = Fleet::new("denied_per_second: 50, for: 10s");
    for _ in 0..5 {
        let detected = fleet.round(&[
            &[("a", 34, 0, true), ("b", 33, 0, true)],
            &[("a", 33, 0, true)],
            &[("a", 33, 0, true)],
        ]);
        assert_eq!(detected, Detected::default());
    }
    let detected = fleet.round(&[&[("a", 40, 0, true)], &[("a", 30, 0, true)], &[("a", 30, 0, true)]]);
    assert_eq!(values(&detected), ["a"]);
    assert_eq!(detected.abusers[0].evidence, "50 denied/s for 10s");
    assert_eq!(detected.abusers[0].mode, AbuseMode::DryRun);
}

#[test]
fn a_rate_must_last_without_a_pause() {
    let mut fleet = Fleet::new("hits_per_second: 10, for: 6s");
    for pause in [&[][..], &[("a", 0, 19, true)]] {
        for _ in 0..3 {
            assert!(fleet.round(&[&[("a", 0, 20, true)]]).abusers.is_empty());
        }
        assert!(fleet.round(&[pause]).abusers.is_empty());
    }
    for _ in 0..3 {
        fleet.round(&[&[("a", 0, 20, true)]]);
    }
    assert_eq!(values(&fleet.round(&[&[("a", 0, 20, true)]])), ["a"]);
    assert!(fleet.round(&[&[("a", 0, 20, true)]]).abusers.is_empty(), "begins anew");
}

#[test]
fn nothing_is_concluded_from_a_time_without_reports() {
    let mut fleet = Fleet::new("denied_per_second: 1, for: 6s");
    let first = [InstanceReport { instance: "a".into(), report: report(&[("x", 90, 0, false)], 1) }];
    fleet.evaluate(0, &first);
    assert!(fleet.evaluate(3 * INTERVAL_MS + 1, &first).abusers.is_empty(), "after an outage");
    assert_eq!(values(&fleet.evaluate(6 * INTERVAL_MS + 1, &first)), ["x"]);
}

#[test]
fn denials_in_a_row_end_with_a_request_that_any_instance_admits() {
    let mut fleet = Fleet::new("denied_in_a_row: 40");
    let (denied, admitted) = (&[("a", 10, 0, false)][..], &[("a", 0, 0, true)][..]);
    let watch = fleet.round(&[denied, &[]]).watched;
    assert_eq!(watch, [("d".to_owned(), "ip=a".to_owned())], "the other instance is to report it");
    for _ in 0..5 {
        assert!(fleet.round(&[denied, &[]]).abusers.is_empty());
    }
    assert!(fleet.round(&[denied, admitted]).watched.is_empty());
    // It is watched first, then three rounds pass, and then four times ten are counted.
    for _ in 0..6 {
        assert!(fleet.round(&[denied, &[]]).abusers.is_empty());
    }
    assert_eq!(values(&fleet.round(&[denied, &[]])), ["a"]);
    let same = [InstanceReport { instance: "0".into(), report: report(denied, fleet.round) }];
    for _ in 0..9 {
        let now_ms = fleet.round * INTERVAL_MS;
        assert!(fleet.evaluate(now_ms, &same).abusers.is_empty(), "a report counts once");
    }
}

#[test]
fn keys_that_have_no_room_to_be_watched_are_not_listed_by_denials_that_others_may_interrupt() {
    let mut fleet = Fleet::new("denied_in_a_row: 400");
    let names: Vec<_> = (0..2 * MAX_WATCHED).map(|at| format!("{at:05}")).collect();
    let keys: Vec<_> = names.iter().map(|name| (&**name, 100, 0, false)).collect();
    let mut watched = HashSet::new();
    let mut first = None;
    for _ in 0..20 {
        let detected = fleet.round(&[&keys, &[]]);
        for name in values(&detected) {
            assert!(watched.contains(&format!("ip={name}")), "{name} is listed and was not watched");
        }
        first = first.or_else(|| (!detected.abusers.is_empty()).then_some(detected.abusers.len()));
        watched = detected.watched.into_iter().map(|(_, text)| text).collect();
        assert!(watched.len() <= MAX_WATCHED);
    }
    assert_eq!(first, Some(MAX_WATCHED));
}

#[test]
fn an_admitted_request_of_a_watched_key_is_reported_however_many_keys_there_are() {
    let rules = rules("denied_in_a_row: 9");
    let mut table = Table::default();
    table.watched = Arc::new([7].into_iter().collect());
    table.admit(7, "d", &[Entry { key: "ip", value: "192.0.2.5" }]);
    for hash in 100..100 + 3 * MAX_KEYS as u64 {
        let text = hash.to_string();
        let counts = Counts { denied: 5, ..Counts::default() };
        table.add(hash, "d", &[Entry { key: "ip", value: &text }], counts);
    }
    assert!(table.keys.len() <= MAX_KEYS && table.dropped > 0);
    let keys = table.keys.iter().map(|(hash, key)| ObservedKey { is_watched: *hash == 7, ..key.clone() });
    let (report, left_out) = AbuseReport::of(keys, &rules, 1, INTERVAL_MS, 1);
    assert!(report.keys.iter().any(|key| key.1 == "ip=192.0.2.5" && key.4), "{left_out}");
}

#[test]
fn exempt_allowed_and_listed_keys_and_ranges_are_not_listed() {
    let mut fleet = Fleet::new("denied_per_second: 1, for: 2s, exempt: [198.51.100.0/24]");
    let entry = |id: &str, list, value: &str| {
        Listing::new(id, list, "*", [("ip", value, ValueMatch::Exact)], Some(1_000_000)).expect("valid")
    };
    let listings = [entry("1", List::Allow, "192.0.2.1"), entry("2", List::Deny, "192.0.2.2")];
    fleet.lists = Lists::new(1, listings, []);
    let keys = ["192.0.2.1", "192.0.2.2", "198.51.100.7", "203.0.113.0/24", "10.0.0.1"];
    let keys: Vec<_> = keys.iter().map(|value| (*value, 90, 0, false)).collect();
    fleet.round(&[&keys]);
    let mut detected = fleet.round(&[&keys]);
    detected.refused.sort_unstable_by_key(|refusal| *refusal == Refusal::Range);
    assert_eq!(detected.refused, [Refusal::Exempt, Refusal::Exempt, Refusal::Range]);
    assert!(detected.abusers.is_empty(), "{:?}", detected.abusers);
}

#[test]
fn a_full_table_drops_its_lightest_keys_and_counts_no_key_too_often() {
    let mut table = Table::default();
    let mut random = fastrand::Rng::with_seed(3);
    let count = |table: &mut Table, value: u64| {
        let text = value.to_string();
        let entries = [Entry { key: "ip", value: &text }];
        table.add(value, "d", &entries, Counts { denied: 1, ..Counts::default() });
    };
    let heavy = 1_000;
    for at in 0..100 * heavy {
        count(&mut table, at % heavy);
        count(&mut table, heavy + random.u64(..100_000));
    }
    assert!(table.keys.len() <= MAX_KEYS && table.dropped > 0);
    let found = (0..heavy).filter_map(|value| table.keys.get(&value)).map(|known| known.counts.denied);
    let found: Vec<_> = found.collect();
    assert_eq!(found.len() as u64, heavy, "all heavy keys are there");
    assert!(found.iter().all(|denied| (90..=100).contains(denied)), "{found:?}");
}

#[test]
fn a_report_has_the_heaviest_keys_and_leaves_out_what_cannot_matter() {
    let rules = rules("denied_per_second: 100, for: 10s");
    let mut table = Table::default();
    let long = "x".repeat(300);
    let values =
        (0..6_000).map(|at| (at.to_string(), 100 + at)).chain([("light".to_owned(), 5), (long, 9_999)]);
    for (hash, (value, denied)) in (0..).zip(values) {
        let entries = [Entry { key: "ip", value: &value }];
        table.add(hash, "d", &entries, Counts { denied, ..Counts::default() });
    }
    let keys = || table.keys.values().cloned();
    let (report, left_out) = AbuseReport::of(keys(), &rules, 1, INTERVAL_MS, 3);
    assert_eq!((report.keys.len(), left_out), (report::MAX_KEYS, 6_000 - report::MAX_KEYS as u64));
    assert_eq!((&*report.keys[0].1, report.keys[0].2), ("ip=5999", 6_099));
    // A tenth of the rate over the instances: 5 of 200 hits with four.
    let light = keys().filter(|key| &*key.text == "ip=light");
    assert!(AbuseReport::of(light.clone(), &rules, 1, INTERVAL_MS, 3).0.keys.is_empty());
    assert_eq!(AbuseReport::of(light, &rules, 1, INTERVAL_MS, 4).0.keys.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_key_far_above_the_rate_is_found_and_none_below_it(
        rates in prop::collection::vec(0_u64..200, 1..60),
        seed in any::<u64>(),
    ) {
        // Denied requests in an interval, against 100; an instance leaves out less than a tenth.
        let mut fleet = Fleet::new("denied_per_second: 50, for: 4s");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut found = HashSet::new();
        for round in 1..=4 {
            let mut tables: [Table; 3] = Default::default();
            for (hash, rate) in (0..).zip(&rates) {
                let text = format!("192.0.2.{hash}");
                let entries = [Entry { key: "ip", value: &text }];
                let counts = Counts { denied: 1, ..Counts::default() };
                (0..*rate).for_each(|_| tables[random.usize(..3)].add(hash, "d", &entries, counts));
            }
            let reports = tables.iter().enumerate().map(|(at, table)| {
                let keys = table.keys.values().cloned();
                let (report, _) = AbuseReport::of(keys, &fleet.rules, round, INTERVAL_MS, 3);
                InstanceReport { instance: at.to_string(), report }
            });
            let reports: Vec<_> = reports.collect();
            let detected = fleet.evaluate(round * INTERVAL_MS, &reports);
            found.extend(values(&detected).into_iter().map(str::to_owned));
        }
        for (hash, rate) in rates.iter().enumerate() {
            let is_found = found.contains(&format!("192.0.2.{hash}"));
            prop_assert!(!is_found || *rate >= 100, "{rate}");
            prop_assert!(is_found || *rate < 110, "{rate}");
        }
    }
}

/// The round in which a rule lists a key with 40 denials in each, and the evidence.
fn listed_by(rule: &str, abuse: &str) -> Option<(u32, String)> {
    let mut fleet = Fleet::new(abuse);
    (1..=60).find_map(|round| {
        let detected = fleet.round(&[&[("x", 40, 0, false)]]);
        let abuser = detected.abusers.into_iter().find(|abuser| abuser.rule == rule)?;
        Some((round, abuser.evidence))
    })
}

#[test]
fn rules_of_denials_in_a_row_count_apart() {
    const LOW: &str = "denied_in_a_row: 100";
    const HIGH: &str = "mode: enforce, denied_in_a_row: 1000";
    let both = format!("{LOW}}}, {{name: b, client_keys: [ip], {HIGH}");
    let reversed = format!("{HIGH}}}, {{name: b, client_keys: [ip], {LOW}");
    let (low, high) = (listed_by("a", LOW), listed_by("a", HIGH));
    assert!(low.is_some() && high.is_some());
    assert_eq!((listed_by("a", &both), listed_by("b", &both)), (low.clone(), high.clone()));
    assert_eq!((listed_by("b", &reversed), listed_by("a", &reversed)), (low, high));
}

#[test]
fn a_rule_that_takes_the_place_of_another_begins_anew() {
    let mut fleet = Fleet::new("hits_per_second: 5, for: 1h");
    for _ in 0..600 {
        assert!(fleet.round(&[&[("x", 0, 20, true)]]).abusers.is_empty());
    }
    fleet.rules = rules(
        "denied_per_second: 50, for: 10m, mode: enforce}, {name: b, client_keys: [ip], hits_per_second: 5, for: 1h",
    );
    assert_eq!(fleet.round(&[&[("x", 200, 200, true)]]).abusers, []);
}
