//! From descriptors to a decision: match, decide, fold.

mod calls;

pub(crate) use self::calls::cell_of;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    algorithm::Policy,
    descriptor::Descriptor,
    metrics,
    quota::Quota,
    rules::{Domain, Limit, Rule, Snapshot},
    store::{Store, StoreError, key::Verdicts},
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

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimiterError {
    /// No version of the rules was loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// A store did not decide.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Decides requests by the rules in force.
#[derive(Clone, Debug)]
pub struct Limiter {
    rules: Arc<Snapshot>,
    store: Store,
    modes: Modes,
}

/// What a descriptor is up against.
#[derive(Clone, Copy, Debug)]
enum Target<'r> {
    /// Nothing: no rule matches, or another one of the request replaces it.
    Nothing,
    /// A rule that lets everything pass.
    Unlimited(&'r Arc<Rule>),
    /// A rule's counter.
    Rule { rule: &'r Arc<Rule>, quota: Quota, policy: Policy },
    /// A counter for the limit that the descriptor brought along, and the rule that would apply without it.
    Brought { rule: Option<&'r Arc<Rule>>, quota: Quota, policy: Policy },
}

type Targets<'r> = SmallVec<[Target<'r>; 4]>;
type Statuses = SmallVec<[Status; 4]>;

impl Limiter {
    /// A limiter that enforces whatever `rules` holds at the time, counting in `store`.
    pub const fn new(rules: Arc<Snapshot>, store: Store, modes: Modes) -> Self {
        Self { rules, store, modes }
    }

    /// Decides what a request tells about itself.
    ///
    /// # Errors
    /// [`LimiterError::NoRules`] before the first rules are loaded; [`LimiterError::Store`] when a counter could
    /// not be decided.
    pub async fn decide(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<Decision, LimiterError> {
        let rules = self.rules.load().ok_or(LimiterError::NoRules)?;
        let Some(rules) = rules.domain(domain) else {
            metrics::unknown_domain();
            let statuses = descriptors.iter().map(|_| Status::NoLimit).collect();
            return Ok(Decision { code: Code::Ok, statuses });
        };
        let mut targets: Targets<'_> =
            descriptors.iter().map(|descriptor| target(rules, descriptor)).collect();
        drop_replaced(&mut targets);
        let calls = calls::calls(rules, descriptors, &targets);
        let mut statuses: Statuses = targets.iter().map(status_without_counter).collect();
        let mut failure = None;
        for verdicts in self.store.decide(&calls).await {
            match verdicts {
                Ok(verdicts) => self.fill(&mut statuses, &targets, &verdicts),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        // What was charged counts, though another call may have failed.
        self.count(domain, descriptors, &statuses);
        if let Some(error) = failure {
            return Err(error.into());
        }
        Ok(Decision { code: self.overall(&statuses), statuses })
    }

    /// Puts what the counters said in its place.
    fn fill(&self, statuses: &mut Statuses, targets: &Targets<'_>, verdicts: &Verdicts) {
        for (descriptor, verdict) in verdicts {
            let (rule, quota) = match targets.get(*descriptor) {
                Some(Target::Rule { rule, quota, .. }) => (Some(Arc::clone(rule)), *quota),
                Some(Target::Brought { quota, .. }) => (None, *quota),
                Some(Target::Nothing | Target::Unlimited(_)) | None => continue,
            };
            let is_quota = self.modes.quota || rule.as_ref().is_some_and(|rule| rule.quota_mode);
            if let Some(status) = statuses.get_mut(*descriptor) {
                *status = Status::Limited(Limited { rule, quota, verdict: *verdict, is_quota });
            }
        }
    }

    /// Folds the statuses: over the limit when any that is no quota is, or when all of those that are quotas are.
    fn overall(&self, statuses: &[Status]) -> Code {
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

    fn is_quota(&self, status: &Status) -> bool {
        match status {
            Status::Limited(limited) => limited.is_quota,
            // As in the reference: one that no rule limits is a quota that never runs out.
            Status::NoLimit => self.modes.quota,
            Status::Unlimited => false,
        }
    }

    fn count(&self, domain: &str, descriptors: &[Descriptor<'_>], statuses: &[Status]) {
        for (descriptor, status) in descriptors.iter().zip(statuses) {
            if let Status::Limited(limited) = status {
                metrics::hits(
                    domain,
                    &descriptor.entries,
                    limited,
                    descriptor.hits,
                    self.modes.near_limit_ratio,
                );
            }
        }
    }
}

/// What `descriptor` is up against, before it is known what else the request matches.
fn target<'r>(domain: &'r Domain, descriptor: &Descriptor<'_>) -> Target<'r> {
    let rule = domain.root.rule(&descriptor.entries);
    if let Some(quota) = descriptor.limit {
        let algorithm = rule.and_then(|rule| rule.algorithm()).unwrap_or(domain.default_algorithm);
        let policy = Policy::with_full_burst(algorithm, quota);
        return Target::Brought { rule, quota, policy };
    }
    match rule {
        None => Target::Nothing,
        Some(rule) => match rule.limit {
            Limit::Unlimited => Target::Unlimited(rule),
            Limit::Quota { quota, policy } => Target::Rule { rule, quota, policy },
        },
    }
}

/// Drops every rule whose name another rule of the request replaces, whatever replaces that one in turn.
fn drop_replaced(targets: &mut Targets<'_>) {
    let replaced: SmallVec<[&str; 4]> = targets
        .iter()
        .filter_map(|target| match target {
            Target::Unlimited(rule) | Target::Rule { rule, .. } => Some(*rule),
            Target::Nothing | Target::Brought { .. } => None,
        })
        .flat_map(|rule| rule.replaces.iter().map(|name| &**name))
        .collect();
    if replaced.is_empty() {
        return;
    }
    for target in targets {
        if let Target::Rule { rule, .. } = target
            && replaced.contains(&&*rule.name)
        {
            *target = Target::Nothing;
        }
    }
}

fn status_without_counter(target: &Target<'_>) -> Status {
    match target {
        Target::Unlimited(_) => Status::Unlimited,
        Target::Nothing | Target::Rule { .. } | Target::Brought { .. } => Status::NoLimit,
    }
}
