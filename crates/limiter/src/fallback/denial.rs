//! Denials by the policy of a limit, without a count.

use std::time::Duration;

use tollgate_core::{algorithm::Verdict, clock::Timestamp, descriptor::Hits};
use tollgate_store::request::{Check, TagRequest, Veto};

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
        remaining: 0,
        reset_after: after,
        retry_after: after,
        used: 0,
        decaying: 0,
        held: 0,
        over: if admitted { 0 } else { check.hits.charged() },
        decided_at: Timestamp::from_micros(0),
        ban: None,
    }
}
