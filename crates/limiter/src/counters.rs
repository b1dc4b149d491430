//! Reads and refunds of the counters that a request would charge, for the admin API.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::ban::{BanCheck, BanEffect};
use tollgate_core::descriptor::{Descriptor, Hits};
use tollgate_core::{algorithm::Verdict, clock::Clock};
use tollgate_rules::{CanonicalAddresses, Domain, Overridden, Rule, Switched};
use tollgate_store::request::{Check, Requests};
use tollgate_store::{Store, StoreError, local::held_hits};

use super::calls::{self, ChargeTerms};
use super::{Modes, OwnShares, matching, plan::Changes};

/// Deadline of a read or a refund: longer than that of a request, because no traffic waits for it.
const STORE_TIMEOUT: Duration = Duration::from_millis(800);

/// Reads and refunds counters. Metrics count neither a request nor hits of a rule, only the call to the store. There is
/// no fallback: without the store, counters are unknown.
#[derive(Clone, Debug)]
pub struct CounterInspector {
    /// Where counters live.
    pub store: Store,
    /// Modes of the process.
    pub modes: Modes,
    /// Shares of the limits that all regions enforce together.
    pub shares: OwnShares,
}

/// Verdict of the counter of one descriptor, if it has one.
pub type CounterReading = Option<Result<Verdict, StoreError>>;

/// Requests to the counters of some descriptors.
#[derive(Debug)]
pub struct CounterRequests {
    calls: Requests,
    /// Number of the limits of the descriptors.
    counters: usize,
}

impl CounterInspector {
    /// Returns requests to the counters that the descriptors match in `domain`, with the hits of the descriptors: in
    /// practice reads or refunds. Overrides of rules apply; lists and switches are ignored, and the name of a lease does not
    /// release it: only its holder does. Slow where values are long and there are many regular expressions.
    pub fn requests(
        &self,
        domain: &Domain,
        overridden: &Overridden,
        descriptors: &[Descriptor<'_>],
    ) -> CounterRequests {
        let changes = Changes { switched: &Switched::default(), overridden, clock: &Clock::System };
        let canonical = CanonicalAddresses::of(domain, descriptors);
        let descriptors = canonical.apply(descriptors);
        let mut plan = matching::plan(domain, changes, &descriptors);
        plan.limits.iter_mut().for_each(|limit| limit.matched.peek_instead_of_release());
        let (modes, shares) = (self.modes, &self.shares);
        calls::add(&mut plan, &ChargeTerms { modes, shares, clock: &Clock::System, lease: None });
        let (mut calls, counters) = (plan.calls, plan.limits.len());
        // A counter that equals an unused one is not banned either.
        end_bans(&mut calls, BanEffect::Forgive, |check| check.hits == Hits::reset());
        CounterRequests { calls, counters }
    }

    /// Returns requests that end the ban of the rule's counter that the descriptor matches in `domain`; `forgive` also makes
    /// a later ban a first one. A reading has the ban that was ended. Charges nothing.
    pub fn lifts(
        &self,
        domain: &Domain,
        overridden: &Overridden,
        rule: &Rule,
        descriptor: Descriptor<'_>,
        forgive: bool,
    ) -> CounterRequests {
        let mut requests = self.requests(domain, overridden, &[descriptor]);
        // An override may decide by another algorithm.
        let record = rule.record_id().path();
        let effect = if forgive { BanEffect::Forgive } else { BanEffect::Lift };
        end_bans(&mut requests.calls, effect, |check| {
            check.hits = Hits::Peek;
            check.record.path() == record
        });
        requests
    }

    /// Hits that the workers of this process have charged ahead for the counters and not used yet.
    pub fn held_hits(&self, requests: &CounterRequests) -> u64 {
        held_hits(&requests.calls)
    }

    /// Sends the requests and returns the readings, in the order of the descriptors: one of each, and behind it those of its
    /// extra limits.
    pub async fn send(&self, CounterRequests { calls, counters }: &CounterRequests) -> Vec<CounterReading> {
        let deadline = self.store.deadline(None).and_then(|_| Instant::now().checked_add(STORE_TIMEOUT));
        let decisions = self.store.decide(calls, deadline).await;
        let mut readings: Vec<CounterReading> = (0..*counters).map(|_| None).collect();
        for (call, decision) in calls.iter().zip(decisions) {
            match decision {
                Ok(verdicts) => {
                    verdicts.into_iter().for_each(|(at, verdict)| set(&mut readings, at, Ok(verdict)));
                }
                Err(error) => {
                    call.checks().for_each(|check| set(&mut readings, check.descriptor, Err(error.clone())));
                }
            }
        }
        readings
    }
}

/// Makes the checks for which `ends` returns true end the bans of their counters.
fn end_bans(calls: &mut Requests, effect: BanEffect, mut ends: impl FnMut(&mut Check) -> bool) {
    let cells = calls.iter_mut().flat_map(|call| &mut call.cells);
    for check in cells.flat_map(|cell| &mut cell.checks).filter(|check| check.ban.is_some()) {
        if ends(check) {
            check.ban = check.ban.map(|ban| BanCheck { effect, ..ban });
        }
    }
}

fn set(readings: &mut [CounterReading], at: usize, reading: Result<Verdict, StoreError>) {
    if let Some(slot) = readings.get_mut(at) {
        *slot = Some(reading);
    }
}
