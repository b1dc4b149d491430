//! From descriptors to a decision: match, decide, fold, and take back what a denied request charged.

#![cfg_attr(test, allow(clippy::arithmetic_side_effects, clippy::float_arithmetic))]

mod requests;
mod record;
mod counters;
pub mod explain;
mod fallback;
mod fold;
mod lists;
mod precheck;
pub mod metrics;
mod modes;
pub mod talkers;
pub mod verdict;
mod deadline;
mod held_permits;
mod replicas;
mod matched;
mod refund;

pub use self::requests::cell_of;
pub use self::{
    counters::{Asks, Counters, Seen},
    deadline::Patience,
    fallback::Fallback,
    held_permits::Places,
    modes::Modes,
    replicas::Replicas,
};
use self::{
    fallback::StandIn,
    matched::{Target, Targets},
    metrics::RuleCounters,
};

use std::sync::Arc;

use smallvec::SmallVec;

use crate::verdict::{Code, Decision, Limited, Listed, Status};
use tollgate_core::{clock::Clock, descriptor::Descriptor, lease::LeaseId};
use tollgate_rules as rules;
use tollgate_store::{
    Decisions, Store, StoreError,
    request::{Check, Requests, Verdicts},
};

/// The active rules with their counters, in one snapshot.
pub type ActiveRules = rules::Snapshot<RuleCounters>;

/// What is active when a request comes.
pub type SnapshotGuard = rules::SnapshotGuard<RuleCounters>;

/// Rules, lists, switches and counters of a request.
pub type ActiveSet<'r> = rules::ActiveSet<'r, RuleCounters>;

/// Decides requests by the active rules.
#[derive(Clone, Debug)]
pub struct Limiter {
    rules: Arc<ActiveRules>,
    store: Store,
    modes: Modes,
    fallback: Option<Fallback>,
    clock: Clock,
}

type Statuses<'r> = SmallVec<[Status<'r>; 2]>;

impl Limiter {
    /// A limiter that enforces whatever `rules` holds at the time, counting in `store`.
    pub const fn new(rules: Arc<ActiveRules>, store: Store, modes: Modes) -> Self {
        Self { rules, store, modes, fallback: None, clock: Clock::System }
    }

    /// The same, where `fallback` decides what the store does not. Without one, a request fails then.
    #[must_use]
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// The same, where the entries of lists end by `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// What a request is to be decided by.
    pub fn rules(&self) -> SnapshotGuard {
        self.rules.active()
    }

    /// Whether decisions are made without waiting for anyone.
    pub const fn decides_at_once(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// Decides what a request tells about itself, for a caller of such patience; with the places that it
    /// holds, if it passes and took any.
    ///
    /// # Errors
    /// When a counter could not be decided.
    pub async fn decide<'r>(
        &self,
        active: ActiveSet<'r>,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        patience: Patience,
    ) -> Result<(Decision<'r>, Option<Places>), StoreError> {
        let Some(rules) = active.rules.domain(domain) else {
            return Ok((self.decide_without_rules(active.overrides, domain, descriptors), None));
        };
        let mut targets = matched::targets(rules, active.switched, descriptors);
        let listed = lists::decide(active.overrides, &self.clock, domain, descriptors, &mut targets);
        if let Some(listed) = listed {
            active.companion.listed(rules, listed.list());
        }
        // One lease for all that the request takes a place in.
        let lease = targets.iter().any(Target::takes_lease).then(LeaseId::random);
        let mut calls = requests::calls(rules, descriptors, &targets, lease, self.modes);
        let places = lease.map(|lease| Places::new(self.store.clone(), &calls, lease));
        let decisions = match patience {
            Patience::Hurried => self.store.decide_from_cache(&calls),
            Patience::Until(wait) => {
                precheck::decide(&self.store, &mut calls, self.store.deadline(wait)).await
            }
        };
        let is_complete = decisions.iter().all(Result::is_ok);
        let stand_in = match &self.fallback {
            Some(fallback) => {
                fallback.release(&calls, &decisions);
                let stand_in =
                    || fallback.stand_in(active.companion, rules, self.modes, &targets, &calls, &decisions);
                (!is_complete).then(stand_in)
            }
            None => None,
        };
        let statuses = self.statuses(&targets, &decisions, stand_in.as_ref());
        // What was charged counts, though another call may have failed.
        record::count(active.companion, rules, descriptors, &targets, &statuses, self.modes);
        let decision = self.conclude(statuses, listed, &calls, &decisions, stand_in.as_ref());
        let holds = || refund::holds_lease(&calls, &decisions);
        let holds_here = stand_in.as_ref().and_then(StandIn::holding);
        match (decision, places) {
            (Ok(decision), Some(places))
                if decision.code == Code::Ok && (holds() || holds_here.is_some()) =>
            {
                if let (Some(fallback), Some(calls)) = (&self.fallback, holds_here) {
                    places.are_also_in(fallback.local(), calls);
                }
                Ok((decision, Some(places)))
            }
            (decision, places) => {
                if decision.as_ref().is_ok_and(|decision| decision.code == Code::Ok) && !is_complete {
                    self.store.refund_in_background(refund::uncertain(&calls, &decisions));
                }
                // What is to be taken back was.
                places.inspect(Places::handed_over);
                decision.map(|decision| (decision, None))
            }
        }
    }

