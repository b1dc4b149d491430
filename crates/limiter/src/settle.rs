//! Settlement of a request: what becomes of its charges and permits after its decision.

use std::sync::Arc;

use tollgate_store::{StoreError, request::Check};

use crate::decision::{Code, Decision};
use crate::{HeldPermits, Limiter, Requests, fallback::FallbackVerdicts, fold::Decided, refund};

impl Limiter {
    /// Refunds the charges of a request that does not pass, makes those that the store did not make later, and returns the
    /// permits that the request holds if it passes.
    pub(super) fn settle(
        &self,
        calls: &Requests,
        permits: Option<HeldPermits>,
        decided: Decided<'_>,
        decision: &Result<Decision<'_>, StoreError>,
    ) -> Option<HeldPermits> {
        let Decided { decisions, degraded } = decided;
        let passes = decision.as_ref().is_ok_and(|decision| decision.code == Code::Ok);
        // What a caller named may be reserved by another attempt of it too.
        if !passes && self.lease.is_none() {
            self.store.refund_in_background(refund::refunds(calls, decisions));
            self.fallback.iter().zip(degraded).for_each(|(fallback, degraded)| fallback.refund(degraded));
        }
        if decisions.iter().any(Result::is_err) {
            self.settle_failed_calls(calls, decided, passes, decision.is_err());
        }
        self.settle_permits(calls, permits, decided, passes)
    }

    /// Makes the refunds and charges later that the store did not make.
    fn settle_failed_calls(
        &self,
        calls: &Requests,
        Decided { decisions, degraded }: Decided<'_>,
        passes: bool,
        is_failure: bool,
    ) {
        // A caller that gets an error may repeat the refund itself.
        let is_due = |check: &Check| {
            // A charge beyond the limit was spent before; the local store only decides meanwhile.
            let is_made = |degraded: &FallbackVerdicts| {
                degraded.has_counted(check.descriptor) && !check.hits.is_overdraft()
            };
            !is_failure && degraded.is_some_and(|degraded| !is_made(degraded))
        };
        self.store.refund_in_background(refund::missed(calls, decisions, is_due));
        if let (Some(fallback), Some(degraded)) = (&self.fallback, degraded) {
            fallback.defer(degraded, calls, decisions, !passes);
            let rules = Arc::clone(&self.rules);
            let is_allowed = move || rules.lists().emergencies.is_empty();
            fallback.correct_late(&self.store, degraded, calls, decisions, !passes, is_allowed.clone());
            fallback.send_deferred(&self.store, is_allowed);
        }
    }

    /// Returns the permits that the request holds, if it passes, and otherwise releases them.
    fn settle_permits(
        &self,
        calls: &Requests,
        permits: Option<HeldPermits>,
        Decided { decisions, degraded }: Decided<'_>,
        passes: bool,
    ) -> Option<HeldPermits> {
        if let Some(permits) = permits {
            let held_locally = degraded.and_then(FallbackVerdicts::with_permits);
            if passes && (held_locally.is_some() || refund::holds_permits(calls, decisions)) {
                if let (Some(fallback), Some(calls)) = (&self.fallback, held_locally) {
                    permits.add_store(fallback.local(), calls);
                }
                return Some(permits);
            }
            // Everything that has to be released was, or is below.
            permits.hand_over();
        }
        if passes && self.lease.is_none() && decisions.iter().any(Result::is_err) {
            self.store.refund_in_background(refund::uncertain_releases(calls, decisions));
        }
        None
    }
}
