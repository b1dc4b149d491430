//! Fold of the statuses into the decision of a request.

use crate::{
    Limiter, metrics,
    verdict::{Code, Status},
};

impl Limiter {
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
                metrics::shadow_mode_pass();
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
