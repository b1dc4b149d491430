//! Fold of the verdicts into statuses, and of these into the decision of a request.

use tollgate_store::{Decisions, request::Verdicts};

use crate::{
    Limiter, Match, Matches,
    decide::Statuses,
    decision::{Code, Limited, Status},
    fallback::FallbackVerdicts,
    metrics,
};

impl Limiter {
    /// Returns the status of each descriptor.
    pub(super) fn statuses<'r>(
        &self,
        matches: &Matches<'r>,
        decisions: &Decisions,
        degraded: Option<&FallbackVerdicts>,
    ) -> Statuses<'r> {
        let mut statuses = matches.iter().map(Match::status_without_counter).collect();
        let decided = decisions.iter().filter_map(|decision| decision.as_ref().ok());
        let substituted = degraded.into_iter().flat_map(|degraded| &degraded.verdicts);
        decided.for_each(|verdicts| self.fill(&mut statuses, matches, verdicts, false));
        substituted.for_each(|verdicts| self.fill(&mut statuses, matches, verdicts, true));
        statuses
    }

    /// Sets the status of each descriptor whose counter has a verdict.
    fn fill<'r>(
        &self,
        statuses: &mut Statuses<'r>,
        matches: &Matches<'r>,
        verdicts: &Verdicts,
        is_degraded: bool,
    ) {
        for (descriptor, verdict) in verdicts {
            let Some(matched) = matches.get(*descriptor) else { continue };
            let Some(counter) = matched.counter() else { continue };
            let rule = matched.rule();
            if let Some(status) = statuses.get_mut(*descriptor) {
                *status = Status::Limited(Limited {
                    rule,
                    quota: counter.quota,
                    algorithm: counter.policy.algorithm(),
                    verdict: *verdict,
                    is_quota: self.modes.quota || rule.is_some_and(|rule| rule.quota_mode),
                    is_shadow: matched.is_shadow(),
                    is_degraded,
                });
            }
        }
    }

    /// Whether a limit denies the request by itself.
    pub(super) fn is_denied(&self, statuses: &[Status<'_>]) -> bool {
        let denies = |status: &Status<'_>| status.code() == Code::OverLimit && !self.is_quota(status);
        !self.modes.shadow && statuses.iter().any(denies)
    }

    /// Folds the statuses: over the limit if any limit that is no quota is, or if all quotas are.
    pub(super) fn overall(&self, statuses: &[Status<'_>]) -> Code {
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
                metrics::SHADOW_MODE_PASSES.increment(0);
                Code::Ok
            }
            true => Code::OverLimit,
            false => Code::Ok,
        }
    }

    fn is_quota(&self, status: &Status<'_>) -> bool {
        match status {
            Status::Limited(limited) => limited.is_quota,
            // As in envoyproxy/ratelimit: a descriptor without a rule is a quota that is never exhausted.
            Status::NoLimit => self.modes.quota,
            // A rule that is switched off must not make other limits deny: removing it would not either.
            Status::Off { is_quota } => self.modes.quota || *is_quota,
            Status::Unlimited | Status::Denied | Status::Shedding(_) => false,
        }
    }
}
