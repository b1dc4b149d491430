//! Decisions of descriptors with several limits, and of domains that stop charging when a limit denies.

mod properties;

use super::*;
use crate::{CounterInspector, test_prelude::*};

const SECOND: u64 = 1_000_000;

/// The beginning of a day.
const BEGIN: u64 = 1_800_057_600 * SECOND;

const LIMITS: &str = "rate_limits: [{unit: second, requests_per_unit: 3}, {unit: hour, requests_per_unit: 5}, \
                      {name: monthly, unit: month, requests_per_unit: 1000}]";

struct Instance {
    limiter: Limiter,
    rules: Arc<ActiveRules>,
    now: Arc<AtomicU64>,
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
        let rules = active_rules(&format!("domain: d\n{descriptors}"), options);
        let store = Store::new(MemoryStore::new(100_000, clock.clone()));
        let limiter = Limiter { clock, ..Limiter::new(Arc::clone(&rules), store, Modes::default()) };
        Self { limiter, rules, now }
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
        let descriptors = descriptors.iter();
        let descriptors: Vec<_> =
            descriptors.map(|&(key, hits)| Descriptor { limit, ..descriptor(&[(key, "x")], hits) }).collect();
        decided(&self.limiter, "d", &descriptors, |decision, _| read(&decision)).await
    }

    /// Used hits of each limit of a descriptor, in the order of the file.
    async fn used(&self, key: &str) -> Vec<u64> {
        let Limiter { store, modes, shares, .. } = self.limiter.clone();
        let inspector = CounterInspector { store, modes, shares };
        let (rules, overridden) = self.rules.load_overridden().expect("rules");
        let domain = rules.domain("d").expect("is there");
        let peek = descriptor(&[(key, "x")], Hits::Peek);
        let requests = inspector.requests(domain, &overridden, &[peek]);
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
        (decision.retry_after(), decision.governing().expect("denies").1.until_reset())
    });
    let (wait, reset) = wait.await;
    assert_eq!(wait, Some(reset));
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
            let several: Vec<_> = decision.statuses[1].limits().iter().map(remaining).collect();
            assert!(decision.statuses[0].limited().expect("limited").several.is_empty());
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
