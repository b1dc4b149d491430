//! Looking before charging, where a charge that is taken back would not be the same as none.
//!
//! A bucket that refills can't be given back what it was charged a moment ago: what has been refilled since may have
//! been for others. Where requests span tags, and one that is exhausted has them taken back over and over, a bucket in
//! another tag would be drained by requests that never passed. So all tags are looked at first, and a tag with room is
//! charged only when every one has it. That costs another round trip; a hash tag that the limits share saves it.

use std::mem;

use tokio::time::Instant;

use super::{Requests, refund::is_vetoed};
use tollgate_core::{
    algorithm::{Algorithm, Charging},
    descriptor::Hits,
};
use tollgate_store::{
    Decisions, Store,
    request::{TagRequest, Verdicts},
};

/// Decides calls until `deadline`, and leaves them as they were made.
pub(super) async fn decide(store: &Store, calls: &mut Requests, deadline: Option<Instant>) -> Decisions {
    if !is_needed(calls) {
        return store.decide(calls, deadline).await;
    }
    // Apart, so that the usual case is a small future.
    let (made, decisions) = Box::pin(look_first(store, mem::take(calls), deadline)).await;
    *calls = made;
    decisions
}

async fn look_first(store: &Store, calls: Requests, deadline: Option<Instant>) -> (Requests, Decisions) {
    let looks: Requests = calls.iter().map(look).collect();
    let seen = store.decide(&looks, deadline).await;
    let has_room = |(call, seen): (&TagRequest, &Result<Verdicts, _>)| match seen {
        Ok(verdicts) => call.checks().zip(verdicts).all(|(ask, (_, verdict))| {
            let fits = ask.hits.charged() <= u64::from(verdict.remaining);
            !ask.is_veto() || (verdict.admitted && fits)
        }),
        // The charge will tell.
        Err(_) => true,
    };
    let has_room: Vec<bool> = calls.iter().zip(&seen).map(has_room).collect();
    if has_room.iter().all(|has_room| *has_room) {
        let decisions = store.decide(&calls, deadline).await;
        return (calls, decisions);
    }
    // Those without room are asked, so that the answer tells when they will have it. They charge nothing, unless room
    // has come in between; then the others are charged too.
    let part = |wanted: bool| -> Requests {
        let of_part = calls.iter().zip(&has_room).filter(|(_, has_room)| **has_room == wanted);
        of_part.map(|(call, _)| call.clone()).collect()
    };
    let asked = part(false);
    let answers = store.decide(&asked, deadline).await;
    // What failed does not deny: the others are charged, and it is taken back if they don't pass after all.
    let is_denied = asked
        .iter()
        .zip(&answers)
        .any(|(call, answer)| answer.as_ref().is_ok_and(|verdicts| is_vetoed(call, verdicts)));
    let (others, other_answers) = match is_denied {
        true => looks
            .into_iter()
            .zip(seen)
            .zip(&has_room)
            .filter(|(_, has_room)| **has_room)
            .map(|(look, _)| look)
            .unzip(),
        false => {
            let rest = part(true);
            let answers = store.decide(&rest, deadline).await;
            (rest, answers)
        }
    };
    (asked.into_iter().chain(others).collect(), answers.into_iter().chain(other_answers).collect())
}

/// Whether a bucket is charged all or none with counters of another tag. What gives something back does so whether or
/// not it passes, and once, so a request that does is not looked at before.
fn is_needed(calls: &Requests) -> bool {
    if calls.iter().flat_map(TagRequest::checks).any(|ask| ask.hits.is_refund()) {
        return false;
    }
    let has_bucket =
        |call: &TagRequest| call.checks().any(|ask| ask.policy.algorithm() == Algorithm::TokenBucket);
    calls.len() > 1 && calls.iter().any(|call| call.charging == Charging::AllOrNone && has_bucket(call))
}

/// The call as a look.
fn look(call: &TagRequest) -> TagRequest {
    let mut look = call.clone();
    look.cells.iter_mut().flat_map(|cell| &mut cell.checks).for_each(|ask| ask.hits = Hits::Peek);
    look
}
