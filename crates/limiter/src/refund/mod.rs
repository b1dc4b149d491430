//! Taking back what a request charged that does not pass after all.
//!
//! A place of a concurrency limit is always taken back: nobody was told the lease's name. Other charges are where
//! they are made all or none, when another tag denies what this one charged.

use std::num::NonZeroU64;

use super::Requests;
use tollgate_core::{
    algorithm::{Charging, Verdict},
    descriptor::Hits,
};
use tollgate_store::{
    Decisions, StoreError,
    request::{Cell, Check, TagRequest, Verdicts, push_check},
};

/// What takes back all that `calls` charged. Where it is not known whether a place was taken, it is given up.
pub(super) fn undo(calls: &Requests, decisions: &Decisions) -> Requests {
    let mut undone = Requests::new();
    for (call, decision) in calls.iter().zip(decisions) {
        for (at, (cell, ask)) in call.checks_with_cells().enumerate() {
            let hits = match decision {
                Ok(verdicts) => verdicts.get(at).and_then(|(_, verdict)| {
                    let was_charged = verdict.admitted && !is_vetoed(call, verdicts);
                    was_charged.then(|| reverse(call.charging, ask.hits, verdict)).flatten()
                }),
                // Nothing was taken.
                Err(error) if error.charged_nothing() => None,
                Err(_) => release_of(ask.hits),
            };
            if let Some(hits) = hits {
                push_check(&mut undone, Charging::Independent, cell.key.clone(), Check { hits, ..*ask });
            }
        }
    }
    undone
}

/// What the store missed of `calls` and is to be told later: places given back, which may be done twice, and those
/// refunds that are `refunded` if it is known that they were not made.
pub(super) fn missed(calls: &Requests, decisions: &Decisions, refunded: impl Fn(&Check) -> bool) -> Requests {
    let failed =
        calls.iter().zip(decisions).filter_map(|(call, decision)| Some((call, decision.as_ref().err()?)));
    let checks = failed.flat_map(|(call, error)| call.checks_with_cells().map(move |ask| (ask, error)));
    let missed = checks.filter(|((_, ask), error)| match ask.hits {
        Hits::Release(_) => true,
        Hits::Refund(_) => error.charged_nothing() && refunded(ask),
        Hits::Peek | Hits::Charge(_) | Hits::RefundCharge { .. } | Hits::Acquire { .. } => false,
    });
    each_for_itself(missed.map(|(ask, _)| ask), |ask| Some(ask.hits))
}

/// What gives up the places that `calls` ask for.
pub(super) fn releases<'a>(calls: impl Iterator<Item = &'a TagRequest>) -> Requests {
    each_for_itself(calls.flat_map(TagRequest::checks_with_cells), |ask| release_of(ask.hits))
}

/// What gives up places of which nobody knows whether they were taken, and whose lease nobody is told.
pub(super) fn uncertain(calls: &Requests, decisions: &Decisions) -> Requests {
    let is_uncertain = |decision: &Result<Verdicts, StoreError>| {
        decision.as_ref().is_err_and(|error| !error.charged_nothing())
    };
    releases(calls.iter().zip(decisions).filter(|(_, decision)| is_uncertain(decision)).map(|(call, _)| call))
}

/// Calls that ask the same counters for something else, each for itself, or not at all.
pub(super) fn each_for_itself<'a>(
    checks: impl Iterator<Item = (&'a Cell, &'a Check)>,
    hits: impl Fn(&Check) -> Option<Hits>,
) -> Requests {
    let mut calls = Requests::new();
    for (cell, ask) in checks {
        if let Some(hits) = hits(ask) {
            push_check(&mut calls, Charging::Independent, cell.key.clone(), Check { hits, ..*ask });
        }
    }
    calls
}

/// Whether the calls took a place that is still held.
pub(super) fn holds_lease(calls: &Requests, decisions: &Decisions) -> bool {
    calls.iter().zip(decisions).any(|(call, decision)| {
        decision.as_ref().is_ok_and(|verdicts| {
            let admitted = call.checks().zip(verdicts).filter(|(_, (_, verdict))| verdict.admitted);
            !is_vetoed(call, verdicts) && admitted.filter_map(|(ask, _)| release_of(ask.hits)).count() > 0
        })
    })
}

/// Whether a denial kept the call's charges from being made.
pub(super) fn is_vetoed(call: &TagRequest, verdicts: &Verdicts) -> bool {
    call.charging == Charging::AllOrNone
        && call.checks().zip(verdicts).any(|(ask, (_, verdict))| ask.is_veto() && !verdict.admitted)
}

/// What takes back a charge that was made.
fn reverse(charging: Charging, hits: Hits, verdict: &Verdict) -> Option<Hits> {
    let made_at = verdict.decided_at;
    match charging {
        Charging::AllOrNone => release_of(hits)
            .or_else(|| NonZeroU64::new(hits.charged()).map(|amount| Hits::RefundCharge { amount, made_at })),
        Charging::Independent => release_of(hits),
    }
}

/// What gives up the place that was asked for.
pub(super) const fn release_of(hits: Hits) -> Option<Hits> {
    match hits {
        Hits::Acquire { lease, .. } => Some(Hits::Release(lease)),
        Hits::Peek | Hits::Charge(_) | Hits::Refund(_) | Hits::RefundCharge { .. } | Hits::Release(_) => None,
    }
}

#[cfg(test)]
mod tests;
