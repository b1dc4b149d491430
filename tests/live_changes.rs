//! Rules that change while their counters are in use: random sequences of changed limits, windows, bursts, lifetimes and
//! algorithms, against exact models, in memory and in Redis.
//!
//! The models state what a store has to know, and no more: hits that had ended by the former rule before the first use
//! under the new one are not part of it.

use std::collections::HashMap;

use futures_util::future::join_all;
use proptest::{prelude::*, strategy::ValueTree as _, test_runner::TestRunner};

use crate::support::prelude::*;

const SECOND: u64 = 1_000_000;

/// Histories per store, of about 60 decisions each.
const HISTORIES: u64 = 1_500;

/// A rule as the configuration states it.
#[derive(Clone, Copy, Debug)]
struct Stated {
    algorithm: Algorithm,
    limit: u32,
    /// Seconds of the window or of the time to live.
    seconds: u32,
    burst: u32,
}

impl Stated {
    fn policy(&self) -> Policy {
        let quota =
            Quota { limit: self.limit.into(), window: Window::from_seconds(self.seconds).expect("in range") };
        let parameters = Parameters {
            burst: Some(self.burst),
            lease_ttl: Duration::from_secs(self.seconds.into()),
            ..Parameters::default()
        };
        Policy::new(self.algorithm, quota, &parameters).expect("valid")
    }

    fn length(&self) -> u64 {
        u64::from(self.seconds) * SECOND
    }

    /// Time in which a bucket emits a token and fills, in ticks of 10 ns.
    fn bucket(&self) -> (u64, u64) {
        let emission = (u64::from(self.seconds) * 100_000_000).div_ceil(u64::from(self.limit));
        (emission, emission * u64::from(self.burst))
    }
}

fn stated() -> impl Strategy<Value = Stated> {
    // Lengths of which one divides the other, as those of units do, and others.
    let seconds =
        proptest::sample::select(&[1_u32, 2, 5, 7, 10, 20, 30, 40, 60, 90, 120, 600, 3_600, 86_400][..]);
    let algorithm = proptest::sample::select(&Algorithm::ALL[..]);
    (algorithm, prop_oneof![1..=10_u32, 50..=100_u32], seconds, prop_oneof![1..=10_u32, Just(3_600)])
        .prop_map(|(algorithm, limit, seconds, burst)| {
            // A bucket has to fill within 2.8 years.
            Stated { algorithm, limit, seconds, burst: burst.min(1_000 * limit) }
        })
}

/// Microseconds since the step before, the changed rule, if it changed, and the hits that are requested then.
type Step = (u64, Option<Stated>, u64);

fn history() -> impl Strategy<Value = (Stated, Vec<Step>)> {
    let pause = prop_oneof![
        6 => 0..=300_000_u64,
        3 => 0..=5_000_000_u64,
        1 => 0..=60_000_000_u64,
    ];
    let changed = prop_oneof![9 => Just(None), 1 => stated().prop_map(Some)];
    let hits = prop_oneof![Just(1_u64), 1..=5_u64];
    (stated(), proptest::collection::vec((pause, changed, hits), 1..120))
}

/// Hits that a store has to know of a counter, each with its time, and those that may have ended before.
#[derive(Debug, Default)]
struct Known {
    /// The rule at the last use.
    rule: Option<Stated>,
    hits: Vec<(u64, u64)>,
    /// From here on, a rule with a longer window finds nothing.
    ends: u64,
    /// Time at which a bucket is full, in ticks.
    full_at: u64,
}

impl Known {
    /// The hits that are within the limit for certain.
    fn sum(&self) -> u64 {
        self.hits.iter().map(|(_, hits)| hits).sum()
    }

