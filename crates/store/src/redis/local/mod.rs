//! Cache of counters, which saves requests to Redis: valid denials (`denial`), and tokens charged ahead of their use
//! (`held_tokens`).
//!
//! Neither admits more than Redis would. A denial is valid for the time that Redis returned, counted from before the
//! request was sent; a token is spent only by the worker that charged it, while its window lasts. A refund can make a
//! denial outdated: this worker then invalidates it, and other workers notice soon, since no denial is cached for
//! longer than half a second.

mod cache;
mod demand;
mod denial;
mod held_tokens;
mod two_generation_map;

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::{sync::Notify, time::Instant};
use tollgate_core::{
    SyncMode,
    algorithm::{Charging, Prefetch},
};

pub(super) use self::denial::CachedBans;
pub use self::denial::recheck_bans;
use self::{cache::CounterCache, two_generation_map::TwoGenerationMap};
use super::{metrics::LiveList, script::RunOutcome};
use crate::{
    BackgroundQueue,
    background_refund::BackgroundSlot,
    request::{Check, Requests, TagRequest, Verdicts},
};

/// The caches of all workers and servers.
pub(super) static CACHES: LiveList<LocalCache> = LiveList::new();

/// Tokens to charge ahead for each check of a request; empty for none.
pub(super) type Prefetches = SmallVec<[Prefetch; 2]>;

/// For each check of a request, the hits that were denied without a call since the last one; empty for none.
pub(super) type Reported = SmallVec<[u16; 4]>;

/// Cache of one worker for the counters of one server. The lock is uncontended.
#[derive(Debug)]
pub(super) struct LocalCache {
    state: Mutex<State>,
    background: BackgroundQueue,
    /// Notified when there will be unused tokens to refund, or when the store is dropped.
    pub(super) wakeup: Notify,
}

/// Refunds of unused tokens.
#[derive(Debug)]
pub(super) struct UnusedTokens {
    pub(super) requests: Requests,
    /// Held until the refunds are sent.
    pub(super) slot: Option<Arc<BackgroundSlot>>,
    /// Whether more may follow later.
    pub(super) has_more: bool,
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
    /// An empty cache, whose refunds take slots of `background`.
    pub(super) fn new(background: BackgroundQueue) -> Self {
        Self { state: Mutex::default(), background, wakeup: Notify::new() }
    }

    /// Decides a new request, if the cache suffices.
    pub(super) fn decide(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        let mut state = self.state.lock();
        state.cache.record_demand(request, now);
        state.cache.collect_evicted();
        state.cache.decide(request, now)
    }

    /// Decides a queued request, if the cache suffices by now, which takes new tokens.
    pub(super) fn decide_again(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        let may_have_tokens = request.checks().any(|check| check.sync.may_lease());
        may_have_tokens.then(|| self.state.lock().cache.decide(request, now)).flatten()
    }

    /// The tokens to charge ahead together with a request.
    pub(super) fn prefetches(&self, request: &TagRequest, now: Instant) -> Prefetches {
        if request.checks().all(|check| !check.sync.may_lease()) {
            return Prefetches::new();
        }
        let mut state = self.state.lock();
        if !state.cache.may_decide_all(request, now) {
            return Prefetches::new();
        }
        let checks = request.checks_with_cells();
        let prefetch = |(cell, check)| state.cache.prefetch(cell, check, now).unwrap_or_default();
        let prefetches: Prefetches = checks.map(prefetch).collect();
        if prefetches.iter().any(|prefetch| *prefetch != Prefetch::default()) {
            prefetches
        } else {
            Prefetches::new()
        }
    }

    /// Takes the hits that were denied without a call, to be reported with a request to their counters.
    pub(super) fn take_reported(&self, request: &TagRequest, now: Instant) -> Reported {
        if request.checks().all(|check| check.ban.is_none()) {
            return Reported::new();
        }
        let mut state = self.state.lock();
        if state.cache.is_empty() {
            return Reported::new();
        }
        let taken = |(cell, check)| state.cache.take_reported(cell, check, now);
        request.checks_with_cells().map(taken).collect()
    }

    /// Updates the cache with the outcome of a request that was sent at `sent_at` or later.
    pub(super) fn learn(&self, request: &TagRequest, sent_at: Instant, outcome: &RunOutcome) {
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
    pub(super) fn forget(&self, request: &TagRequest) {
        let mut state = self.state.lock();
        request.checks_with_cells().for_each(|(cell, check)| state.cache.forget(cell, check));
    }

    /// Clears the cache, as after a failover: the new server may lack recent charges.
    pub(super) fn forget_all(&self) {
        *self.state.lock() = State::default();
    }

    /// Tokens held for the counters of a request.
    fn held_hits(&self, request: &TagRequest, now: Instant) -> u64 {
        let mut state = self.state.lock();
        let held = |(cell, check)| state.cache.held_hits(cell, check, now);
        request.checks_with_cells().map(held).fold(0, u64::saturating_add)
    }

    /// Takes the refunds of unused tokens: of expired ones, or of all while the process drains.
    pub(super) fn take_unused(&self, now: Instant) -> UnusedTokens {
        let mut state = self.state.lock();
        let requests = state.cache.refunds_due(now, self.background.is_draining());
        let has_more = state.cache.may_owe_refunds();
        let slot = if has_more { state.slot.clone() } else { state.slot.take() };
        UnusedTokens { requests, slot, has_more }
    }
}

#[cfg(test)]
mod tests;
