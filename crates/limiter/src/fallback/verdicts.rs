//! Verdicts of the `on_store_error` policies.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate_core::algorithm::{Charging, Policy, Verdict};
use tollgate_core::{clock::Timestamp, descriptor::Hits};
use tollgate_store::request::{Check, TagRequest, Verdicts, Veto};
use tollgate_store::{Decisions, StoreError};

use crate::{Requests, decision::Degraded, refund};

/// Verdicts substituted for a failed store.
#[derive(Debug, Default)]
pub(crate) struct FallbackVerdicts {
    /// Substituted verdicts of counters.
    pub(crate) verdicts: SmallVec<[Verdicts; 1]>,
    /// Requests to the local store, and its decisions.
    pub(super) local_requests: Requests,
    pub(super) local_decisions: Decisions,
    /// The error of a request that a limit's policy makes fail.
    pub(crate) failure: Option<StoreError>,
    pub(crate) degraded: Option<Degraded>,
}

impl FallbackVerdicts {
    /// Decides a check by `verdict`. Returns whether it keeps the others of its call from being charged.
    pub(super) fn substitute(&mut self, check: &Check, verdict: Verdict) -> bool {
        let is_veto = vetoes(check, &verdict);
        self.verdicts.push(Verdicts::from_iter([(check.descriptor, verdict)]));
        is_veto
    }

    /// Whether the local store was called for a descriptor: then a refund was made there, presumably of a charge made
    /// there.
    pub(crate) fn has_counted(&self, descriptor: usize) -> bool {
        self.local_requests.iter().flat_map(TagRequest::checks).any(|check| check.descriptor == descriptor)
    }

    /// The share that admitted the hits of a descriptor, and how it was charged.
    pub(super) fn passed(&self, descriptor: usize) -> Option<(Policy, Charging)> {
        self.local_requests.iter().zip(&self.local_decisions).find_map(|(call, decision)| {
            let verdicts = decision.as_ref().ok()?;
            let mut checks = call.checks().zip(verdicts);
            let (check, (_, verdict)) = checks.find(|(check, _)| check.descriptor == descriptor)?;
            let is_charged = verdict.admitted && !refund::is_vetoed(call, verdicts);
            let is_counted = !check.policy.algorithm().takes_leases();
            (is_charged && is_counted).then_some((check.policy, call.charging_across_calls()))
        })
    }

    /// The requests to the local store, if they acquired permits that are still held.
    pub(crate) fn with_permits(&self) -> Option<&Requests> {
        refund::holds_permits(&self.local_requests, &self.local_decisions).then_some(&self.local_requests)
    }
}

/// Retry time of a client that was denied without a count.
const DENIED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether a call reserves hits of budgets.
pub(super) fn reserves(call: &TagRequest) -> bool {
    call.checks().any(|check| check.policy.is_budget() && matches!(check.hits, Hits::Acquire { .. }))
}

/// Whether a denial without a count keeps the other limits of the call from being charged.
pub(super) fn vetoes(check: &Check, verdict: &Verdict) -> bool {
    !verdict.admitted && matches!(check.effective_veto(), Veto::Alone | Veto::Counted)
}

/// The limits of a call that the local store decides beside one that denies: none of them is charged.
pub(super) fn vetoed(mut call: TagRequest) -> TagRequest {
    let checks = call.cells.iter_mut().flat_map(|cell| &mut cell.checks);
    checks.for_each(|check| check.veto = Veto::Always);
    call
}

/// Verdict of a counter whose policy is to deny. A refund or a release is never denied.
pub(super) fn denied(check: &Check) -> Verdict {
    let admitted = check.hits.is_refund();
    let after = if admitted { Duration::ZERO } else { DENIED_RETRY_AFTER };
    Verdict {
        admitted,
        reset_after: after,
        retry_after: after,
        over: if admitted { 0 } else { check.hits.charged() },
        ..Verdict::empty(Timestamp::from_micros(0))
    }
}