    /// Forgets what does not count at `now` under `rule`.
    fn advance(&mut self, rule: Stated, now: u64) {
        if self.rule.is_some_and(|before| before.seconds != rule.seconds) && now >= self.ends {
            self.hits.clear();
        }
        let length = rule.length();
        let start = match rule.algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::Budget => now - now % length,
            Algorithm::SlidingWindowLog | Algorithm::Concurrency => (now + 1).saturating_sub(length),
            Algorithm::TokenBucket => 0,
        };
        self.hits.retain(|(at, _)| *at >= start);
        self.rule = Some(rule);
        self.ends = match rule.algorithm {
            Algorithm::FixedWindow => start + length,
            Algorithm::SlidingWindow => start + 2 * length,
            _ => self.hits.last().map_or(0, |(at, _)| at + 2 * length),
        };
    }

    /// Checks a verdict against the model, and adds the hits that passed.
    fn check(&mut self, rule: Stated, now: u64, hits: u64, verdict: &Verdict) -> Result<(), String> {
        if rule.algorithm == Algorithm::TokenBucket {
            return self.check_bucket(rule, now, hits, verdict);
        }
        self.advance(rule, now);
        let before = self.sum();
        if verdict.admitted {
            self.hits.push((now, hits));
            self.ends = self.ends.max(match rule.algorithm {
                Algorithm::SlidingWindowLog | Algorithm::Concurrency => now + 2 * rule.length(),
                _ => 0,
            });
        }
        match verdict.admitted && before + hits > u64::from(rule.limit) {
            true => Err(format!("{before} hits count, and {hits} more passed")),
            false => Ok(()),
        }
    }

    /// A bucket is modelled exactly: it admits the same hits, and denies for no longer than it takes to fill.
    fn check_bucket(&mut self, rule: Stated, now: u64, hits: u64, verdict: &Verdict) -> Result<(), String> {
        let (emission, capacity) = rule.bucket();
        let now = now * 100;
        let owed = self.full_at.saturating_sub(now).min(capacity);
        let passes = owed + emission * hits <= capacity;
        self.full_at = now + owed + if passes { emission * hits } else { 0 };
        let longest = Duration::from_micros(capacity.div_ceil(100));
        let waits = |wait: Duration| wait > longest && wait < Duration::MAX;
        match verdict.admitted == passes && !waits(verdict.retry_after) && !waits(verdict.reset_after) {
            true => Ok(()),
            false => Err(format!("of a bucket that owes {owed} of {capacity} ticks: {verdict:?}")),
        }
    }
}

/// Decides a history, and checks each verdict.
async fn replay(store: &Subject, name: &str, (mut rule, steps): (Stated, Vec<Step>)) {
    let mut policy = rule.policy();
    let mut counters = HashMap::<&str, Known>::new();
    let mut now = at(0).as_micros();
    let mut log = Vec::new();
    for (pause, changed, hits) in steps {
        now += pause;
        if let Some(changed) = changed {
            policy = changed.policy().succeeding(&policy, at(now - at(0).as_micros()));
            rule = changed;
            log.push(format!("{now}: {rule:?}"));
        }
        let time = at(now - at(0).as_micros());
        let verdict = store.decide_one(time, name, policy, Hits::charge(hits)).await;
        log.push(format!("{now}: {hits} hits, passed: {}", verdict.admitted));
        let known = counters.entry(rule.algorithm.name()).or_default();
        if let Err(problem) = known.check(rule, now, hits, &verdict) {
            panic!("{problem}\n{}", log.join("\n"));
        }
    }
}

fn histories() -> Vec<(String, (Stated, Vec<Step>))> {
    let mut runner = TestRunner::deterministic();
    let mut next =
        |number| (format!("{number}"), history().new_tree(&mut runner).expect("generates").current());
    (0..HISTORIES).map(&mut next).collect()
}

#[tokio::test]
async fn changed_rules_admit_no_more_than_the_model() {
    let redis = Redis::start();
    for store in [Subject::memory(), Subject::redis(redis.store())] {
        for some in histories().chunks(32) {
            join_all(some.iter().map(|(name, history)| replay(&store, name, history.clone()))).await;
        }
    }
}
