//! Decisions of descriptors with several limits, and of domains that stop charging when a limit denies.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use proptest::prelude::*;
use tollgate_core::{
    clock::Clock,
    descriptor::{Entries, Entry, Hits},
    quota::{Quota, Unit, Window},
};
use tollgate_rules::{
    Lists, SwitchMode,
    config::{Options, load_files},
};
use tollgate_store::{MemoryStore, Store};

use super::*;
use crate::{ActiveRules, CounterInspector, Deadline, Limiter, Modes, Spread, verdict::Decision};

const SECOND: u64 = 1_000_000;

/// The beginning of a day.
const BEGIN: u64 = 1_800_057_600 * SECOND;

const LIMITS: &str = "rate_limits: [{unit: second, requests_per_unit: 3}, {unit: hour, requests_per_unit: 5}, \
                      {name: monthly, unit: month, requests_per_unit: 1000}]";

struct Instance {
    limiter: Limiter,
    rules: Arc<ActiveRules>,
    now: Arc<AtomicU64>,
    store: Store,
}

/// Status of a descriptor: whether it passes, the label of the limit, and its remaining hits.
type Found = (bool, String, u64);

impl Instance {
    fn new(descriptors: &str) -> Self {
        Self::with_options(descriptors, Options::default())
    }

    fn with_options(descriptors: &str, options: Options) -> Self {
        let now = Arc::new(AtomicU64::new(BEGIN));
        let clock = Clock::Manual(Arc::clone(&now));
        let files = [("rules.yaml".to_owned(), format!("domain: d\n{descriptors}").into_bytes())];
        let rules = Arc::new(ActiveRules::default());
        rules.replace(Arc::new(load_files(files, options).expect("valid").rules));
        let store = Store::Memory(MemoryStore::new(100_000, clock.clone()));
        let limiter = Limiter::new(Arc::clone(&rules), store.clone(), Modes::default()).with_clock(clock);
        Self { limiter, rules, now, store }
    }

    fn wait(&self, seconds: u64) {
        self.now.fetch_add(seconds * SECOND, Ordering::Relaxed);
    }

    /// Decides a request for these descriptors, and returns their statuses.
    async fn statuses(&self, descriptors: &[(&str, Hits)], limit: Option<Quota>) -> Vec<Found> {
        self.decide(descriptors, limit, |decision| {
            let label = |limited: &Limited<'_>| {
                let part = limited.rule.and_then(|rule| rule.part.as_ref());
                (part.map_or_else(String::new, |part| part.label.to_string()), limited.verdict.remaining)
            };
            let found = |status: &Status<'_>| {
                let (label, remaining) = status.limited().map(label).unwrap_or_default();
                (status.code() == Code::Ok, label, remaining)
            };
            decision.statuses.iter().map(found).collect()
        })
        .await
    }

    async fn decide<T>(
        &self,
        descriptors: &[(&str, Hits)],
        limit: Option<Quota>,
        read: impl FnOnce(&Decision<'_>) -> T,
    ) -> T {
        let descriptors: Vec<Descriptor<'_>> = descriptors
            .iter()
            .map(|(key, hits)| Descriptor {
                entries: Entries::from_iter([Entry { key, value: "x" }]),
                limit,
                hits: *hits,
            })
            .collect();
        let active = self.limiter.rules();
        let active = active.get().expect("rules");
        let decided = self.limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN).await;
        let decision = decided.expect("decided").0;
        read(&decision)
    }

    /// Used hits of each limit of a descriptor, in the order of the file.
    async fn used(&self, key: &str) -> Vec<u64> {
        let inspector = CounterInspector::new(self.store.clone(), Modes::default());
        let (rules, overridden) = self.rules.load_overridden().expect("rules");
        let entries = Entries::from_iter([Entry { key, value: "x" }]);
        let descriptor = Descriptor { entries, limit: None, hits: Hits::Peek };
        let domain = rules.domain("d").expect("is there");
        let requests = inspector.requests(domain, &overridden, &[descriptor]);
        let readings = inspector.send(&requests).await;
        readings.into_iter().map(|reading| reading.expect("a counter").expect("read").used).collect()
    }
}

fn found(passes: bool, label: &str, remaining: u64) -> Found {
    (passes, label.to_owned(), remaining)
}

fn one(key: &str) -> [(&str, Hits); 1] {
    [(key, Hits::ONE)]
}

