//! Several limits of one descriptor in Redis, against the memory store; and under concurrent requests.

use std::num::NonZeroU32;

use futures_util::future::join_all;
use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tollgate::clock::{Clock, Timestamp};
use tollgate::descriptor::{Descriptor, Entries};
use tollgate::limiter::{ActiveRules, Deadline, Fallback, Limiter, Modes, Replicas, decision::Code};
use tollgate::store::{MemoryStore, Store};
use tollgate::{config, rules::OnStoreError};

use crate::support::prelude::*;

const HISTORIES: usize = 60;

/// Windows, numbers and algorithms, some with a key of their own beside the cell.
fn limits() -> impl Strategy<Value = String> {
    let algorithm = proptest::sample::select(vec![
        "fixed_window",
        "fixed_window",
        "token_bucket",
        "sliding_window",
        "sliding_window_log",
    ]);
    let window = proptest::sample::select(vec![1_u32, 10, 60, 3_600, 86_400]);
    vec((window, 1..9_u32, algorithm), 1..6).prop_map(|mut limits| {
        limits.sort_unstable();
        limits.dedup_by_key(|(window, ..)| *window);
        let stated = limits.iter().map(|(window, limit, algorithm)| {
            format!("{{window: {window}s, requests_per_unit: {limit}, algorithm: {algorithm}}}")
        });
        stated.collect::<Vec<_>>().join(", ")
    })
}

fn rules(domain: &str, root: &str, limits: &str) -> Arc<ActiveRules> {
    let yaml = format!(
        "domain: {domain}\n{root}descriptors:\n- key: k\n  rate_limits: [{limits}]\n  descriptors:\n  \
         - {{key: l, rate_limit: {{unit: hour, requests_per_unit: 20}}}}\n"
    );
    let loaded = config::load_files([("a.yaml".to_owned(), yaml.into_bytes())], config::Options::default());
    let rules = Arc::new(ActiveRules::default());
    rules.replace(Arc::new(loaded.expect("valid rules").rules));
    rules
}

/// Decides a request, and returns its code with the limits' remaining hits and whether each admits.
async fn decide(limiter: &Limiter, domain: &str, hits: &[Hits]) -> (bool, Vec<(u64, bool, u64)>) {
    let entries = [Entry { key: "k", value: "x" }, Entry { key: "l", value: "y" }];
    let descriptors: Vec<Descriptor<'_>> = hits
        .iter()
        .enumerate()
        .map(|(at, hits)| Descriptor {
            entries: entries.iter().take(at + 1).copied().collect::<Entries<'_>>(),
            limit: None,
            hits: *hits,
        })
        .collect();
    let active = limiter.rules();
    let active = active.get().expect("rules");
    let decided = limiter.decide(active, domain, &descriptors, Deadline::UNKNOWN).await;
    let decision = decided.expect("the store decides").0;
    let limits = decision.every_limit().map(|limited| {
        (limited.verdict.remaining, limited.verdict.admitted, limited.until_reset().as_secs())
    });
    (decision.code == Code::Ok, limits.collect())
}

fn hits() -> impl Strategy<Value = Hits> {
    prop_oneof![6 => Just(Hits::ONE), 2 => (0..4_u64).prop_map(Hits::charge), 1 => (1..3_u64).prop_map(Hits::refund)]
}

