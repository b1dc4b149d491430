//! Replies of a server that a worker keeps, so that it sends fewer requests: valid denials (`denial`), and tokens
//! charged ahead of their use (`leased_tokens`).
//!
//! Neither admits more than the server would. A denial is valid for the time that the server returned, counted from before
//! the request was sent; a token is spent only by the worker that charged it, while its window lasts. A refund can make a
//! denial outdated: this worker then invalidates it, and other workers notice soon, since no denial is cached for
//! longer than half a second.
//!
//! Those by which it decides while a server fails are in the [`OutageCache`].
//!
//! A store of any kind whose counters are on a server has a [`LocalCache`] for each server, and calls
//!
//! 1. [`LocalCache::decide`] with each request: without an answer, it sends the request;
//! 2. [`LocalCache::decide_again`] for a request that waited, then [`LocalCache::attachment`] for what to send with it;
//! 3. [`LocalCache::replied`], or [`LocalCache::forget`] after a failure; [`LocalCache::forget_all`] for another server;
//! 4. [`LocalCache::refund_unused`], once, in a task.

mod cache;
mod demand;
mod denial;
mod leased_tokens;
mod last_verdicts;
mod outage_cache;
mod two_generation_map;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tollgate_core::SyncMode;
use tollgate_core::algorithm::{Charging, Prefetch};

use self::cache::CounterCache;
pub(crate) use self::cache::{LocalDecision, Source};
pub(crate) use self::two_generation_map::RecentValues;
pub use self::{denial::recheck_bans, last_verdicts::LastVerdicts, outage_cache::OutageCache};
use crate::request::{Check, Requests, RunOutcome, TagRequest};
use crate::{BackgroundQueue, background_queue::BackgroundSlot, metrics::LiveList};

/// The caches of all workers and servers.
static CACHES: LiveList<LocalCache> = LiveList::new();

/// Interval at which tokens that have expired are refunded, a number of them at a time.
const REFUND_INTERVAL: Duration = Duration::from_millis(10);

/// Parts of a request that the cache adds when it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attachment {
    /// Tokens to charge ahead for each check of a request; empty for none.
    pub(crate) prefetches: SmallVec<[Prefetch; 2]>,
    /// For each check of a request, the hits that were denied without a call since the last one; empty for none.
    pub(crate) reported: SmallVec<[u16; 4]>,
}

/// Cache of one worker for the counters of one server. The lock is uncontended.
#[derive(Debug)]
pub(crate) struct LocalCache {
    state: Mutex<State>,
    background: BackgroundQueue,
    outage: OutageCache,
    /// Notified when there will be unused tokens to refund, or when the store is dropped.
    wakeup: Notify,
}

/// Refunds of unused tokens.
#[derive(Debug)]
struct UnusedTokens {
    requests: Requests,
    /// Held until the refunds are sent.
    slot: Option<Arc<BackgroundSlot>>,
    /// Whether more may follow later.
    has_more: bool,
}

#[derive(Debug, Default)]
struct State {
    cache: CounterCache,
    /// Held while tokens may have to be refunded, so that shutdown waits for it.
    slot: Option<Arc<BackgroundSlot>>,
}

/// Hits charged ahead for the counters of `requests` and not used yet, in this process. Reads each worker's cache in turn.
pub fn held_hits(requests: &Requests) -> u64 {
    let now = Instant::now();
    let held = |cache: &Arc<LocalCache>| requests.iter().map(|request| cache.held_hits(request, now)).sum();
    CACHES.all().iter().map(held).fold(0, u64::saturating_add)
}

impl LocalCache {
    /// An empty cache, whose refunds take slots of `background`, and whose replies are kept in `outage`.
    pub(crate) fn new(background: BackgroundQueue, outage: OutageCache) -> Arc<Self> {
        let cache = Arc::new(Self { state: Mutex::default(), background, outage, wakeup: Notify::new() });
        CACHES.add(Arc::downgrade(&cache));
        cache
    }

    /// Decides a new request, if the cache suffices.
    pub(crate) fn decide(&self, request: &TagRequest, now: Instant) -> Option<LocalDecision> {
        let mut state = self.state.lock();
        state.cache.record_demand(request, now);
        state.cache.collect_evicted();
        state.cache.decide(request, now)
    }

    /// Decides a queued request, if the cache suffices by now, which takes new tokens.
    pub(crate) fn decide_again(&self, request: &TagRequest, now: Instant) -> Option<LocalDecision> {
        let may_have_tokens = request.checks().any(|check| check.sync.may_lease());
        may_have_tokens.then(|| self.state.lock().cache.decide(request, now)).flatten()
    }