#[tokio::test]
async fn the_strictest_limit_is_reported_and_a_denial_charges_none() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {LIMITS}}}\n"));
    for remaining in [2, 1, 0] {
        assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "second", remaining)]);
    }
    assert_eq!(instance.statuses(&one("k"), None).await, [found(false, "second", 0)]);
    assert_eq!(instance.used("k").await, [3, 3, 3], "the denied hit is charged nowhere");
    instance.wait(1);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "hour", 1)]);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "hour", 0)]);
    instance.wait(1);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(false, "hour", 0)]);
    assert_eq!(instance.used("k").await, [0, 5, 5]);
    instance.wait(3_600);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "second", 2)]);
    assert_eq!(instance.used("k").await, [1, 1, 6]);
}

#[tokio::test]
async fn of_two_limits_that_deny_the_longer_wait_is_reported() {
    let limits = "rate_limits: [{unit: second, requests_per_unit: 1}, {unit: hour, requests_per_unit: 1}]";
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {limits}}}\n"));
    instance.statuses(&one("k"), None).await;
    let requested = one("k");
    let wait = instance.decide(&requested, None, |decision| {
        let spread = Spread { domain: "d", descriptors: &[], default: std::time::Duration::ZERO };
        (
            decision.retry_after(),
            decision.spread_retry_after(&spread),
            decision.governing().expect("denies").1.until_reset(),
        )
    });
    let (wait, spread, reset) = wait.await;
    assert_eq!(wait, Some(reset));
    assert_eq!(spread, wait);
    assert_eq!(reset.as_secs(), 3_600);
}

#[tokio::test]
async fn every_limit_is_named_with_its_remaining_hits() {
    let instance = Instance::new(&format!(
        "descriptors:\n- {{key: k, {LIMITS}}}\n- {{key: l, rate_limit: {{unit: day, requests_per_unit: 9}}}}\n"
    ));
    let descriptors = [("l", Hits::ONE), ("k", Hits::charge(2))];
    let (several, all) = instance
        .decide(&descriptors, None, |decision| {
            let remaining = |limited: &Limited<'_>| (limited.label().to_owned(), limited.verdict.remaining);
            let several: Vec<_> = decision.several.of(1).map(remaining).collect();
            assert_eq!(decision.several.of(0).count(), 0);
            (several, decision.every_limit().map(remaining).collect::<Vec<_>>())
        })
        .await;
    let expected = [("k.@second", 1), ("k.@hour", 3), ("monthly", 998)];
    let expected = expected.map(|(label, remaining)| (label.to_owned(), remaining));
    assert_eq!(several, expected);
    assert_eq!(all[0], ("l".to_owned(), 8));
    assert_eq!(all[1..], expected);
}

#[tokio::test]
async fn other_descriptors_are_charged_by_themselves() {
    let instance = Instance::new(&format!(
        "descriptors:\n- {{key: k, {LIMITS}}}\n- {{key: l, rate_limit: {{unit: hour, requests_per_unit: 1}}}}\n"
    ));
    let both = [("k", Hits::ONE), ("l", Hits::ONE)];
    assert_eq!(instance.statuses(&both, None).await[0], found(true, "second", 2));
    // The other one denies, and keeps these from nothing.
    assert_eq!(instance.statuses(&both, None).await[0], found(true, "second", 1));
    assert_eq!(instance.used("k").await, [2, 2, 2]);
    // And the other way round.
    instance.statuses(&[("k", Hits::charge(4)), ("l", Hits::ONE)], None).await;
    assert_eq!(instance.used("k").await, [2, 2, 2]);
    assert_eq!(instance.used("l").await, [3]);
}

#[tokio::test]
async fn a_charge_above_one_of_the_limits_never_passes_and_charges_none() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {LIMITS}}}\n"));
    let [(passes, label, _)] = &*instance.statuses(&[("k", Hits::charge(4))], None).await else {
        panic!("one status")
    };
    assert_eq!((*passes, &**label), (false, "second"));
    assert_eq!(instance.used("k").await, [0, 0, 0]);
}

#[tokio::test]
async fn a_refund_and_a_reset_concern_every_limit() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {LIMITS}}}\n"));
    instance.statuses(&[("k", Hits::charge(3))], None).await;
    instance.statuses(&[("k", Hits::refund(2))], None).await;
    assert_eq!(instance.used("k").await, [1, 1, 1]);
    instance.statuses(&[("k", Hits::reset())], None).await;
    assert_eq!(instance.used("k").await, [0, 0, 0]);
    assert_eq!(instance.statuses(&[("k", Hits::Peek)], None).await, [found(true, "second", 3)]);
}

