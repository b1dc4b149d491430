//! Random groups of limits, quotas, shadow rules and buckets that are charged all or none, against an exact model.

use std::{collections::HashMap, fmt::Write as _};

use futures_util::FutureExt as _;
use proptest::{collection::vec, prelude::*, strategy::ValueTree as _, test_runner::TestRunner};
use tollgate::clock::{Clock, Timestamp};
use tollgate::limiter::{ActiveRules, Deadline, Limiter, Modes, decision::Code};
use tollgate::store::{BackgroundQueue, LastVerdicts, MemoryStore, Store};
use tollgate::{algorithm::CounterState, config, descriptor::Descriptor};

use crate::support::prelude::*;

/// Number of histories, of some thirty requests each.
const HISTORIES: u32 = 300;

/// Limits of each tag.
const LIMITS: u8 = 6;

const TAGS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
struct Limit {
    algorithm: Algorithm,
    limit: u32,
    seconds: u32,
    is_quota: bool,
    is_shadow: bool,
}

impl Limit {
    fn policy(&self) -> Policy {
        policy(self.algorithm, self.limit, self.seconds)
    }

    fn yaml(&self) -> String {
        let Self { algorithm, limit, seconds, is_quota, is_shadow } = self;
        let window = match algorithm {
            Algorithm::Concurrency => String::new(),
            _ => format!(", window: {seconds}s"),
        };
        let name = algorithm.name();
        format!(
            "quota_mode: {is_quota}, shadow_mode: {is_shadow}, \
             rate_limit: {{algorithm: {name}, requests_per_unit: {limit}{window}}}"
        )
    }
}

/// A charge of a limit of a tag, both by number; negative for a refund.
type Charge = (usize, u8, i8);

/// Time since the previous request, in microseconds, and its descriptors.
type Request = (u64, Vec<Charge>);

