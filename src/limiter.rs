//! From descriptors to a decision: match, decide, fold, and take back what a denied request charged.

mod calls;
mod fallback;
mod look;
mod modes;
mod patience;
mod places;
mod replicas;
mod target;
mod undo;

pub(crate) use self::calls::cell_of;
pub use self::{fallback::Fallback, modes::Modes, patience::Patience, places::Places, replicas::Replicas};
use self::{
    fallback::StandIn,
    target::{Target, Targets},
};

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    descriptor::Descriptor,
    lease::LeaseId,
    metrics,
    rules::{InForce, Rules, Snapshot},
    store::{
        Decisions, Store, StoreError,
        call::{Ask, Calls, Verdicts},
    },
    verdict::{Code, Decision, Limited, Status},
};

/// Decides requests by the rules in force.
#[derive(Clone, Debug)]
pub struct Limiter {
    rules: Arc<Snapshot>,
    store: Store,
    modes: Modes,
    fallback: Option<Fallback>,
}

type Statuses<'r> = SmallVec<[Status<'r>; 2]>;

impl Limiter {
    /// A limiter that enforces whatever `rules` holds at the time, counting in `store`.
    pub const fn new(rules: Arc<Snapshot>, store: Store, modes: Modes) -> Self {
        Self { rules, store, modes, fallback: None }
    }

    /// The same, where `fallback` decides what the store does not. Without one, a request fails then.
    #[must_use]
    pub fn with_fallback(self, fallback: Fallback) -> Self {
        Self { fallback: Some(fallback), ..self }
    }

    /// The rules that a request is to be decided by.
    pub fn rules(&self) -> InForce {
        self.rules.in_force()
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
        rules: &'r Rules,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        patience: Patience,
    ) -> Result<(Decision<'r>, Option<Places>), StoreError> {
        let Some(rules) = rules.domain(domain) else {
            metrics::unknown_domain();
            let statuses = descriptors.iter().map(|_| Status::NoLimit).collect();
            return Ok((Decision { code: Code::Ok, degraded: None, statuses }, None));
        };
        let targets = target::targets(rules, descriptors);
        // One lease for all that the request takes a place in.
        let lease = targets.iter().any(Target::takes_lease).then(LeaseId::random);
        let mut calls = calls::calls(rules, descriptors, &targets, lease, self.modes);
        let places = lease.map(|lease| Places::new(self.store.clone(), &calls, lease));
        let decisions = match patience {
            Patience::Hurried => self.store.known(&calls),
            Patience::Until(wait) => look::decide(&self.store, &mut calls, self.store.deadline(wait)).await,
        };
        let is_complete = decisions.iter().all(Result::is_ok);
        let stand_in = match &self.fallback {
            Some(fallback) => {
                fallback.release(&calls, &decisions);
                let stand_in = || fallback.stand_in(rules, self.modes, &targets, &calls, &decisions);
                (!is_complete).then(stand_in)
            }
            None => None,
        };
        let statuses = self.statuses(&targets, &decisions, stand_in.as_ref());
        // What was charged counts, though another call may have failed.
        self.count(domain, descriptors, &targets, &statuses);
        let decision = self.conclude(statuses, &calls, &decisions, stand_in.as_ref());
        let holds = || undo::holds_lease(&calls, &decisions);
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
                    self.store.decide_later(undo::uncertain(&calls, &decisions));
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
        calls: &Calls,
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
            self.store.decide_later(undo::undo(calls, decisions));
            self.fallback.iter().zip(stand_in).for_each(|(fallback, stand_in)| fallback.undo(stand_in));
        }
        if decisions.iter().any(Result::is_err) {
            // Those who are told of a failure may ask again.
            let refunded = |ask: &Ask| {
                failure.is_none() && stand_in.is_some_and(|stand_in| !stand_in.has_counted(ask.descriptor))
            };
            self.store.decide_later(undo::missed(calls, decisions, refunded));
        }
        match failure {
            Some(error) => Err(error.clone()),
            None => {
                let degraded = stand_in.and_then(|stand_in| stand_in.degraded);
                Ok(Decision { code, degraded, statuses })
            }
        }
    }

    /// Puts what the counters said in its place.
    fn fill<'r>(&self, statuses: &mut Statuses<'r>, targets: &Targets<'r>, verdicts: &Verdicts) {
        for (descriptor, verdict) in verdicts {
            let (rule, quota, policy) = match targets.get(*descriptor) {
                Some(Target::Rule { rule, quota, policy, .. }) => (Some(&***rule), *quota, policy),
                Some(Target::Brought { quota, policy, .. }) => (None, *quota, policy),
                Some(Target::Nothing | Target::Unlimited(_)) | None => continue,
            };
            let is_quota = self.modes.quota || rule.is_some_and(|rule| rule.quota_mode);
            if let Some(status) = statuses.get_mut(*descriptor) {
                *status = Status::Limited(Limited {
                    rule,
                    quota,
                    algorithm: policy.algorithm(),
                    verdict: *verdict,
                    is_quota,
                });
            }
        }
    }

    /// Whether a limit denies the request by itself.
    fn is_denied(&self, statuses: &[Status<'_>]) -> bool {
        let denies = |status: &Status<'_>| status.code() == Code::OverLimit && !self.is_quota(status);
        !self.modes.shadow && statuses.iter().any(denies)
    }

    /// Folds the statuses: over the limit when any that is no quota is, or when all of those that are quotas are.
    fn overall(&self, statuses: &[Status<'_>]) -> Code {
        let (mut quotas, mut exhausted, mut denied) = (0_usize, 0_usize, false);
        for status in statuses {
            let is_over = status.code() == Code::OverLimit;
            if self.is_quota(status) {
                quotas = quotas.saturating_add(1);
                exhausted = exhausted.saturating_add(usize::from(is_over));
            } else {
                denied |= is_over;
            }
        }
        match denied || (quotas > 0 && exhausted == quotas) {
            true if self.modes.shadow => {
                metrics::shadowed();
                Code::Ok
            }
            true => Code::OverLimit,
            false => Code::Ok,
        }
    }

    fn is_quota(&self, status: &Status<'_>) -> bool {
        match status {
            Status::Limited(limited) => limited.is_quota,
            // As in the reference: one that no rule limits is a quota that never runs out.
            Status::NoLimit => self.modes.quota,
            Status::Unlimited => false,
        }
    }

    fn count(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        targets: &Targets<'_>,
        statuses: &[Status<'_>],
    ) {
        for ((descriptor, target), status) in descriptors.iter().zip(targets).zip(statuses) {
            if let (Status::Limited(limited), Some(hits)) = (status, target.hits()) {
                metrics::hits(domain, &descriptor.entries, limited, hits, self.modes.near_limit_ratio);
            }
        }
    }
}