#[tokio::test]
async fn a_switched_off_limit_is_not_charged_and_the_path_of_the_descriptor_concerns_all() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {LIMITS}}}\n"));
    let switch = |path: &str, mode| {
        let switches = [("d".into(), path.into(), mode)];
        instance.rules.set_lists(Arc::new(Lists::new(1, [], switches)));
    };
    switch("k.@second", SwitchMode::Off);
    for remaining in [4, 3, 2, 1, 0] {
        assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "hour", remaining)]);
    }
    assert_eq!(instance.used("k").await, [0, 5, 5]);
    switch("k", SwitchMode::Shadow);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "hour", 0)]);
    switch("k", SwitchMode::Off);
    assert_eq!(instance.statuses(&one("k"), None).await, [found(true, "", 0)]);
}

#[tokio::test]
async fn limits_in_shadow_mode_count_what_passes_each() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, shadow_mode: true, {LIMITS}}}\n"));
    for _ in 0..7 {
        assert!(instance.statuses(&one("k"), None).await[0].0);
    }
    assert_eq!(instance.used("k").await, [3, 5, 7]);
}

#[tokio::test]
async fn a_limit_override_takes_the_place_of_all_and_counts_with_the_limit_of_its_window() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, {LIMITS}}}\n"));
    let limit = Some(Quota { limit: 50, window: Window::of(Unit::Hour) });
    assert_eq!(instance.statuses(&[("k", Hits::charge(9))], limit).await, [found(true, "", 41)]);
    assert_eq!(instance.used("k").await, [0, 9, 0]);
}

#[tokio::test]
async fn limits_without_open_values_share_a_cell() {
    let instance = Instance::new(&format!("descriptors:\n- {{key: k, value: x, {LIMITS}}}\n"));
    for _ in 0..4 {
        instance.statuses(&one("k"), None).await;
    }
    assert_eq!(instance.used("k").await, [3, 3, 3]);
}

#[tokio::test]
async fn a_domain_that_stops_charging_counts_a_denied_request_at_the_limit_that_denies() {
    let descriptors = "descriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: 2}}\n\
                       - {key: b, rate_limit: {unit: hour, requests_per_unit: 9}}\n";
    let options = Options { stop_when_denied: true, ..Options::default() };
    for (options, [a, b]) in [(Options::default(), [4, 4]), (options, [4, 2])] {
        let instance = Instance::with_options(descriptors, options);
        for _ in 0..4 {
            instance.statuses(&[("a", Hits::ONE), ("b", Hits::ONE)], None).await;
        }
        assert_eq!((instance.used("a").await, instance.used("b").await), (vec![a], vec![b]));
    }
}

#[tokio::test]
async fn a_denied_descriptor_stays_denied_where_an_earlier_one_of_its_counter_is_not_charged() {
    let of = |algorithm| {
        format!(
            "descriptors:\n- {{key: a, rate_limit: {{unit: hour, requests_per_unit: 10, algorithm: {algorithm}}}}}\n"
        )
    };
    for (algorithm, counted) in [("fixed_window", 10), ("token_bucket", 8), ("sliding_window_log", 8)] {
        let options = Options { stop_when_denied: true, ..Options::default() };
        let instance = Instance::with_options(&of(algorithm), options);
        let passes = async |hits: &[u64]| {
            let requested: Vec<_> = hits.iter().map(|hits| ("a", Hits::charge(*hits))).collect();
            instance.statuses(&requested, None).await.iter().map(|(passes, ..)| *passes).collect::<Vec<_>>()
        };
        assert_eq!(passes(&[8]).await, [true]);
        assert_eq!(passes(&[2, 2]).await, [true, false], "{algorithm}");
        assert_eq!(instance.used("a").await, [counted], "{algorithm}");
    }
}

/// Limits of a descriptor in seconds, with the hits of each.
fn limits() -> impl Strategy<Value = Vec<(u32, u32, &'static str)>> {
    let algorithm = prop_oneof![
        Just("fixed_window"),
        Just("token_bucket"),
        Just("sliding_window"),
        Just("sliding_window_log")
    ];
    let limit = (prop_oneof![Just(1), Just(7), Just(60), Just(3_600)], 1..6_u32, algorithm);
    prop::collection::vec(limit, 1..4).prop_map(|mut limits| {
        limits.sort_unstable();
        limits.dedup_by_key(|(window, ..)| *window);
        limits
    })
}