fn limit() -> impl Strategy<Value = Limit> {
    // Half of them are buckets, which a refund does not restore.
    let algorithm = prop_oneof![Just(Algorithm::TokenBucket), proptest::sample::select(&Algorithm::ALL[..])];
    let seconds = prop_oneof![Just(2), Just(10), Just(60)];
    let is_quota = proptest::bool::weighted(0.5);
    (algorithm, 0..=6_u32, seconds, is_quota, proptest::bool::weighted(0.15)).prop_map(
        |(algorithm, limit, seconds, is_quota, is_shadow)| Limit {
            algorithm,
            limit,
            seconds,
            is_quota,
            is_shadow,
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let hits = prop_oneof![12 => Just(1_i8), 3 => 0..=3_i8, 1 => Just(-1)];
    let step = prop_oneof![3 => 0..=200_000_u64, 1 => 0..=3_000_000_u64];
    let one_tag = (0..TAGS.len(), vec((0..LIMITS, hits.clone()), 1..5))
        .prop_map(|(tag, charges)| charges.into_iter().map(|(limit, hits)| (tag, limit, hits)).collect());
    let any_tags = vec((0..TAGS.len(), 0..LIMITS, hits), 1..6);
    (step, prop_oneof![one_tag, any_tags])
}

fn history() -> impl Strategy<Value = (Vec<Limit>, Vec<Request>)> {
    (vec(limit(), usize::from(LIMITS)), vec(request(), 10..50))
}

/// The counters as requests leave them of which only those count that pass.
struct ExactModel {
    limits: Vec<Limit>,
    states: HashMap<(usize, u8), CounterState>,
    leases: u64,
}

impl ExactModel {
    /// Decides a request, and charges it if it passes. Returns whether it does.
    fn decide(&mut self, now: Timestamp, charges: &[Charge]) -> bool {
        let passes = self.weigh(now, charges);
        let limit = |charge: &Charge| self.limits[usize::from(charge.1)];
        let outcomes = || charges.iter().zip(&passes).map(|(charge, passes)| (limit(charge), *passes));
        let is_over = |(limit, passes): (Limit, bool)| !passes && !limit.is_shadow;
        let has_quotas = outcomes().any(|(limit, _)| limit.is_quota);
        let is_denied = outcomes().filter(|(limit, _)| !limit.is_quota).any(is_over)
            || has_quotas && outcomes().filter(|(limit, _)| limit.is_quota).all(is_over);
        for &(tag, number, hits) in charges {
            if hits < 0 || !is_denied {
                self.apply(now, (tag, number), hits);
            }
        }
        !is_denied
    }

    /// Whether each charge passes after the charges before it. Refunds make no room.
    fn weigh(&self, now: Timestamp, charges: &[Charge]) -> Vec<bool> {
        let mut copy = Self { limits: self.limits.clone(), states: self.states.clone(), leases: self.leases };
        let charge = |&(tag, number, hits): &Charge| hits < 0 || copy.apply(now, (tag, number), hits);
        charges.iter().map(charge).collect()
    }

    fn apply(&mut self, now: Timestamp, counter: (usize, u8), hits: i8) -> bool {
        self.leases += 1;
        let lease = LeaseId::new(NonZeroU64::new(self.leases).expect("not 0"));
        let policy = self.limits[usize::from(counter.1)].policy();
        let hits = match (hits_of(hits), policy.algorithm()) {
            (Hits::Charge(amount), Algorithm::Concurrency) => Hits::Acquire { amount, lease },
            (hits, _) => hits,
        };
        let state = self.states.entry(counter).or_default();
        // A limit of 0 admits no peek either.
        let is_zero = hits == Hits::Peek && self.limits[usize::from(counter.1)].limit == 0;
        policy.apply(state, now, hits, Charging::AllOrNone) && !is_zero
    }

    fn used(&mut self, now: Timestamp, counter: (usize, u8)) -> u64 {
        let policy = self.limits[usize::from(counter.1)].policy();
        let state = self.states.entry(counter).or_default();
        policy.apply(state, now, Hits::Peek, Charging::AllOrNone);
        let summary = policy.summary(state, now, Hits::Peek);
        policy.verdict(summary, now, Hits::Peek, true, Charging::AllOrNone).used
    }
}

fn hits_of(hits: i8) -> Hits {
    let amount = u64::from(hits.unsigned_abs());
    if hits < 0 { Hits::refund(amount) } else { Hits::charge(amount) }
}

/// The store under test, at a time that the test sets.
enum TimedStore {
    Memory(MemoryStore, Clock),
    Redis(RedisStore, BackgroundQueue),
}

impl TimedStore {
    fn memory() -> Self {
        let clock = Clock::manual(at(0));
        Self::Memory(MemoryStore::new(1 << 16, clock.clone()), clock)
    }

    fn redis(redis: &Redis) -> Self {
        let background = BackgroundQueue::default();
        let store =
            RedisStore::open_sharing(&settings(&redis.url()), background.clone(), LastVerdicts::default());
        Self::Redis(store.expect("valid settings"), background)
    }

    fn at(&self, now: Timestamp) -> Store {
        match self {
            Self::Memory(store, clock) => {
                clock.set(now);
                Store::new(store.clone())
            }
            Self::Redis(store, background) => {
                let store = store.clone().at_time(now);
                Store::with_background(Arc::new(store), background.clone())
            }
        }
    }

    /// Waits until all refunds were made. Returns whether there were none.
    async fn has_refunded_nothing(&self) -> bool {
        let Self::Redis(_, background) = self else { return true };
        let was_idle = background.drain().now_or_never().is_some();
        background.drain().await;
        was_idle
    }
}

struct Replay<'s> {
    subject: &'s TimedStore,
    rules: Arc<ActiveRules>,
    domain: String,
}

impl<'s> Replay<'s> {
    fn new(subject: &'s TimedStore, number: u32, limits: &[Limit]) -> Self {
        let domain = format!("d{number}");
        let mut yaml = format!(
            "domain: {domain}\natomic: true\nhash_tag: [tag]\ndescriptors:\n- key: tag\n  descriptors:\n"
        );
        for (number, limit) in limits.iter().enumerate() {
            writeln!(yaml, "  - {{key: limit, value: '{number}', {}}}", limit.yaml()).expect("a text");
        }
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("rules.yaml"), yaml).expect("written");
        let options =
            config::Options { merge_domains: false, strict: false, allow_empty: false, ..Default::default() };
        let loaded = config::load(directory.path(), &options).expect("valid rules");
        let rules = Arc::new(ActiveRules::default());
        rules.replace(Arc::new(loaded.rules));
        Self { subject, rules, domain }
    }

    /// Decides a request; returns whether it passes, and the used hits of each counter.
    async fn decide(&self, now: Timestamp, charges: &[Charge]) -> (bool, Vec<u64>) {
        let limiter = Limiter::new(Arc::clone(&self.rules), self.subject.at(now), Modes::default());
        let numbers: Vec<String> = charges.iter().map(|(_, number, _)| number.to_string()).collect();
        let descriptors: Vec<Descriptor<'_>> = charges
            .iter()
            .zip(&numbers)
            .map(|(charge, number)| Descriptor {
                entries: [Entry { key: "tag", value: TAGS[charge.0] }, Entry { key: "limit", value: number }]
                    .into_iter()
                    .collect(),
                limit: None,
                hits: hits_of(charge.2),
            })
            .collect();
        let active = limiter.rules();
        let active = active.get().expect("rules");
        let (decision, permits) = limiter
            .decide(active, &self.domain, &descriptors, Deadline::UNKNOWN)
            .await
            .expect("the store decides");
        permits.inspect(|permits| permits.hand_over());
        let used = decision.statuses.iter().map(|status| status.limited().expect("a counter").verdict.used);
        (decision.code == Code::Ok, used.collect())
    }
}

