//! Precheck: reads all hash tags before charging, where a refund would not fully undo a charge.
//!
//! A bucket that refills cannot be refunded exactly: tokens that were refilled since the charge may have been meant for
//! other requests. If requests span tags and one tag is exhausted, repeated charges and refunds would drain a bucket in
//! another tag by requests that never pass. So all tags are read first, and charged only if the request would pass:
//! no limit denies it, and not all of its quotas do, wherever they are. The precheck costs a round trip, which a hash tag
//! shared by the limits saves.

use std::ptr;

use tokio::time::Instant;
use tollgate_core::algorithm::{Algorithm, Charging};
use tollgate_core::descriptor::Hits;
use tollgate_store::request::{Check, TagRequest, Verdicts, Veto};
use tollgate_store::{Decisions, Store};

use super::Requests;

/// Decides calls until `deadline`. Leaves in `calls` the requests that were made, in the order of the decisions.
pub(super) async fn decide(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    if !is_needed(calls) {
        return store.decide(calls, deadline).await;
    }
    // Boxed, so that the future of the common case stays small.
    Box::pin(precheck(store, calls, deadline)).await
}

async fn precheck(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    let prechecks: Requests = calls.iter().map(TagRequest::precheck).collect();
    let prechecked = store.decide(&prechecks, deadline).await;
    if !is_denied(calls, &prechecked) {
        return store.decide(calls, deadline).await;
    }
    // Reads, as which their prechecks count, except for charges beyond the limit.
    let checks = calls.iter_mut().flat_map(|call| &mut call.cells).flat_map(|cell| &mut cell.checks);
    checks.filter(|check| !check.hits.is_overdraft()).for_each(|check| check.hits = Hits::Peek);
    if calls.iter().any(has_overdraft) {
        charge_overdrafts(store, calls, prechecked, deadline).await
    } else {
        prechecked
    }
}

/// Makes the charges beyond the limit of a denied request, which no denial withholds. Returns the decisions on these, and
/// of the precheck on the other checks.
async fn charge_overdrafts(
    store: &Store,
    calls: &Requests,
    prechecked: Decisions,
    deadline: Option<Instant>,
) -> Decisions {
    let charged = store.decide(calls, deadline).await;
    let decisions = calls.iter().zip(prechecked).zip(charged);
    let merge = |((call, prechecked), charged): ((&TagRequest, _), _)| match (prechecked, charged) {
        (prechecked, _) if !has_overdraft(call) => prechecked,
        (Ok(prechecked), Ok(charged)) => {
            let verdicts = call.checks().zip::<Verdicts>(prechecked).zip::<Verdicts>(charged);
            let verdicts = verdicts.map(
                |((check, prechecked), charged)| {
                    if check.hits.is_overdraft() { charged } else { prechecked }
                },
            );
            Ok(verdicts.collect())
        }
        (_, charged) => charged,
    };
    decisions.map(merge).collect()
}

fn has_overdraft(call: &TagRequest) -> bool {
    call.checks().any(|check| check.hits.is_overdraft())
}

/// Whether a request with these calls is denied, given the decisions of their prechecks. A check without a decision may
/// pass.
fn is_denied(calls: &Requests, prechecked: &Decisions) -> bool {
    let outcomes = calls.iter().zip(prechecked).flat_map(|(call, prechecked)| {
        call.checks().enumerate().map(move |(at, check)| {
            let verdict = prechecked.as_ref().ok().and_then(|verdicts| verdicts.get(at));
            (check.effective_veto(), verdict.is_none_or(|(_, verdict)| verdict.admitted))
        })
    });
    Veto::is_any(outcomes.map(|(veto, passes)| match veto {
        Veto::AcrossTags => (Veto::WithQuotas, passes),
        veto => (veto, passes),
    }))
}

/// Whether a bucket is charged all or none with a counter of another tag that may deny. A refund is made exactly once
/// whether or not the request passes, so a request with one has no precheck.
fn is_needed(calls: &Requests) -> bool {
    if calls.len() < 2 || calls.iter().flat_map(TagRequest::checks).any(|check| check.hits.is_refund()) {
        return false;
    }
    let is_bucket =
        |check: &Check| check.policy.algorithm() == Algorithm::TokenBucket && check.hits.charged() > 0;
    let may_deny = |call: &TagRequest| call.checks().any(|check| check.veto != Veto::Never);
    calls
        .iter()
        .filter(|call| call.charging_across_calls() == Charging::AllOrNone && call.checks().any(is_bucket))
        .any(|call| calls.iter().any(|other| !ptr::eq(call, other) && may_deny(other)))
}
