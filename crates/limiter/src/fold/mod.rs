//! Fold of the verdicts on limits into statuses, and of these into the decision of a request.
//!
//! Each of several limits of a descriptor has a status of its own. The descriptor's status is that of the strictest one.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use tollgate_core::algorithm::Verdict;
use tollgate_store::{Decisions, StoreError};

use crate::decision::{Code, Decision, Limited, Status};
use crate::plan::{Match, Plan, PlannedLimits};
use crate::{Modes, fallback::FallbackVerdicts, shadow_mode};

/// Decisions of the store on the calls of a plan, and those of the fallback on what it did not decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided<'a> {
    pub(super) decisions: &'a Decisions,
    pub(super) degraded: Option<&'a FallbackVerdicts>,
}

impl<'a> Decided<'a> {
    /// The error of a request that a limit which was not decided makes fail.
    fn failure(&self) -> Option<&'a StoreError> {
        match self.degraded {
            Some(degraded) => degraded.failure.as_ref(),
            None => self.decisions.iter().find_map(|decision| decision.as_ref().err()),
        }
    }
}

pub(super) type Statuses<'r> = SmallVec<[Status<'r>; 2]>;

/// Returns the status of each limit of a plan.
pub(super) fn statuses<'r>(plan: &Plan<'r, '_>, decided: Decided<'_>, modes: Modes) -> Statuses<'r> {
    let limits = &plan.limits;
    let mut statuses: Statuses<'r> =
        limits.iter().map(|limit| limit.matched.status_without_counter()).collect();
    let in_store = decided.decisions.iter().flatten().map(|verdicts| (verdicts, false));
    let degraded = decided.degraded.iter().flat_map(|degraded| &degraded.verdicts);
    for (verdicts, is_degraded) in in_store.chain(degraded.map(|verdicts| (verdicts, true))) {
        for (at, verdict) in verdicts {
            if let (Some(limit), Some(status)) = (limits.get(*at), statuses.get_mut(*at))
                && let Some(limited) = limited(&limit.matched, verdict, is_degraded, modes)
            {
                *status = Status::Limited(limited);
            }
        }
    }
    statuses
}

fn limited<'r>(
    matched: &Match<'r>,
    verdict: &Verdict,
    is_degraded: bool,
    modes: Modes,
) -> Option<Limited<'r>> {
    let (counter, rule) = (matched.counter()?, matched.rule());
    Some(Limited {
        rule,
        quota: counter.quota,
        algorithm: counter.policy.algorithm(),
        verdict: *verdict,
        is_quota: modes.quota || rule.is_some_and(|rule| rule.quota_mode),
        is_shadow: matched.is_shadow(),
        is_degraded,
        several: Box::default(),
    })
}

/// Folds the statuses of the limits into the request's decision.
///
/// # Errors
/// When a limit that was not decided makes the request fail. A limit that denies suffices, whatever the verdict of the
/// failed ones would have been.
pub(super) fn decision<'r>(
    plan: &Plan<'r, '_>,
    decided: Decided<'_>,
    statuses: Statuses<'r>,
    modes: Modes,
) -> Result<Decision<'r>, StoreError> {
    let statuses = of_descriptors(&plan.limits, statuses);
    let code = code(&statuses, modes);
    if let Some(error) = decided.failure()
        && !is_denied(&statuses, modes)
    {
        return Err(error.clone());
    }
    let degraded = decided.degraded.and_then(|degraded| degraded.degraded);
    Ok(Decision { code, degraded, listed: plan.listed, shed: plan.shed, statuses })
}

/// Returns the status of each descriptor, given those of its limits.
fn of_descriptors<'r>(limits: &PlannedLimits<'_, '_>, statuses: Statuses<'r>) -> Statuses<'r> {
    if !limits.iter().any(|limit| limit.is_extra) {
        return statuses;
    }
    let mut statuses = statuses.into_iter();
    let of_each = limits.chunk_by(|_, next| next.is_extra);
    of_each.filter_map(|limits| strictest(statuses.by_ref().take(limits.len()))).collect()
}

/// The status of the strictest limit of a descriptor, with all of its limits if it has several.
fn strictest<'r>(limits: impl Iterator<Item = Status<'r>>) -> Option<Status<'r>> {
    let limits: SmallVec<[Status<'r>; 4]> = limits.collect();
    let several = match &*limits {
        [_] => Box::default(),
        several => several.iter().filter_map(Status::limited).cloned().collect(),
    };
    let mut strictest = limits.into_iter().reduce(stricter)?;
    if let Status::Limited(limited) = &mut strictest {
        limited.several = several;
    }
    Some(strictest)
}

/// The stricter of two statuses; the first one of equal ones.
fn stricter<'r>(one: Status<'r>, other: Status<'r>) -> Status<'r> {
    let is_other = match (one.limited(), other.limited()) {
        (Some(one), Some(other)) => is_stricter(other, one),
        (None, Some(_)) => one.code() == Code::Ok,
        (_, None) => false,
    };
    if is_other { other } else { one }
}

/// Whether a limit is stricter than another one: it denies, for longer, or has fewer hits left.
fn is_stricter(limit: &Limited<'_>, other: &Limited<'_>) -> bool {
    match (limit.code(), other.code()) {
        (Code::OverLimit, Code::OverLimit) => limit.until_reset() > other.until_reset(),
        (Code::OverLimit, Code::Ok) => true,
        (Code::Ok, Code::OverLimit) => false,
        (Code::Ok, Code::Ok) => limit.verdict.remaining < other.verdict.remaining,
    }
}

/// Folds the statuses of the descriptors: over the limit if any limit that is no quota is, or if all quotas are.
pub(super) fn code(statuses: &[Status<'_>], modes: Modes) -> Code {
    let (mut quotas, mut exhausted, mut denied) = (0_usize, 0_usize, false);
    for status in statuses {
        let is_over = status.code() == Code::OverLimit;
        if is_quota(status, modes) {
            quotas = quotas.saturating_add(1);
            exhausted = exhausted.saturating_add(usize::from(is_over));
        } else {
            denied |= is_over;
        }
    }
    let is_denied = denied || (quotas > 0 && exhausted == quotas);
    if is_denied && !shadow_mode::passes(modes) { Code::OverLimit } else { Code::Ok }
}

/// Whether a limit denies the request by itself.
fn is_denied(statuses: &[Status<'_>], modes: Modes) -> bool {
    let denies = |status: &Status<'_>| status.code() == Code::OverLimit && !is_quota(status, modes);
    !modes.shadow && statuses.iter().any(denies)
}

fn is_quota(status: &Status<'_>, modes: Modes) -> bool {
    match status {
        Status::Limited(limited) => limited.is_quota,
        // As in envoyproxy/ratelimit: a descriptor without a rule is a quota that is never exhausted.
        Status::NoLimit => modes.quota,
        // A rule that is switched off must not make other limits deny: removing it would not either.
        Status::Off { is_quota } => modes.quota || *is_quota,
        Status::Unlimited | Status::Denied | Status::Shedding(_) => false,
    }
}