    /// The tokens to charge ahead together with a request that is sent now, and the hits to report with it.
    pub(crate) fn attachment(&self, request: &TagRequest, now: Instant) -> Attachment {
        let mut attachment = Attachment::default();
        let may_lease = request.checks().any(|check| check.sync.may_lease());
        let may_report = request.checks().any(|check| check.ban.is_some());
        if !may_lease && !may_report {
            return attachment;
        }
        let cache = &mut self.state.lock().cache;
        let checks = || request.checks_with_cells();
        if may_lease && cache.may_decide_all(request, now) {
            let prefetch = |(cell, check)| cache.prefetch(cell, check, now).unwrap_or_default();
            attachment.prefetches = checks().map(prefetch).collect();
            if attachment.prefetches.iter().all(|prefetch| *prefetch == Prefetch::default()) {
                attachment.prefetches.clear();
            }
        }
        if may_report && !cache.is_empty() {
            attachment.reported =
                checks().map(|(cell, check)| cache.take_reported(cell, check, now)).collect();
        }
        attachment
    }

    /// Records the outcome of a request. The cache decides by it if the request was sent at `sent_at` or later to the
    /// server of the cache.
    pub(crate) fn replied(&self, request: &TagRequest, outcome: &RunOutcome, sent_at: Option<Instant>) {
        self.outage.learn(request, outcome);
        if let Some(sent_at) = sent_at {
            self.learn(request, sent_at, outcome);
        }
    }

    fn learn(&self, request: &TagRequest, sent_at: Instant, outcome: &RunOutcome) {
        let Some(verdicts) = outcome.verdicts.last() else { return };
        let is_denied = verdicts.iter().any(|(_, verdict)| !verdict.admitted);
        // A counter of `sync: auto` without an entry is not hot.
        let is_usual = |check: &Check| check.sync != SyncMode::Leased && !check.hits.is_refund();
        let mut state = self.state.lock();
        if !is_denied && state.cache.is_empty() && request.checks().all(is_usual) {
            return;
        }
        for (at, ((cell, check), (_, verdict))) in request.checks_with_cells().zip(verdicts).enumerate() {
            let is_denial = match request.charging {
                Charging::Independent => !verdict.admitted,
                Charging::AllOrNone => is_denied,
            };
            let prefetched = outcome.prefetched.get(at).copied().unwrap_or_default();
            state.cache.learn(cell, check, verdict, is_denial, prefetched, sent_at);
        }
        state.cache.collect_evicted();
        if state.slot.is_none() && state.cache.may_owe_refunds() {
            state.slot = self.background.acquire(1).map(Arc::new);
            self.wakeup.notify_one();
        }
    }

    /// Invalidates the counters of a failed request, whose state is unknown.
    pub(crate) fn forget(&self, request: &TagRequest) {
        let mut state = self.state.lock();
        request.checks_with_cells().for_each(|(cell, check)| state.cache.forget(cell, check));
    }

    /// Clears the cache, as after a failover: the new server may lack recent charges.
    pub(crate) fn forget_all(&self) {
        *self.state.lock() = State::default();
    }

    /// Tokens held for the counters of a request.
    fn held_hits(&self, request: &TagRequest, now: Instant) -> u64 {
        let mut state = self.state.lock();
        let held = |(cell, check)| state.cache.held_hits(cell, check, now);
        request.checks_with_cells().map(held).fold(0, u64::saturating_add)
    }

    /// Refunds unused tokens at intervals by `sender`, which sends each request once: after a failover, a repeated one could
    /// reach a server that was never charged. Ends when there is no sender any more.
    pub(crate) async fn refund_unused<S, R>(self: Arc<Self>, sender: impl Fn() -> Option<S>)
    where
        S: FnOnce(Requests) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        loop {
            self.wakeup.notified().await;
            loop {
                sleep(REFUND_INTERVAL).await;
                let Some(send) = sender() else { return };
                let UnusedTokens { requests, slot, has_more } = self.take_unused(Instant::now());
                if !requests.is_empty() {
                    let sent = send(requests);
                    tokio::spawn(async move {
                        sent.await;
                        drop(slot);
                    });
                }
                if !has_more {
                    break;
                }
            }
        }
    }

    /// Ends [`Self::refund_unused`], if there is no sender any more.
    pub(crate) fn wake(&self) {
        self.wakeup.notify_one();
    }

    /// Takes the refunds of unused tokens: of expired ones, or of all while the process drains.
    fn take_unused(&self, now: Instant) -> UnusedTokens {
        let mut state = self.state.lock();
        let requests = state.cache.refunds_due(now, self.background.is_draining());
        let has_more = state.cache.may_owe_refunds();
        let slot = if has_more { state.slot.clone() } else { state.slot.take() };
        UnusedTokens { requests, slot, has_more }
    }
}

#[cfg(test)]
mod tests;
