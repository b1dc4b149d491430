//! Charges after the response, beyond the limit: each counts in full, in every algorithm, mode and store.

use std::num::NonZeroU32;

use tollgate::clock::{Clock, Timestamp};
use tollgate::config::{self, Options};
use tollgate::decision::{Code, Status};
use tollgate::limiter::{ActiveRules, Deadline, Fallback, Limiter, Modes, Replicas};
use tollgate::store::{BackgroundQueue, LastVerdicts, MemoryStore, Store};
use tollgate::{descriptor::Descriptor, rules::OnStoreError};

use crate::support::prelude::*;

/// Algorithms, with the debt's time after 60 and 80 hits of 100 a minute, in whole seconds: a window until its end, of a
/// sliding one until 100 of 140 count, and a bucket until 40 tokens are refilled.
const ALGORITHMS: [(&str, u64); 4] =
    [("fixed_window", 60), ("sliding_window", 76), ("sliding_window_log", 60), ("token_bucket", 24)];

const MODES: [&str; 3] = ["strict", "leased", "atomic"];

/// The rules: a limit for each algorithm in each mode, and one that denies everything.
fn rules(window: &str) -> ActiveRules {
    let limits = |more: &str| {
        ALGORITHMS.map(|(name, _)| {
            let limit =
                format!("algorithm: {name}, window: {window}, requests_per_unit: 100, overdraft: true");
            format!("- {{key: {name}, rate_limit: {{{limit}{more}}}}}\n")
        })
    };
    let denying = "- {key: denying, rate_limit: {unit: year, requests_per_unit: 0}}\n";
    let file = |root: &str, more: &str| format!("{root}\ndescriptors:\n{}{denying}", limits(more).concat());
    let files = [
        ("strict.yaml", file("domain: strict", "")),
        ("atomic.yaml", file("domain: atomic\natomic: true", "")),
        ("leased.yaml", file("domain: leased\ndefaults: {sync: leased}", "")),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes()));
    let loaded = config::load_files(files, Options::default()).expect("valid");
    let rules = ActiveRules::default();
    rules.replace(Arc::new(loaded.rules));
    rules
}

/// A store with a name for its counters: by its own clock, and at times of the test.
struct NamedStore {
    name: &'static str,
    store: Store,
    timed: Subject,
}

impl NamedStore {
    fn memory() -> Self {
        let store = Store::new(MemoryStore::new(1 << 16, Clock::manual(at(0))));
        Self { name: "memory", store, timed: Subject::memory() }
    }

    fn redis(name: &'static str, store: RedisStore) -> Self {
        Self { name, store: Store::new(store.clone()), timed: Subject::redis(store) }
    }

    /// The store at a time, or at its own.
    fn store_at(&self, now: Option<Timestamp>) -> Store {
        now.map_or_else(|| self.store.clone(), |now| self.timed.store(now))
    }

    /// The code of a request with these hits, beside a limit that denies where that matters, and the verdict.
    async fn decide(
        &self,
        rules: &Arc<ActiveRules>,
        now: Option<Timestamp>,
        (mode, algorithm): (&str, &str),
        hits: Hits,
    ) -> (Code, Verdict) {
        let limiter = Limiter::new(Arc::clone(rules), self.store_at(now), Modes::default());
        let descriptor = |key, hits| Descriptor {
            entries: [Entry { key, value: "" }].into_iter().collect(),
            limit: None,
            hits,
        };
        let mut descriptors = vec![descriptor(algorithm, hits)];
        if mode == "atomic" && hits.is_overdraft() {
            descriptors.push(descriptor("denying", Hits::ONE));
        }
        // The limiter makes overdrafts of charges.
        descriptors[0].hits = match hits {
            Hits::Overdraw(amount) => Hits::Charge(amount),
            hits => hits,
        };
        let guard = limiter.rules();
        let active = guard.get().expect("rules");
        let decided = limiter.decide(active, mode, &descriptors, Deadline::UNKNOWN).await;
        let (decision, _) = decided.expect("a decision");
        let Status::Limited(ref limited) = decision.statuses[0] else { panic!("no limit matched") };
        (decision.code, limited.verdict)
    }
}

fn beyond(hits: u64) -> Hits {
    Hits::Overdraw(hits.try_into().expect("not 0"))
}

