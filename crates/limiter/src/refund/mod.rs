//! Refunds the charges of a request that does not pass after all.
//!
//! Permits of a concurrency limit are always released: the caller never received the lease's name. Other charges are
//! refunded only where counters are charged all or none, when another tag denies the request.

use std::num::NonZeroU64;

use tollgate_core::algorithm::{Charging, Verdict};
use tollgate_core::descriptor::Hits;
use tollgate_store::request::{Cell, Check, TagRequest, Verdicts, push_check};
use tollgate_store::{Decisions, StoreError};

use super::Requests;

/// Returns requests that refund all charges of `calls`. Permits are released even if it is unknown whether they were
/// acquired.
pub(super) fn refunds(calls: &Requests, decisions: &Decisions) -> Requests {
    let mut refunds = Requests::new();
    for (call, decision) in calls.iter().zip(decisions) {
        for (at, (cell, check)) in call.checks_with_cells().enumerate() {
            let hits = match decision {
                Ok(verdicts) => verdicts.get(at).and_then(|(_, verdict)| {
                    let was_charged = verdict.admitted && !is_vetoed(call, verdicts);
                    was_charged.then(|| reverse(call.charging_across_calls(), check.hits, verdict)).flatten()
                }),
                // Nothing was charged.
                Err(error) if error.charged_nothing() => None,
                Err(_) => release(check.hits),
            };
            if let Some(hits) = hits {
                push_check(&mut refunds, Charging::Independent, cell.key.clone(), Check { hits, ..*check });
            }
        }
    }
    refunds
}

/// Returns the requests among failed `calls` that are to be sent again later: releases, which may be repeated, and if
/// certainly not made yet, those refunds and charges beyond the limit that are still due.
pub(super) fn missed(calls: &Requests, decisions: &Decisions, is_due: impl Fn(&Check) -> bool) -> Requests {
    let failed =
        calls.iter().zip(decisions).filter_map(|(call, decision)| Some((call, decision.as_ref().err()?)));
    let checks = failed.flat_map(|(call, error)| call.checks_with_cells().map(move |check| (check, error)));
    let missed = checks.filter(|((_, check), error)| match check.hits {
        Hits::Release(_) | Hits::Settle { .. } => true,
        Hits::Refund(_) | Hits::Overdraw(_) => error.charged_nothing() && is_due(check),
        Hits::Peek | Hits::Charge(_) | Hits::RefundCharge { .. } | Hits::Acquire { .. } => false,
    });
    independent(missed.map(|(check, _)| check), |check| Some(check.hits))
}

/// Returns requests that release the permits that `calls` acquire.
pub(super) fn releases<'a>(calls: impl Iterator<Item = &'a TagRequest>) -> Requests {
    independent(calls.flat_map(TagRequest::checks_with_cells), |check| release(check.hits))
}

/// Returns requests that release permits which may have been acquired by a call that failed: the caller does not
/// receive their lease.
pub(super) fn uncertain_releases(calls: &Requests, decisions: &Decisions) -> Requests {
    let is_uncertain = |decision: &Result<Verdicts, StoreError>| {
        decision.as_ref().is_err_and(|error| !error.charged_nothing())
    };
    releases(calls.iter().zip(decisions).filter(|(_, decision)| is_uncertain(decision)).map(|(call, _)| call))
}

/// Returns requests to the same counters with other hits, charged independently; those without hits are omitted.
pub(super) fn independent<'a>(
    checks: impl Iterator<Item = (&'a Cell, &'a Check)>,
    hits: impl Fn(&Check) -> Option<Hits>,
) -> Requests {
    let mut calls = Requests::new();
    for (cell, check) in checks {
        if let Some(hits) = hits(check) {
            push_check(&mut calls, Charging::Independent, cell.key.clone(), Check { hits, ..*check });
        }
    }
    calls
}

/// Whether the calls acquired a permit that is still held.
pub(super) fn holds_permits(calls: &Requests, decisions: &Decisions) -> bool {
    calls.iter().zip(decisions).any(|(call, decision)| {
        decision.as_ref().is_ok_and(|verdicts| {
            let admitted = call.checks().zip(verdicts).filter(|(_, (_, verdict))| verdict.admitted);
            !is_vetoed(call, verdicts) && admitted.filter_map(|(check, _)| release(check.hits)).count() > 0
        })
    })
}

/// Whether a denial prevented the call's charges.
pub(super) fn is_vetoed(call: &TagRequest, verdicts: &Verdicts) -> bool {
    call.is_vetoed(verdicts.iter().map(|(_, verdict)| verdict.admitted))
}

/// Hits that refund a charge.
fn reverse(charging: Charging, hits: Hits, verdict: &Verdict) -> Option<Hits> {
    let made_at = verdict.decided_at;
    match charging {
        // Counts whether or not the request passes.
        _ if hits.is_overdraft() => None,
        Charging::AllOrNone => release(hits)
            .or_else(|| NonZeroU64::new(hits.charged()).map(|amount| Hits::RefundCharge { amount, made_at })),
        Charging::Independent => release(hits),
    }
}

/// Hits that release the permits of an acquisition.
pub(super) const fn release(hits: Hits) -> Option<Hits> {
    match hits {
        Hits::Acquire { lease, .. } => Some(Hits::Release(lease)),
        Hits::Peek
        | Hits::Charge(_)
        | Hits::Overdraw(_)
        | Hits::Refund(_)
        | Hits::RefundCharge { .. }
        | Hits::Release(_)
        | Hits::Settle { .. } => None,
    }
}

#[cfg(test)]
mod tests;