proptest! {
    /// A request passes if each limit alone would admit it after the requests that passed before it.
    #[test]
    fn several_limits_admit_what_each_of_them_admits(
        limits in limits(),
        requests in prop::collection::vec((0_u64..3_000_000, 0_u64..4), 1..40),
        is_atomic in any::<bool>(),
    ) {
        let stated = |(window, limit, algorithm): &(u32, u32, &str)| {
            format!("{{window: {window}s, requests_per_unit: {limit}, algorithm: {algorithm}}}")
        };
        let all: Vec<String> = limits.iter().map(stated).collect();
        let root = format!("atomic: {is_atomic}\n");
        let several = Instance::new(&format!("{root}descriptors:\n- {{key: k, rate_limits: [{}]}}\n", all.join(", ")));
        let alone: Vec<Instance> = limits
            .iter()
            .map(|limit| Instance::new(&format!("descriptors:\n- {{key: k, rate_limit: {}}}\n", stated(limit))))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for (micros, hits) in requests {
            for instance in alone.iter().chain([&several]) {
                instance.now.fetch_add(micros, Ordering::Relaxed);
            }
            let requested = [("k", Hits::charge(hits))];
            let mut expected = true;
            for instance in &alone {
                let used = runtime.block_on(instance.used("k"))[0];
                let limit = limits[alone.iter().position(|one| std::ptr::eq(one, instance)).expect("one")].1;
                expected &= hits == 0 || used + hits <= limit.into();
            }
            let passes = runtime.block_on(several.statuses(&requested, None))[0].0;
            prop_assert_eq!(passes, expected, "{:?}", limits);
            if passes {
                for instance in &alone {
                    let passes = runtime.block_on(instance.statuses(&requested, None))[0].0;
                    prop_assert!(passes);
                }
            }
            let used = runtime.block_on(several.used("k"));
            let each: Vec<u64> = alone.iter().map(|instance| runtime.block_on(instance.used("k"))[0]).collect();
            prop_assert_eq!(used, each);
        }
    }
}

/// Charges of a request as envoyproxy/ratelimit makes them with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: it reads all
/// counters, and if one would exceed its limit, charges only those that would. Returns whether the request passes.
fn charge_as_reference(counts: &mut [u64], limits: &[u64], charges: &[(usize, u64)]) -> bool {
    let exceeds = |counts: &[u64], (at, hits): &(usize, u64)| counts[*at] + hits > limits[*at];
    let exceeding: Vec<_> = charges.iter().filter(|charge| exceeds(counts, charge)).copied().collect();
    let charged = if exceeding.is_empty() { charges } else { &exceeding };
    charged.iter().for_each(|(at, hits)| counts[*at] += hits);
    exceeding.is_empty()
}

proptest! {
    #[test]
    fn a_domain_that_stops_charging_counts_as_envoyproxy_ratelimit_does(
        limits in prop::collection::vec(0..9_u64, 3),
        requests in prop::collection::vec(prop::collection::btree_map(0..3_usize, 1..4_u64, 1..4), 1..30),
        has_one_tag in any::<bool>(),
    ) {
        let root = if has_one_tag { "hash_tag: [t]\n" } else { "" };
        let stated: String = limits
            .iter()
            .enumerate()
            .map(|(at, limit)| format!("  - {{key: k{at}, rate_limit: {{unit: day, requests_per_unit: {limit}}}}}\n"))
            .collect();
        let options = Options { stop_when_denied: true, ..Options::default() };
        let instance =
            Instance::with_options(&format!("{root}descriptors:\n- key: t\n  descriptors:\n{stated}"), options);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let keys = ["k0", "k1", "k2"];
        let decide = |charges: &[(usize, u64)]| {
            let descriptors: Vec<Descriptor<'_>> = charges
                .iter()
                .map(|(at, hits)| Descriptor {
                    entries: Entries::from_iter([Entry { key: "t", value: "x" }, Entry { key: keys[*at], value: "y" }]),
                    limit: None,
                    hits: Hits::charge(*hits),
                })
                .collect();
            let active = instance.limiter.rules();
            let active = active.get().expect("rules");
            let decided = runtime.block_on(instance.limiter.decide(active, "d", &descriptors, Deadline::UNKNOWN));
            let decision = decided.expect("decided").0;
            let used = decision.statuses.iter().map(|status| status.limited().expect("a counter").verdict.used);
            (decision.code == Code::Ok, used.collect::<Vec<u64>>())
        };
        let mut counts = vec![0; 3];
        for request in requests {
            let charges: Vec<(usize, u64)> = request.into_iter().collect();
            let expected = charge_as_reference(&mut counts, &limits, &charges);
            prop_assert_eq!(decide(&charges).0, expected);
            let reads: Vec<(usize, u64)> = (0..3).map(|at| (at, 0)).collect();
            prop_assert_eq!(&decide(&reads).1, &counts);
        }
    }
}
