//! A region's store beside the primary region, which a test plays.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tokio::time::Instant;
use tollgate_core::RecordId;
use tollgate_core::algorithm::{Algorithm, Charging, Parameters, Policy, Verdict};
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_core::descriptor::{Entry, Hits};
use tollgate_core::quota::{Quota, Unit, Window};
use tollgate_store::request::{Check, TagRequest, Verdicts};
use tollgate_store::{LateOutcome, MemoryStore, Store, StoreError, key::CellKey};

use super::{PrimaryCalls, PrimaryQueue, PrimaryRole, PrimaryRouter};

const LIMIT: u64 = 2;

/// A store in the memory of a region, and the calls that it sends.
fn region(role: PrimaryRole) -> (Store, PrimaryCalls, PrimaryQueue) {
    let (calls, queue) = PrimaryCalls::new();
    calls.set_role(role);
    let own = Arc::new(MemoryStore::new(100, Clock::System));
    (Store::new(PrimaryRouter::new(own, calls.clone())), calls, queue)
}

/// A request of the descriptor at `descriptor`, to the primary region or not.
fn request(value: &str, is_at_primary: bool, hits: Hits, descriptor: usize) -> TagRequest {
    let quota = Quota { limit: LIMIT, window: Window::of(Unit::Year) };
    let policy = Policy::nearest(Algorithm::FixedWindow, quota, &Parameters::default());
    let check = Check::own(RecordId::alone(Algorithm::FixedWindow), policy, hits);
    let key = CellKey::open("d", [Entry { key: "k", value }].into_iter());
    let key = if is_at_primary { key.at_primary("d") } else { key };
    TagRequest::new(Charging::Independent, key, Check { descriptor, ..check })
}

fn verdict(remaining: u32) -> Verdict {
    Verdict {
        admitted: true,
        remaining: remaining.into(),
        reset_after: Duration::from_secs(9),
        used: 1,
        ..Verdict::empty(Timestamp::from_micros(1_700_000_000_000_000))
    }
}

fn soon() -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(20))
}

#[tokio::test]
async fn each_request_is_decided_where_its_counter_is() {
    let (store, _, mut queue) = region(PrimaryRole::Other);
    let requests = [
        request("here", false, Hits::ONE, 0),
        request("there", true, Hits::ONE, 1),
        request("here too", false, Hits::ONE, 2),
    ];
    let primary = async {
        let call = queue.recv().await.expect("a call");
        assert_eq!(call.request.cells, requests[1].cells);
        call.answer(Ok(Verdicts::from_iter([(1, verdict(77))])));
    };
    let (decisions, ()) = tokio::join!(store.decide(&requests, soon()), primary);
    let remaining: Vec<_> = decisions.into_iter().map(|decision| decision.expect("decided")[0]).collect();
    assert_eq!(remaining.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(remaining.iter().map(|(_, verdict)| verdict.remaining).collect::<Vec<_>>(), [1, 77, 1]);
    assert!(queue.try_recv().is_err(), "sent once");
}

#[tokio::test]
async fn the_primary_region_decides_in_its_own_store() {
    let (store, _, mut queue) = region(PrimaryRole::Own);
    let requests = [request("v", true, Hits::ONE, 0)];
    for admitted in [true, true, false] {
        let decisions = store.decide(&requests, soon()).await;
        assert_eq!(decisions[0].as_ref().expect("decided")[0].1.admitted, admitted);
    }
    assert!(queue.try_recv().is_err());
}

#[tokio::test]
async fn nothing_is_sent_while_there_is_no_primary_region() {
    for role in [PrimaryRole::Absent, PrimaryRole::Pending] {
        let (store, _, mut queue) = region(role);
        let decisions = store.decide(&[request("v", true, Hits::ONE, 0)], soon()).await;
        let error = decisions[0].as_ref().expect_err("no decision");
        assert!(error.charged_nothing() && queue.try_recv().is_err(), "{role:?}: {error}");
    }
    let (store, _, queue) = region(PrimaryRole::Other);
    drop(queue);
    let decisions = store.decide(&[request("v", true, Hits::ONE, 0)], soon()).await;
    assert!(matches!(decisions[0], Err(StoreError::Unreachable(_))), "no service between regions");
}

#[tokio::test]
async fn calls_that_wait_are_bounded() {
    let (store, _, mut queue) = region(PrimaryRole::Other);
    let waiting: Vec<_> = (0..4_096)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.decide(&[request("v", true, Hits::ONE, 0)], soon()).await })
        })
        .collect();
    // They run up to their wait.
    while queue.len() < waiting.len() {
        tokio::task::yield_now().await;
    }
    let decisions = store.decide(&[request("v", true, Hits::ONE, 0)], soon()).await;
    assert_eq!(decisions[0], Err(StoreError::Overloaded));
    while let Ok(call) = queue.try_recv() {
        call.answer(Err(StoreError::BreakerOpen));
    }
    for decisions in waiting {
        assert_eq!(decisions.await.expect("no panic")[0], Err(StoreError::BreakerOpen));
    }
}