/// Charges 60 before and 80 after the response, then looks until the debt is paid. Returns the row of a table.
async fn pay(subject: &NamedStore, mode: &'static str, algorithm: &'static str, expected: u64) -> String {
    let rules = Arc::new(rules("60s"));
    let decide = |now, hits| subject.decide(&rules, Some(now), (mode, algorithm), hits);
    let name = format!("{algorithm}, {mode}, {}", subject.name);
    assert_eq!(decide(at(0), Hits::charge(60)).await.0, Code::Ok, "{name}");
    assert_eq!(decide(at(0), beyond(80)).await.0, Code::OverLimit, "{name}");
    let (code, look) = decide(at(0), Hits::Peek).await;
    assert_eq!((code, look.used, look.remaining), (Code::OverLimit, 140, 0), "{name}");
    let debt = look.retry_after;
    assert_eq!(debt.as_secs(), expected, "{name}");
    let micros = u64::try_from(debt.as_micros()).expect("short");
    assert_eq!(decide(at(micros - 1), Hits::Peek).await.0, Code::OverLimit, "{name}");
    assert_eq!(decide(at(micros), Hits::Peek).await.0, Code::Ok, "{name}");
    format!("{algorithm:<20}{mode:<8}{:<9}{:>4}  denied  {debt:?}", subject.name, look.used)
}

/// Denials that this instance knows, and tokens that it holds, swallow no charge.
async fn repeat(subject: &NamedStore, mode: &'static str, algorithm: &'static str) {
    let rules = Arc::new(rules("300d"));
    let decide = |hits| subject.decide(&rules, None, (mode, algorithm), hits);
    let name = format!("{algorithm}, {mode}, {}", subject.name);
    for charged in [60, 80, 80, 80, 80, 80] {
        let (_, verdict) = decide(beyond(charged)).await;
        assert!(verdict.decided_at.as_micros() > 0, "{name}");
    }
    // A bucket and a log keep twice the limit.
    let expected = if algorithm.ends_with("window") { 460 } else { 200 };
    let (code, look) = decide(Hits::Peek).await;
    assert_eq!((code, look.used), (Code::OverLimit, expected), "{name}");
}

/// A store of each kind; the prefix is for the shared cluster.
fn stores(redis: &Redis, prefix: &str) -> [NamedStore; 3] {
    let cluster = crate::support::cluster::shared();
    [
        NamedStore::memory(),
        NamedStore::redis("redis", redis.store()),
        NamedStore::redis("cluster", cluster.store(prefix)),
    ]
}

#[tokio::test]
async fn charges_beyond_the_limit_count_in_full_in_every_algorithm_mode_and_store() {
    let redis = Redis::start();
    for (algorithm, expected) in ALGORITHMS {
        for mode in MODES {
            for subject in &stores(&redis, "overdraft") {
                println!("{}", pay(subject, mode, algorithm, expected).await);
            }
        }
    }
}

#[tokio::test]
async fn known_denials_and_leases_swallow_no_charge_beyond_the_limit() {
    let redis = Redis::start();
    for subject in &stores(&redis, "overdraft-repeated") {
        for (algorithm, _) in ALGORITHMS {
            for mode in MODES {
                repeat(subject, mode, algorithm).await;
            }
        }
    }
}

#[tokio::test]
async fn a_charge_beyond_the_limit_that_was_not_sent_in_time_is_sent_later() {
    let (redis, background) = (Redis::start(), BackgroundQueue::default());
    let store =
        RedisStore::open_sharing(&settings(&redis.url()), background.clone(), LastVerdicts::default());
    let store = store.expect("valid settings");
    assert!(store.connected().await);
    let rules = Arc::new(rules("300d"));
    let local = MemoryStore::new(1 << 10, Clock::System);
    let fallback = Some(Fallback::new(OnStoreError::Local, local, Replicas::new(NonZeroU32::MIN)));
    let handle = Store::with_background(Arc::new(store.clone()), background.clone());
    let limiter = Limiter { fallback, ..Limiter::new(Arc::clone(&rules), handle, Modes::default()) };
    for (algorithm, _) in ALGORITHMS {
        let descriptor = Descriptor {
            entries: [Entry { key: algorithm, value: "" }].into_iter().collect(),
            limit: None,
            hits: Hits::charge(80),
        };
        let guard = limiter.rules();
        let active = guard.get().expect("rules");
        let decided = limiter.decide(active, "strict", &[descriptor], Deadline::Exceeded).await;
        assert!(decided.expect("a decision").0.degraded.is_some(), "{algorithm}");
        background.drain().await;
        let subject = NamedStore::redis("redis", store.clone());
        let (_, look) = subject.decide(&rules, None, ("strict", algorithm), Hits::Peek).await;
        assert_eq!(look.used, 80, "{algorithm}");
    }
}
