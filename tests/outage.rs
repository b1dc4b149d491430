//! Three instances on one Redis that stops and comes back: what passes, and what Redis counts afterwards.

use std::num::NonZeroU32;

use tollgate::config::{self, Options};
use tollgate::decision::{Code, Decision, Status};
use tollgate::limiter::{ActiveRules, Deadline, Fallback, Limiter, Modes, Replicas};
use tollgate::rules::{Lists, OnStoreError, SwitchMode};
use tollgate::store::{MemoryStore, Store};
use tollgate::{
    clock::Clock, descriptor::Descriptor,
    proto::envoy::service::ratelimit::v3::rate_limit_response::Code as AnswerCode,
};

use crate::support::proxy::{Direction, Proxy, Way};
use crate::support::{prelude::*, tollgate::rules as rules_of};

const INSTANCES: usize = 3;

/// Hits in a window that no test outlasts.
const LIMIT: u64 = 300;

const ALGORITHMS: [&str; 4] = ["fixed_window", "sliding_window", "sliding_window_log", "token_bucket"];

const DOMAINS: [&str; 3] = ["strict", "leased", "atomic"];

/// Time for what is awaited; it comes sooner.
const PATIENCE_SECONDS: u64 = 60;

/// The rules: a limit for each algorithm, per value, in each mode.
fn rules() -> Arc<ActiveRules> {
    let limits: String = ALGORITHMS
        .iter()
        .map(|name| {
            format!(
                "- {{key: {name}, rate_limit: {{algorithm: {name}, window: 300d, requests_per_unit: {LIMIT}}}}}\n"
            )
        })
        .collect();
    let window = format!("window: 300d, requests_per_unit: {LIMIT}");
    let others = format!(
        "- {{key: lower, rate_limit: {{{window}, degraded_limit: 30}}}}\n\
         - {{key: open, rate_limit: {{{window}, on_store_error: allow}}}}\n"
    );
    let files = [
        ("strict.yaml", format!("domain: strict\ndescriptors:\n{limits}{others}")),
        ("leased.yaml", format!("domain: leased\ndefaults: {{sync: leased}}\ndescriptors:\n{limits}")),
        ("atomic.yaml", format!("domain: atomic\natomic: true\ndescriptors:\n{limits}")),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes()));
    let loaded = config::load_files(files, Options::default()).expect("valid");
    let rules = ActiveRules::default();
    rules.replace(Arc::new(loaded.rules));
    Arc::new(rules)
}

/// A Redis that keeps its counters when it is killed.
fn durable() -> Redis {
    Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"])
}

/// Instances that share a Redis, each with its own connections and local counters.
struct OutageFleet {
    rules: Arc<ActiveRules>,
    instances: Vec<(Limiter, RedisStore)>,
}

/// A counter: domain, algorithm and value.
type Counter<'a> = (&'a str, &'a str, &'a str);

impl OutageFleet {
    async fn start(settings: &RedisSettings) -> Self {
        let rules = rules();
        let replicas = NonZeroU32::new(3).expect("not 0");
        let mut instances = Vec::new();
        for _ in 0..INSTANCES {
            let store = RedisStore::open(settings).expect("valid settings");
            assert!(store.connected().await);
            let local = MemoryStore::new(1 << 16, Clock::System);
            let fallback = Some(Fallback::new(OnStoreError::Local, local, Replicas::new(replicas)));
            let limiter = Limiter::new(Arc::clone(&rules), Store::new(store.clone()), Modes::default());
            instances.push((Limiter { fallback, ..limiter }, store));
        }
        Self { rules, instances }
    }