#[tokio::test]
async fn a_reply_after_the_deadline_is_passed_on_to_the_fallback() {
    let (store, _, mut queue) = region(PrimaryRole::Other);
    let deadline = Instant::now().checked_add(Duration::from_millis(80));
    for (reply, outcome) in [
        (
            Ok(Verdicts::from_iter([(0, verdict(1))])),
            Some(LateOutcome::Decided(Verdicts::from_iter([(0, verdict(1))]))),
        ),
        (Err(StoreError::QueueTimeout(Duration::ZERO)), Some(LateOutcome::NotCharged)),
        (Err(StoreError::MalformedReply), None),
    ] {
        let deadline = deadline.and(Instant::now().checked_add(Duration::from_millis(80)));
        let decisions = store.decide(&[request("v", true, Hits::ONE, 0)], deadline).await;
        let Err(StoreError::Timeout(_, Some(late))) = &decisions[0] else { panic!("{decisions:?}") };
        let (sender, receiver) = tokio::sync::oneshot::channel();
        late.on_arrival(move |outcome| drop(sender.send(outcome)));
        queue.recv().await.expect("it was sent").answer(reply);
        // The handler is dropped with the reply where the outcome stays unknown.
        drop(decisions);
        assert_eq!(receiver.await.ok(), outcome);
    }
}

#[tokio::test]
async fn no_call_is_made_without_time() {
    let (store, _, mut queue) = region(PrimaryRole::Other);
    let requests = [request("v", true, Hits::ONE, 0), request("v", false, Hits::ONE, 1)];
    let decisions = store.decide_from_cache(&requests);
    assert_eq!(decisions[0], Err(StoreError::Overloaded));
    assert!(decisions[1].is_ok(), "the own store takes no time");
    let decisions = store.decide(&requests[..1], Some(Instant::now())).await;
    assert!(matches!(decisions[0], Err(StoreError::QueueTimeout(_))));
    assert!(queue.try_recv().is_err());
}

#[tokio::test]
async fn refunds_take_the_way_of_their_charges() {
    let (store, _, mut queue) = region(PrimaryRole::Other);
    let amount = NonZeroU64::MIN;
    let refunds = [true, false].map(|is_at_primary| request("v", is_at_primary, Hits::Refund(amount), 0));
    let charged = store.decide(&[request("v", false, Hits::ONE, 0)], soon()).await;
    assert_eq!(charged[0].as_ref().expect("decided")[0].1.used, 1);
    store.refund_in_background(refunds.into_iter().collect());
    let call = queue.recv().await.expect("a call");
    assert_eq!(call.request.cells[0].checks[0].hits, Hits::Refund(amount));
    call.answer(Ok(Verdicts::from_iter([(0, verdict(2))])));
    let left = store.decide(&[request("v", false, Hits::Peek, 0)], soon()).await;
    assert_eq!(left[0].as_ref().expect("decided")[0].1.used, 0, "the other one was made here");
}
