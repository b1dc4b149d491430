//! Giving back what was charged ahead and not spent.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{Batcher, Handle, Local, ScriptClock, Submission};
use crate::{background::Turn, metrics, request::Requests};

/// How long after its time what is left over may be held.
const EVERY: Duration = Duration::from_millis(10);

/// Gives back what is left over, now and then, until no handle is left.
pub(super) async fn give_back(handle: Weak<Handle>, local: Arc<Local>, timeout: Duration) {
    loop {
        local.news.notified().await;
        loop {
            sleep(EVERY).await;
            let Some(handle) = handle.upgrade() else { return };
            let unused = local.unused(Instant::now());
            if !unused.calls.is_empty() {
                tokio::spawn(send(Batcher { handle }, unused.calls, timeout, unused.turn));
            }
            if !unused.may_be_more {
                break;
            }
        }
    }
}

/// Sends each once: the server that answers a second time may be another one, which was never charged.
async fn send(server: Batcher, calls: Requests, timeout: Duration, turn: Option<Arc<Turn>>) {
    let made_at = Instant::now();
    let deadline = made_at.checked_add(timeout).unwrap_or(made_at);
    let requests =
        calls.iter().map(|call| Submission { call, clock: ScriptClock::Server, made_at, deadline });
    for answer in join_all(requests.map(|request| server.decide(request))).await {
        metrics::refund(answer.is_ok());
    }
    drop(turn);
}
