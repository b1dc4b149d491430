//! Read-only check of all hash tags before charging, where a refund would not fully undo a charge.
//!
//! A bucket that refills cannot be refunded exactly: tokens that were refilled since the charge may have been meant for
//! other requests. If requests span tags and one tag is exhausted, repeated charges and refunds would drain a bucket in
//! another tag by requests that never pass. So all tags are checked first, and tags with room are charged only if every
//! tag has room. The check costs a round trip, which a hash tag shared by the limits saves.

use std::mem;

use tokio::time::Instant;
use tollgate_core::{
    algorithm::{Algorithm, Charging},
    descriptor::Hits,
};
use tollgate_store::{
    Decisions, Store,
    request::{TagRequest, Verdicts},
};

use super::{Requests, refund::is_vetoed};

/// Decides calls until `deadline`. Leaves in `calls` the requests that were made, in the order of the decisions.
pub(super) async fn decide(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    if !is_needed(calls) {
        return store.decide(calls, deadline).await;
    }
    // Boxed, so that the future of the common case stays small.
    let (made, decisions) = Box::pin(precheck(store, mem::take(calls), deadline)).await;
    *calls = made;
    decisions
}

async fn precheck(store: &Store, calls: Requests, deadline: Option<Instant>) -> (Requests, Decisions) {
    let peeks: Requests = calls.iter().map(peek).collect();
    let peeked = store.decide(&peeks, deadline).await;
    let has_room = |(call, peeked): (&TagRequest, &Result<Verdicts, _>)| match peeked {
        Ok(verdicts) => call.checks().zip(verdicts).all(|(check, (_, verdict))| {
            let fits = check.hits.charged() <= u64::from(verdict.remaining);
            !check.is_veto() || (verdict.admitted && fits)
        }),
        // Unknown; the charge decides.
        Err(_) => true,
    };
    let has_room: Vec<bool> = calls.iter().zip(&peeked).map(has_room).collect();
    if has_room.iter().all(|has_room| *has_room) {
        let decisions = store.decide(&calls, deadline).await;
        return (calls, decisions);
    }
    // Calls without room are charged first, because their verdicts contain the retry time. They charge nothing unless
    // room has appeared in between; then the others are charged too.
    let part = |wanted: bool| -> Requests {
        let of_part = calls.iter().zip(&has_room).filter(|(_, has_room)| **has_room == wanted);
        of_part.map(|(call, _)| call.clone()).collect()
    };
    let full = part(false);
    let full_decisions = store.decide(&full, deadline).await;
    // A failure is no denial: the others are charged, and refunded if the request does not pass after all.
    let is_denied = full
        .iter()
        .zip(&full_decisions)
        .any(|(call, decision)| decision.as_ref().is_ok_and(|verdicts| is_vetoed(call, verdicts)));
    let full_charges: Requests = part(true).iter().filter_map(overdrafts).collect();
    let (others, other_decisions) = match is_denied {
        true if !full_charges.is_empty() => {
            let rest: Requests =
                part(true).iter().map(|call| overdrafts(call).unwrap_or_else(|| peek(call))).collect();
            let decisions = store.decide(&rest, deadline).await;
            (rest, decisions)
        }
        true => peeks
            .into_iter()
            .zip(peeked)
            .zip(&has_room)
            .filter(|(_, has_room)| **has_room)
            .map(|(peek, _)| peek)
            .unzip(),
        false => {
            let rest = part(true);
            let decisions = store.decide(&rest, deadline).await;
            (rest, decisions)
        }
    };
    (full.into_iter().chain(others).collect(), full_decisions.into_iter().chain(other_decisions).collect())
}

/// Whether a bucket is charged all or none with counters of another tag. A refund is made exactly once whether or not
/// the request passes, so a request with one is not prechecked.
fn is_needed(calls: &Requests) -> bool {
    if calls.iter().flat_map(TagRequest::checks).any(|check| check.hits.is_refund()) {
        return false;
    }
    let has_bucket =
        |call: &TagRequest| call.checks().any(|check| check.policy.algorithm() == Algorithm::TokenBucket);
    calls.len() > 1 && calls.iter().any(|call| call.charging == Charging::AllOrNone && has_bucket(call))
}

/// The call as a read, except for charges beyond the limit, which no denial withholds; `None` without such a charge.
fn overdrafts(call: &TagRequest) -> Option<TagRequest> {
    let mut rest = call.clone();
    let checks = rest.cells.iter_mut().flat_map(|cell| &mut cell.checks);
    checks.filter(|check| !check.hits.is_overdraft()).for_each(|check| check.hits = Hits::Peek);
    let has_overdraft = rest.checks().any(|check| check.hits.is_overdraft());
    has_overdraft.then_some(rest)
}

/// The call as a read.
fn peek(call: &TagRequest) -> TagRequest {
    let mut peek = call.clone();
    peek.cells.iter_mut().flat_map(|cell| &mut cell.checks).for_each(|check| check.hits = Hits::Peek);
    peek
}
