//! From descriptors to a decision: match, decide, fold, and take back what a denied request charged.

mod calls;
mod look;
mod places;
mod target;
mod undo;

pub(crate) use self::calls::cell_of;
pub use self::places::Places;
use self::target::{Target, Targets};

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    descriptor::Descriptor,
    lease::LeaseId,
    metrics,
    rules::{InForce, Rules, Snapshot},
    store::{
        Decisions, Store, StoreError,
        call::{Calls, Verdicts},
    },
    verdict::{Code, Decision, Limited, Status},
};

/// Modes that hold for every rule of the process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Nothing is denied; what would have been is counted.
    pub shadow: bool,
    /// Every descriptor counts as a quota.
    pub quota: bool,
    /// The share of a limit, 0 to 1, above which hits count as near the limit in metrics.
    pub near_limit_ratio: f64,
}

impl Default for Modes {
    fn default() -> Self {
        Self { shadow: false, quota: false, near_limit_ratio: 0.8 }
    }
}

/// Decides requests by the rules in force.
#[derive(Clone, Debug)]
pub struct Limiter {
    rules: Arc<Snapshot>,
    store: Store,
    modes: Modes,
}

type Statuses<'r> = SmallVec<[Status<'r>; 2]>;

impl Limiter {
    /// A limiter that enforces whatever `rules` holds at the time, counting in `store`.
    pub const fn new(rules: Arc<Snapshot>, store: Store, modes: Modes) -> Self {
        Self { rules, store, modes }
    }

    /// The rules that a request is to be decided by.
    pub fn rules(&self) -> InForce {
        self.rules.in_force()
    }

    /// Whether decisions are made without waiting for anyone.
    pub const fn decides_at_once(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// Decides what a request tells about itself, for a caller that waits so long if that is known; with the places that it holds, if it passes and took any.
    ///
    /// # Errors
    /// When a counter could not be decided.
    pub async fn decide<'r>(
        &self,
        rules: &'r Rules,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        patience: Option<Duration>,
    ) -> Result<(Decision<'r>, Option<Places>), StoreError> {
        let Some(rules) = rules.domain(domain) else {
            metrics::unknown_domain();
            let statuses = descriptors.iter().map(|_| Status::NoLimit).collect();
            return Ok((Decision { code: Code::Ok, statuses }, None));
        };
        let targets = target::targets(rules, descriptors);
        // One lease for all that the request takes a place in.
        let lease = targets.iter().any(Target::takes_lease).then(LeaseId::random);
        let mut calls = calls::calls(rules, descriptors, &targets, lease, self.modes);
        let places = lease.map(|lease| Places::new(self.store.clone(), &calls, lease));
        let decisions = look::decide(&self.store, &mut calls, self.store.deadline(patience)).await;
        let decision = self.conclude(domain, descriptors, &targets, &calls, &decisions);
        let keeps =
            |decision: &Decision<'_>| decision.code == Code::Ok && undo::holds_lease(&calls, &decisions);
        match (decision, places) {
            (Ok(decision), Some(places)) if keeps(&decision) => Ok((decision, Some(places))),
            (decision, places) => {
                // What is to be taken back was.
                places.inspect(Places::handed_over);
                decision.map(|decision| (decision, None))
            }
        }
    }

    /// Folds what the calls came to into the request's decision, and has taken back what a request charged that
    /// does not pass.
    fn conclude<'r>(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        targets: &Targets<'r>,
        calls: &Calls,
        decisions: &Decisions,
    ) -> Result<Decision<'r>, StoreError> {
        let mut statuses: Statuses<'r> = targets.iter().map(Target::status_without_counter).collect();
        let mut failure = None;
        for verdicts in decisions {
            match verdicts {
                Ok(verdicts) => self.fill(&mut statuses, targets, verdicts),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        // What was charged counts, though another call may have failed.
        self.count(domain, descriptors, targets, &statuses);
        let code = self.overall(&statuses);
        if failure.is_some() || code == Code::OverLimit {
            self.store.decide_later(undo::undo(calls, decisions));
        }
        if let Some(error) = failure {
            return Err(error.clone());
        }
        Ok(Decision { code, statuses })
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