#[tokio::test]
async fn several_limits_are_decided_alike_in_redis_and_in_memory() {
    let (_redis, store) = Redis::start_store();
    let mut runner = TestRunner::deterministic();
    for number in 0..HISTORIES {
        let history = (limits(), any::<bool>(), vec((0..4_000_000_u64, vec(hits(), 1..3)), 5..25));
        let (limits, is_atomic, requests) = history.new_tree(&mut runner).expect("generates").current();
        let domain = format!("several{number}");
        let rules = rules(&domain, &format!("hash_tag: [k]\natomic: {is_atomic}\n"), &limits);
        let clock = Clock::manual(at(0));
        let memory = Limiter::new(
            Arc::clone(&rules),
            Store::new(MemoryStore::new(1 << 12, clock.clone())),
            Modes::default(),
        );
        let mut now = Timestamp::from_micros(1_800_000_000_000_000);
        for (step, (wait, hits)) in requests.iter().enumerate() {
            now = Timestamp::from_micros(now.as_micros() + wait);
            clock.set(now);
            let by_redis = Store::new(store.clone().at_time(now));
            let by_redis = Limiter::new(Arc::clone(&rules), by_redis, Modes::default());
            let (expected, found) =
                (decide(&memory, &domain, hits).await, decide(&by_redis, &domain, hits).await);
            assert_eq!(found, expected, "step {step} of {requests:?} on {limits}");
        }
    }
}

#[tokio::test]
async fn concurrent_requests_never_exceed_one_of_several_limits() {
    let redis = Redis::start();
    let rules = rules(
        "several",
        "",
        "{unit: day, requests_per_unit: 50}, {unit: month, requests_per_unit: 30}, {unit: year, requests_per_unit: 90}",
    );
    let store = Store::new(redis.store().at_time(Timestamp::from_micros(1_800_000_000_000_000)));
    let limiter = Limiter::new(rules, store, Modes::default());
    let decided = join_all((0..200).map(|_| decide(&limiter, "several", &[Hits::ONE]))).await;
    assert_eq!(decided.iter().filter(|(passes, _)| *passes).count(), 30);
    let (_, left) = decide(&limiter, "several", &[Hits::Peek]).await;
    let left: Vec<u64> = left.into_iter().map(|(remaining, ..)| remaining).collect();
    assert_eq!(left, [20, 0, 60], "a denied request is charged nowhere");
}

#[tokio::test]
async fn a_limit_that_denies_without_the_store_keeps_the_others_of_its_request_from_being_charged() {
    let redis = Redis::start();
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    for (number, (policy, root)) in
        [("deny", ""), ("error", ""), ("deny", "atomic: true\n"), ("error", "atomic: true\n")]
            .iter()
            .enumerate()
    {
        let domain = format!("away-{number}");
        let limits = format!(
            "{{unit: day, requests_per_unit: 50}}, {{unit: month, requests_per_unit: 30, on_store_error: {policy}}}, \
             {{unit: year, requests_per_unit: 90}}"
        );
        let rules = rules(&domain, root, &limits);
        let clock = Clock::Manual(Arc::new(now.as_micros().into()));
        let local = MemoryStore::new(100, clock.clone());
        let fallback =
            Some(Fallback::new(OnStoreError::Local, local.clone(), Replicas::new(NonZeroU32::MIN)));
        let store = Store::new(redis.store().at_time(now));
        let limiter = Limiter { fallback, ..Limiter::new(Arc::clone(&rules), store, Modes::default()) };
        for _ in 0..3 {
            let entries = [Entry { key: "k", value: "x" }].into_iter().collect();
            let descriptors = [Descriptor { entries, limit: None, hits: Hits::ONE }];
            let (active, deadline) = (limiter.rules(), Deadline::Exceeded);
            let decided = limiter.decide(active.get().expect("rules"), &domain, &descriptors, deadline).await;
            let denies = decided.as_ref().map(|(decision, _)| decision.code == Code::OverLimit);
            assert_eq!(denies.ok(), (*policy == "deny").then_some(true), "{policy}");
        }
        // Charges of the local store would be made in Redis before this.
        let left = async |limiter: &Limiter| -> Vec<u64> {
            let (_, left) = decide(limiter, &domain, &[Hits::Peek]).await;
            left.into_iter().map(|(remaining, ..)| remaining).collect()
        };
        assert_eq!(left(&limiter).await, [50, 30, 90], "in Redis: {policy} {root}");
        let limiter = Limiter { clock, ..Limiter::new(rules, Store::new(local), Modes::default()) };
        assert_eq!(left(&limiter).await, [50, 30, 90], "in the instance: {policy} {root}");
    }
}