    /// Sends a request for hits to one instance. Returns whether they pass, and whether Redis decided.
    async fn decide(&self, instance: usize, counter: Counter<'_>, hits: Hits) -> (bool, bool) {
        let (limiter, _) = &self.instances[instance % INSTANCES];
        let guard = limiter.rules();
        let (domain, algorithm, value) = counter;
        let descriptors = [descriptor(algorithm, value, hits)];
        let decided =
            limiter.decide(guard.get().expect("rules"), domain, &descriptors, Deadline::UNKNOWN).await;
        let (decision, _): (Decision<'_>, _) = decided.expect("a decision");
        (decision.code == Code::Ok, decision.degraded.is_none())
    }

    /// Sends `count` requests for single hits to all instances in turn; returns the number of those that pass.
    async fn round_robin(&self, counter: Counter<'_>, count: usize) -> u64 {
        let mut passed = 0;
        for at in 0..count {
            passed += u64::from(self.decide(at, counter, Hits::ONE).await.0);
        }
        passed
    }

    /// Waits until Redis decides for every instance, or for none.
    async fn until_redis_decides(&self, decides: bool) {
        let begun = Instant::now();
        for instance in 0..INSTANCES {
            while self.decide(instance, ("strict", "fixed_window", "probe"), Hits::Peek).await.1 != decides {
                assert!(begun.elapsed() < Duration::from_secs(PATIENCE_SECONDS), "it does not change");
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

fn descriptor<'a>(algorithm: &'a str, value: &'a str, hits: Hits) -> Descriptor<'a> {
    Descriptor { entries: [Entry { key: algorithm, value }].into_iter().collect(), limit: None, hits }
}

/// Hits that Redis counts.
async fn counted(redis: &Redis, counter: Counter<'_>) -> u64 {
    let store = redis.store();
    assert!(store.connected().await);
    let limiter = Limiter::new(rules(), Store::new(store), Modes::default());
    let guard = limiter.rules();
    let (domain, algorithm, value) = counter;
    let look = [descriptor(algorithm, value, Hits::Peek)];
    let decided = limiter.decide(guard.get().expect("rules"), domain, &look, Deadline::UNKNOWN).await;
    match &decided.expect("Redis decides").0.statuses[..] {
        [Status::Limited(limited)] => limited.verdict.used,
        other => panic!("no limit matched: {other:?}"),
    }
}

/// Waits until Redis counts `expected` hits, and never more.
async fn until_counted(redis: &Redis, counter: Counter<'_>, expected: u64) {
    let begun = Instant::now();
    loop {
        let counted = counted(redis, counter).await;
        assert!(counted <= expected, "{counter:?}: {counted} of {expected} are counted");
        if counted == expected {
            return;
        }
        let is_late = begun.elapsed() > Duration::from_secs(PATIENCE_SECONDS);
        assert!(!is_late, "{counter:?}: {counted} of {expected} are counted");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn counters_in_use_admit_no_more_than_their_limit_through_an_outage() {
    let mut redis = durable();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    let counters = || DOMAINS.iter().flat_map(|domain| ALGORITHMS.map(|name| (*domain, name, "used")));
    for counter in counters() {
        assert_eq!(fleet.round_robin(counter, 150).await, 150, "{counter:?}");
    }
    let url = redis.url();
    let before: Vec<u64> = {
        let mut before = Vec::new();
        for counter in counters() {
            before.push(counted(&redis, counter).await);
        }
        before
    };
    redis.signal("KILL");
    fleet.until_redis_decides(false).await;
    let mut during = Vec::new();
    for counter in counters() {
        during.push(fleet.round_robin(counter, 900).await);
    }
    redis.restart_after(Duration::ZERO);
    assert_eq!(redis.url(), url);
    fleet.until_redis_decides(true).await;
    for ((counter, before), during) in counters().zip(before).zip(during) {
        let name = format!("{counter:?}: {before} before and {during} during");
        // Tokens in hand count as used before, and pass during the outage.
        assert!((150 + during) * 10 <= LIMIT * 11 && during >= 60, "{name}");
        let after = fleet.round_robin(counter, 900).await;
        assert!((150 + during + after) * 10 <= LIMIT * 11, "{name}, {after} after");
    }
}

#[tokio::test]
async fn a_denial_stands_while_redis_is_away_and_an_unused_counter_starts_from_its_share() {
    let redis = durable();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    for algorithm in ALGORITHMS {
        let exhausted = ("strict", algorithm, "exhausted");
        assert_eq!(fleet.round_robin(exhausted, 330).await, LIMIT, "{algorithm}");
    }
    redis.signal("KILL");
    fleet.until_redis_decides(false).await;
    for algorithm in ALGORITHMS {
        assert_eq!(fleet.round_robin(("strict", algorithm, "exhausted"), 30).await, 0, "{algorithm}");
        assert_eq!(fleet.round_robin(("strict", algorithm, "unused"), 900).await, LIMIT, "{algorithm}");
    }
}

#[tokio::test]
async fn charges_of_an_outage_reach_redis_once() {
    let mut redis = durable();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    let counters = || DOMAINS.iter().flat_map(|domain| ALGORITHMS.map(|name| (*domain, name, "charged")));
    redis.signal("KILL");
    fleet.until_redis_decides(false).await;
    for counter in counters() {
        assert_eq!(fleet.round_robin(counter, 120).await, 120, "{counter:?}");
        // Refunded in the local store, and so not charged.
        fleet.decide(0, counter, Hits::refund(6)).await;
    }
    redis.restart_after(Duration::ZERO);
    fleet.until_redis_decides(true).await;
    for counter in counters() {
        // Without a call of the counter.
        until_counted(&redis, counter, 114).await;
    }
    for counter in counters() {
        fleet.round_robin(counter, 3).await;
        let is_ahead = counter.0 == "leased";
        let counted = counted(&redis, counter).await;
        assert!(counted == 117 || is_ahead, "{counter:?}: {counted}");
    }
}

#[tokio::test]
async fn a_call_comes_after_the_deferred_charges_of_its_counter() {
    let mut redis = durable();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    let counter = ("strict", "fixed_window", "ordered");
    redis.signal("KILL");
    fleet.until_redis_decides(false).await;
    assert_eq!(fleet.round_robin(counter, 900).await, LIMIT);
    redis.restart_after(Duration::ZERO);
    fleet.until_redis_decides(true).await;
    // Each instance admits what the others have not charged yet at most once.
    let after = fleet.round_robin(counter, 30).await;
    assert!(after <= 2, "{after}");
}

#[tokio::test]
async fn a_call_without_a_reply_is_not_charged_again() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port());
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    let settings = RedisSettings { timeout: Duration::from_millis(200), ..settings(&url) };
    let fleet = OutageFleet::start(&settings).await;
    let counter = ("strict", "fixed_window", "unknown");
    proxy.set(Direction::ToClient, Way::Silent);
    let mut passed = 0;
    for instance in 0..INSTANCES {
        let (is_ok, is_decided) = fleet.decide(instance, counter, Hits::ONE).await;
        assert!(is_ok && !is_decided);
        passed += 1;
    }
    // The calls after a timeout are not sent.
    fleet.until_redis_decides(false).await;
    passed += fleet.round_robin(counter, 60).await;
    proxy.set(Direction::ToClient, Way::Open);
    fleet.until_redis_decides(true).await;
    until_counted(&redis, counter, passed).await;
}

#[tokio::test]
async fn a_degraded_limit_decides_while_redis_is_away() {
    let redis = durable();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    let [unused, used] = ["unused", "used"].map(|value| ("strict", "lower", value));
    assert_eq!(fleet.round_robin(used, 60).await, 60);
    redis.signal("KILL");
    fleet.until_redis_decides(false).await;
    assert_eq!(fleet.round_robin(unused, 300).await, 30);
    assert_eq!(fleet.round_robin(used, 30).await, 0, "60 are more than the degraded limit");
}

#[tokio::test]
async fn an_emergency_is_decided_locally_and_charged_afterwards() {
    let redis = Redis::start();
    let fleet = OutageFleet::start(&settings(&redis.url())).await;
    let switch = |switches: Vec<(Box<str>, Box<str>, SwitchMode)>| {
        fleet.rules.set_lists(Arc::new(Lists::new(1, [], switches)));
    };
    let [counter, open] = ["fixed_window", "open"].map(|key| ("strict", key, "emergency"));
    assert_eq!(fleet.round_robin(counter, 90).await, 90);
    switch(vec![("atomic".into(), "*".into(), SwitchMode::Emergency)]);
    assert!(fleet.decide(0, counter, Hits::ONE).await.1, "another domain");
    switch(vec![("*".into(), "*".into(), SwitchMode::Emergency)]);
    assert!(!fleet.decide(0, counter, Hits::Peek).await.1);
    let passed = fleet.round_robin(counter, 600).await;
    assert!((203..=209).contains(&passed), "{passed} of the 209 that remained");
    assert_eq!(fleet.round_robin(open, 900).await, LIMIT, "every limit is enforced");
    assert_eq!(counted(&redis, counter).await, 91, "Redis is not called");
    switch(vec![]);
    until_counted(&redis, counter, 91 + passed).await;
    until_counted(&redis, open, LIMIT).await;
}

/// Requests in flight of each instance at saturation.
const IN_FLIGHT: usize = 64;

/// Fewer than all requests: 57,600.
const SATURATION_LIMIT: usize = 20_000;

/// Admitted requests of a counter, three instances with 64 requests each in flight, until it is exhausted. The program is
/// `MEASURED_TOLLGATE`, if that is set.
#[tokio::test]
#[ignore = "a measurement, which needs an idle machine"]
async fn admitted_at_saturation() {
    let redis = Redis::start();
    let config = rules_of(&format!(
        "domain: d\ndescriptors:\n- {{key: k, rate_limit: {{unit: year, requests_per_unit: {SATURATION_LIMIT}}}}}\n"
    ));
    let url = redis.url();
    let arguments = ["--store", &url, "--on-store-error", "local", "--replicas-hint", "3"];
    let program = || env::var("MEASURED_TOLLGATE").map_or_else(|_| command(), Command::new);
    let instances: Vec<_> =
        (0..INSTANCES).map(|_| Tollgate::spawn_by(program(), config.path(), &arguments)).collect();
    instances.iter().for_each(Tollgate::wait_until_ready);
    let mut streams = JoinSet::new();
    for instance in &instances {
        for _ in 0..IN_FLIGHT {
            let mut client = instance.client().await;
            streams.spawn(async move {
                let (mut passed, mut degraded) = (0, 0);
                for _ in 0..300 {
                    let Ok(answer) = client.call(request("d", &[&[("k", "hot")]])).await else { continue };
                    passed += usize::from(answer.overall_code() == AnswerCode::Ok);
                    let is_marked = |name: &str| name == "x-ratelimit-policy";
                    let headers = &answer.response_headers_to_add;
                    degraded += usize::from(headers.iter().any(|header| is_marked(&header.key)));
                }
                (passed, degraded)
            });
        }
    }
    let (mut passed, mut degraded) = (0, 0);
    while let Some(of_one) = streams.join_next().await {
        let of_one = of_one.expect("no panic");
        passed += of_one.0;
        degraded += of_one.1;
    }
    let part = passed as f64 / SATURATION_LIMIT as f64;
    println!("{passed} of {SATURATION_LIMIT} admitted ({part:.3}), {degraded} answers degraded");
}
