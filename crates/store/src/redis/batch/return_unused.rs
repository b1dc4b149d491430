//! Refunds of tokens that were charged ahead and not spent.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{Batcher, Handle, LocalCache, ScriptClock, Submission};
use crate::{background_refund::BackgroundSlot, metrics, request::Requests};

/// Interval at which tokens that have expired are refunded, a number of them at a time.
const RETURN_INTERVAL: Duration = Duration::from_millis(10);

/// Refunds unused tokens at intervals, until no handle is left.
pub(super) async fn run(handle: Weak<Handle>, local: Arc<LocalCache>, timeout: Duration) {
    loop {
        local.wakeup.notified().await;
        loop {
            sleep(RETURN_INTERVAL).await;
            let Some(handle) = handle.upgrade() else { return };
            let unused = local.take_unused(Instant::now());
            if !unused.requests.is_empty() {
                tokio::spawn(send(Batcher { handle }, unused.requests, timeout, unused.slot));
            }
            if !unused.has_more {
                break;
            }
        }
    }
}

/// Sends each refund once: after a failover, a repeated one could reach a server that was never charged.
async fn send(server: Batcher, requests: Requests, timeout: Duration, slot: Option<Arc<BackgroundSlot>>) {
    let made_at = Instant::now();
    let deadline = made_at.checked_add(timeout).unwrap_or(made_at);
    let submissions =
        requests.iter().map(|request| Submission { request, clock: ScriptClock::Server, made_at, deadline });
    for reply in join_all(submissions.map(|submission| server.decide(submission))).await {
        metrics::refund(reply.is_ok());
    }
    drop(slot);
}