/// Whether a request may be charged and refunded without a precheck: if it refunds, or if no bucket of it is charged beside
/// a limit of another tag that may deny.
fn may_be_refunded(limits: &[Limit], charges: &[Charge]) -> bool {
    let limit = |charge: &Charge| limits[usize::from(charge.1)];
    let is_bucket = |charge: &&Charge| limit(charge).algorithm == Algorithm::TokenBucket && charge.2 > 0;
    let has_endless_quota = charges.iter().map(limit).any(|limit| limit.is_quota && limit.is_shadow);
    let may_deny =
        |charge: &Charge| !(limit(charge).is_shadow || limit(charge).is_quota && has_endless_quota);
    let has_rival = |bucket: &Charge| charges.iter().any(|charge| charge.0 != bucket.0 && may_deny(charge));
    let spans_tags = charges.iter().any(|charge| charge.0 != charges[0].0);
    spans_tags
        && (!charges.iter().filter(is_bucket).any(has_rival) || charges.iter().any(|charge| charge.2 < 0))
}

async fn compare(subject: TimedStore) {
    let mut runner = TestRunner::deterministic();
    let (mut passed, mut denied) = (0, 0);
    for number in 0..HISTORIES {
        let (limits, requests) = history().new_tree(&mut runner).expect("generates").current();
        let replay = Replay::new(&subject, number, &limits);
        let mut model = ExactModel { limits: limits.clone(), states: HashMap::new(), leases: 0 };
        let all: Vec<Charge> =
            (0..TAGS.len()).flat_map(|tag| (0..LIMITS).map(move |limit| (tag, limit, 0))).collect();
        let mut micros = 0;
        for (at_step, (step, charges)) in requests.iter().enumerate() {
            micros += step;
            let now = at(micros);
            let context =
                || format!("step {at_step}, {charges:?} of {limits:#?}, {:?}", &requests[..at_step]);
            let expected = model.decide(now, charges);
            let (found, _) = replay.decide(now, charges).await;
            let refunded_nothing = subject.has_refunded_nothing().await;
            assert_eq!(found, expected, "{}", context());
            assert!(
                refunded_nothing || may_be_refunded(&limits, charges),
                "charged and refunded: {}",
                context()
            );
            let (_, used) = replay.decide(now, &all).await;
            let kept: Vec<_> = all.iter().map(|(tag, limit, _)| model.used(now, (*tag, *limit))).collect();
            assert_eq!(used, kept, "{}", context());
            *(if found { &mut passed } else { &mut denied }) += 1;
        }
    }
    assert!(passed > 1_000 && denied > 1_000, "{passed} passed, {denied} were denied");
}

#[tokio::test]
async fn exactly_the_requests_that_pass_are_charged_and_nothing_is_refunded_within_a_tag() {
    let redis = Redis::start();
    for store in [TimedStore::memory(), TimedStore::redis(&redis)] {
        compare(store).await;
    }
}
