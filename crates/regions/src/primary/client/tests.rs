//! Calls to a primary region that replies late or never.

use std::{future::pending, sync::Arc};

use tokio::{net::TcpListener, sync::Semaphore, task::yield_now, time::timeout};
use tokio_util::task::AbortOnDropHandle;
use tollgate_core::{clock::Clock, descriptor::Hits};
use tollgate_limiter::OwnShares;
use tollgate_store::{MemoryStore, Store, request::Veto};
use tonic::transport::Endpoint;

use super::*;
use crate::primary::{PrimaryCalls, PrimaryRole, PrimaryRouter, breaker::Breaker, wire::tests::request};
use crate::tests::regions;

#[tokio::test]
async fn calls_do_not_wait_behind_messages_that_hang() {
    let regions = regions("eu", &["us", "eu"], OwnShares::default());
    // Accepts connections, and never replies.
    let hanging = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", hanging.local_addr().expect("bound"));
    let channel = Endpoint::from_shared(address).expect("a URL").connect_lazy();
    regions.set_channel("eu", Some(channel));
    let (calls, queue) = PrimaryCalls::new();
    calls.set_role(PrimaryRole::Other);
    let own = Arc::new(MemoryStore::new(100, Clock::System));
    let store = Store::new(PrimaryRouter::new(own, calls));
    let _client = AbortOnDropHandle::new(tokio::spawn(send_all(queue, regions)));
    // Those that were sent hang for a minute, and so would those that are not sent.
    let (refused, mut was_refused) = mpsc::channel(1);
    let mut waiting = JoinSet::new();
    let is_refused = async {
        loop {
            let (store, refused) = (store.clone(), refused.clone());
            waiting.spawn(async move {
                let deadline = Instant::now().checked_add(Duration::from_secs(60));
                if store.decide(&[request(Hits::ONE, Veto::Alone, None)], deadline).await[0]
                    == Err(StoreError::BreakerOpen)
                {
                    let _ = refused.send(()).await;
                }
            });
            if timeout(MESSAGE_INTERVAL, was_refused.recv()).await.is_ok() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(30), is_refused).await.expect("a call is refused while others hang");
}

type Reply = Result<Response<DecideReply>, Status>;

/// Progress of a message without calls that was sent before this time, and the number of free places then, of one.
async fn progress_of(reply: impl Future<Output = Reply>, age: Duration) -> (Vec<Option<StoreError>>, usize) {
    let (progress, mut progressed) = mpsc::channel(8);
    let began = Instant::now().checked_sub(age).expect("the machine runs for longer");
    let attempt = Breaker::default().admit(began).expect("admitted");
    let places = Arc::new(Semaphore::new(1));
    let place = Arc::clone(&places).try_acquire_owned().ok();
    let (region, calls) = ("eu".to_owned(), Vec::new());
    Message { region, calls, attempt, place, progress }.exchange(reply, began).await;
    let mut all = Vec::new();
    while let Some(Progress { failure, .. }) = progressed.recv().await {
        all.push(failure.map(|(_, error)| error));
    }
    (all, places.available_permits())
}

fn good() -> Reply {
    Ok(Response::new(DecideReply::default()))
}

#[tokio::test]
async fn each_message_has_one_outcome() {
    let at_once = Duration::ZERO;
    assert_eq!(progress_of(async { good() }, at_once).await, (vec![None], 1));
    let declined = async { Err(Status::permission_denied("no")) };
    assert_eq!(progress_of(declined, at_once).await, (vec![None], 1));
    let (all, free) = progress_of(async { Err(Status::unavailable("no")) }, at_once).await;
    assert!(matches!(&all[..], [Some(StoreError::Disconnected(_))]) && free == 1, "{all:?}");
    let late = async {
        yield_now().await;
        good()
    };
    for (all, free) in [
        progress_of(late, REPLY_TIMEOUT * 30).await,
        progress_of(pending(), REPLY_TIMEOUT + LATE_TIMEOUT).await,
    ] {
        assert!(matches!(&all[..], [Some(StoreError::Timeout(..))]) && free == 1, "{all:?}");
    }
}

#[tokio::test]
async fn a_reply_that_lay_ready_while_the_process_was_paused_is_recorded() {
    assert_eq!(progress_of(async { good() }, REPLY_TIMEOUT * 30).await, (vec![None], 1));
}

#[test]
fn only_a_status_before_any_decision_rules_out_a_charge() {
    for code in 1..=16 {
        let error = error_of(&Status::new(Code::from(code), "text"));
        let is_certain = matches!(
            Code::from(code),
            Code::InvalidArgument | Code::PermissionDenied | Code::ResourceExhausted | Code::Unimplemented
        );
        assert_eq!(error.charged_nothing(), is_certain, "{error}");
    }
}
