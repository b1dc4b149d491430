//! From what each descriptor came to, to what the request does.

use super::Limiter;
use super::metrics;
use crate::verdict::{Code, Status};

impl Limiter {
    /// Whether a limit denies the request by itself.
    pub(super) fn is_denied(&self, statuses: &[Status<'_>]) -> bool {
        let denies = |status: &Status<'_>| status.code() == Code::OverLimit && !self.is_quota(status);
        !self.modes.shadow && statuses.iter().any(denies)
    }

    /// Folds the statuses: over the limit when any that is no quota is, or when all of those that are quotas are.
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
            // As in the reference: one that no rule limits is a quota that never runs out.
            Status::NoLimit => self.modes.quota,
            // Switched off, it is not to make others deny: removing the rule would not either.
            Status::Off { is_quota } => self.modes.quota || *is_quota,
            Status::Unlimited | Status::Denied => false,
        }
    }
}
