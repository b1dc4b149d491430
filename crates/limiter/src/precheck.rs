//! Trial of all hash tags before charging, where a refund would not fully undo a charge.
//!
//! A bucket that refills cannot be refunded exactly: tokens that were refilled since the charge may have been meant for
//! other requests. If requests span tags and one tag is exhausted, repeated charges and refunds would drain a bucket in
//! another tag by requests that never pass. So all tags are tried first, and charged only if the request would pass:
//! no limit denies it, and not all of its quotas do, wherever they are. The trial costs a round trip, which a hash tag
//! shared by the limits saves.

use std::ptr;

use tokio::time::Instant;
use tollgate_core::{
    algorithm::{Algorithm, Charging},
    descriptor::Hits,
};
use tollgate_store::{
    Decisions, Store,
    request::{Check, TagRequest, Verdicts, Veto},
};

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
    let trials: Requests = calls.iter().map(TagRequest::trial).collect();
    let tried = store.decide(&trials, deadline).await;
    if !is_denied(calls, &tried) {
        return store.decide(calls, deadline).await;
    }
    calls.iter_mut().for_each(make_peek);
    match calls.iter().any(has_overdraft) {
        true => charge_overdrafts(store, calls, tried, deadline).await,
        false => tried,
    }
}

/// Makes the charges beyond the limit of a denied request, which no denial withholds. Returns the decisions on these, and
/// of the trials on the other checks.
async fn charge_overdrafts(
    store: &Store,
    calls: &Requests,
    tried: Decisions,
    deadline: Option<Instant>,
) -> Decisions {
    let charged = store.decide(calls, deadline).await;
    let decisions = calls.iter().zip(tried).zip(charged);
    let merge = |((call, tried), charged): ((&TagRequest, _), _)| match (tried, charged) {
        (tried, _) if !has_overdraft(call) => tried,
        (Ok(tried), Ok(charged)) => {
            let verdicts = call.checks().zip::<Verdicts>(tried).zip::<Verdicts>(charged);
            let verdicts = verdicts.map(
                |((check, tried), charged)| {
                    if check.hits.is_overdraft() { charged } else { tried }
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

/// Whether a request with these calls is denied, given the decisions of their trials. A check without a decision may
/// pass.
fn is_denied(calls: &Requests, tried: &Decisions) -> bool {
    let outcomes = calls.iter().zip(tried).flat_map(|(call, tried)| {
        call.checks().enumerate().map(move |(at, check)| {
            let verdict = tried.as_ref().ok().and_then(|verdicts| verdicts.get(at));
            (check.effective_veto(), verdict.is_none_or(|(_, verdict)| verdict.admitted))
        })
    });
    Veto::is_any(outcomes.map(|(veto, passes)| match veto {
        Veto::AcrossTags => (Veto::WithQuotas, passes),
        veto => (veto, passes),
    }))
}

/// Whether a bucket is charged all or none with a counter of another tag that may deny. A refund is made exactly once
/// whether or not the request passes, so a request with one is not tried.
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

/// Makes the call a read, as which its trial counts, except for charges beyond the limit.
fn make_peek(call: &mut TagRequest) {
    let checks = call.cells.iter_mut().flat_map(|cell| &mut cell.checks);
    checks.filter(|check| !check.hits.is_overdraft()).for_each(|check| check.hits = Hits::Peek);
}
