mod auto;
mod bans;
mod charges_ahead;
mod denials;
mod fleet;
mod leased_tokens;

use std::num::NonZeroU8;

use smallvec::SmallVec;
use tollgate_core::algorithm::{CounterState, StateSummary, Verdict};
use tollgate_core::ban::{Ban, BanCheck, BanEffect, BanParameters, BanPolicy};

use super::{two_generation_map::MAX_GENERATION_ENTRIES, *};
use crate::request::{Cell, Verdicts};
use crate::test_prelude::{self, *};

/// A second of the clock of Redis, in the middle of a minute.
const NOW: Timestamp = Timestamp::from_micros(1_700_000_010_000_000);

fn policy(algorithm: Algorithm, limit: u32) -> Policy {
    test_prelude::policy(algorithm, limit.into(), 60)
}

fn check(number: u8, policy: Policy, hits: Hits, sync: SyncMode) -> Check {
    let record = RecordId::numbered(number, policy.algorithm());
    Check { descriptor: number.into(), record, sync, ..test_prelude::check(policy, hits) }
}

fn request(charging: Charging, checks: impl IntoIterator<Item = Check>) -> TagRequest {
    TagRequest {
        cells: SmallVec::from_iter([Cell { key: cell("v"), checks: checks.into_iter().collect() }]),
        charging,
        is_of_rule: false,
    }
}

/// Hits in a window.
fn count(state: &CounterState) -> u32 {
    match state {
        CounterState::Words([_, count, _]) => *count,
        other => panic!("{other:?}"),
    }
}

fn one(policy: Policy, hits: u64, sync: SyncMode) -> TagRequest {
    request(Charging::Independent, [check(0, policy, Hits::charge(hits), sync)])
}

/// The reply to a request with one check.
fn outcome(verdict: Verdict, prefetched: impl IntoIterator<Item = u32>) -> RunOutcome {
    let verdicts = SmallVec::from_iter([Verdicts::from_iter([(0, verdict)])]);
    RunOutcome { verdicts, prefetched: prefetched.into_iter().collect() }
}

/// A simulated store with one state for each counter of one request.
struct Server {
    local: Arc<LocalCache>,
    started: Instant,
    states: Vec<CounterState>,
    /// Number of requests sent.
    sent: usize,
}

impl Server {
    fn new() -> Self {
        let local = LocalCache::new(BackgroundQueue::default(), OutageCache::default());
        Self { local, started: Instant::now(), states: vec![CounterState::default(); 3], sent: 0 }
    }

    fn at(&self, millis: u64) -> Instant {
        self.started + Duration::from_millis(millis)
    }

    /// Decides a request after `millis` milliseconds, from the cache if that suffices.
    fn decide(&mut self, request: &TagRequest, millis: u64) -> Vec<Verdict> {
        let now = self.at(millis);
        let verdicts = match self.local.decide(request, now) {
            Some((verdicts, _)) => verdicts,
            None => self.send(request, millis),
        };
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    fn send(&mut self, request: &TagRequest, millis: u64) -> Verdicts {
        self.sent += 1;
        let (sent_at, time) = (self.at(millis), NOW.plus(Duration::from_millis(millis)));
        let prefetches = self.local.attachment(request, sent_at).prefetches;
        let mut passes = Vec::new();
        for (at, check) in request.checks().enumerate() {
            passes.push(check.policy.apply(&mut self.states[at].clone(), time, check.hits, request.charging));
        }
        let is_vetoed = request.charging == Charging::AllOrNone && passes.contains(&false);
        let (mut verdicts, mut prefetched) = (Verdicts::new(), SmallVec::new());
        for (at, check) in request.checks().enumerate() {
            let state = &mut self.states[at];
            let hits = if is_vetoed { Hits::Peek } else { check.hits };
            check.policy.apply(state, time, hits, request.charging);
            let summary = check.policy.summary(state, time, check.hits);
            let verdict = check.policy.verdict(summary, time, check.hits, passes[at], request.charging);
            verdicts.push((check.descriptor, verdict));
            if let Some(prefetch) = prefetches.get(at) {
                prefetched.push(if passes[at] { check.policy.prefetch(state, time, *prefetch) } else { 0 });
            }
        }
        let outcome = RunOutcome { verdicts: SmallVec::from_iter([verdicts.clone()]), prefetched };
        self.local.learn(request, sent_at, &outcome);
        verdicts
    }

    fn admits(&mut self, request: &TagRequest, millis: u64) -> bool {
        self.decide(request, millis).iter().all(|verdict| verdict.admitted)
    }

    /// Sends a request at each of these times, and asserts that it is admitted.
    #[track_caller]
    fn admit_all(&mut self, request: &TagRequest, times: impl IntoIterator<Item = u64>) {
        times.into_iter().for_each(|millis| assert!(self.admits(request, millis), "at {millis}"));
    }
}

/// The hits that requests refund.
fn refunded(requests: &Requests) -> u64 {
    let amount = |check: &Check| match check.hits {
        Hits::RefundCharge { amount, .. } => amount.get(),
        other => panic!("{other:?}"),
    };
    requests.iter().flat_map(TagRequest::checks).map(amount).sum()
}
