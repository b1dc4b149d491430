//! Verdicts of the `on_store_error` policies.

use smallvec::SmallVec;
use tollgate_core::algorithm::{Charging, Policy, Verdict};
use tollgate_store::{
    Decisions, StoreError,
    request::{Check, TagRequest, Verdicts},
};

use super::denial::vetoes;
use crate::{Requests, refund, verdict::Degraded};

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