    /// What each descriptor came to.
    fn statuses<'r>(
        &self,
        targets: &Targets<'r>,
        decisions: &Decisions,
        stand_in: Option<&StandIn>,
    ) -> Statuses<'r> {
        let mut statuses = targets.iter().map(Target::status_without_counter).collect();
        let decided = decisions.iter().filter_map(|decision| decision.as_ref().ok());
        let stood_in = stand_in.into_iter().flat_map(|stand_in| &stand_in.verdicts);
        decided.chain(stood_in).for_each(|verdicts| self.fill(&mut statuses, targets, verdicts));
        statuses
    }

    /// Folds the statuses into the request's decision, and has taken back what a request charged that does not pass.
    fn conclude<'r>(
        &self,
        statuses: Statuses<'r>,
        listed: Option<Listed>,
        calls: &Requests,
        decisions: &Decisions,
        stand_in: Option<&StandIn>,
    ) -> Result<Decision<'r>, StoreError> {
        let failure = match stand_in {
            Some(stand_in) => stand_in.failure.as_ref(),
            None => decisions.iter().find_map(|decision| decision.as_ref().err()),
        };
        let code = self.overall(&statuses);
        // One limit that denies is reason enough, whatever another would have said.
        let failure = failure.filter(|_| !self.is_denied(&statuses));
        if failure.is_some() || code == Code::OverLimit {
            self.store.refund_in_background(refund::undo(calls, decisions));
            self.fallback.iter().zip(stand_in).for_each(|(fallback, stand_in)| fallback.undo(stand_in));
        }
        if decisions.iter().any(Result::is_err) {
            // Those who are told of a failure may ask again.
            let refunded = |ask: &Check| {
                failure.is_none() && stand_in.is_some_and(|stand_in| !stand_in.has_counted(ask.descriptor))
            };
            self.store.refund_in_background(refund::missed(calls, decisions, refunded));
        }
        match failure {
            Some(error) => Err(error.clone()),
            None => {
                let degraded = stand_in.and_then(|stand_in| stand_in.degraded);
                Ok(Decision { code, degraded, listed, statuses })
            }
        }
    }

    /// Puts what the counters said in its place.
    fn fill<'r>(&self, statuses: &mut Statuses<'r>, targets: &Targets<'r>, verdicts: &Verdicts) {
        for (descriptor, verdict) in verdicts {
            let (rule, quota, policy, is_shadow) = match targets.get(*descriptor) {
                Some(Target::Rule { rule, quota, policy, is_watched, .. }) => {
                    (Some(&***rule), *quota, policy, *is_watched)
                }
                Some(Target::Brought { quota, policy, .. }) => (None, *quota, policy, false),
                Some(Target::Nothing | Target::Unlimited(_) | Target::Off { .. } | Target::Denied) | None => {
                    continue;
                }
            };
            let is_quota = self.modes.quota || rule.is_some_and(|rule| rule.quota_mode);
            if let Some(status) = statuses.get_mut(*descriptor) {
                *status = Status::Limited(Limited {
                    rule,
                    quota,
                    algorithm: policy.algorithm(),
                    verdict: *verdict,
                    is_quota,
                    is_shadow,
                });
            }
        }
    }
}
