//! What a worker knows of counters, so that it need not ask Redis: denials that still stand (`denial`), and tokens that
//! were charged ahead of their use (`reserve`).
//!
//! Neither lets more through than Redis would. A denial stands until the time that Redis told has passed, counted from
//! before Redis was asked; a token is only spent by who charged it, while it counts. What can make a denial wrong is
//! that hits are given back: this worker forgets it then, and others learn of it soon, since no denial is believed for
//! longer than half a second.

mod demand;
mod denial;
mod two_generation_map;
mod cache;
mod reservation;

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::{sync::Notify, time::Instant};

use self::cache::CounterCache;
use super::script::RunOutcome;
use crate::{
    BackgroundQueue,
    background::BackgroundSlot,
    request::{Cell, Check, Requests, TagRequest, Verdicts},
};
use tollgate_core::{
    SyncMode,
    algorithm::{Charging, Prefetch},
};

/// What is wished for each ask of a call; empty when nothing is.
pub(super) type Prefetches = SmallVec<[Prefetch; 2]>;

/// What one worker knows of the counters of one server. One lock, which nobody else wants.
#[derive(Debug)]
pub(super) struct LocalCache {
    state: Mutex<State>,
    background: BackgroundQueue,
    /// Tells who gives back what is left over that there will be something, or that the store is no more.
    pub(super) wakeup: Notify,
}

/// What gives back what is left over of charges ahead.
#[derive(Debug)]
pub(super) struct UnusedTokens {
    pub(super) requests: Requests,
    /// To be held until that is done.
    pub(super) slot: Option<Arc<BackgroundSlot>>,
    /// Whether there may be more later.
    pub(super) has_more: bool,
}

#[derive(Debug, Default)]
struct State {
    cache: CounterCache,
    /// Held while anything may have to be given back, so that the process waits for it when it ends.
    slot: Option<Arc<BackgroundSlot>>,
}

impl LocalCache {
    /// Knows nothing yet. Takes turns of `later` for what is to be given back.
    pub(super) fn new(background: BackgroundQueue) -> Self {
        Self { state: Mutex::default(), background, wakeup: Notify::new() }
    }

    /// Decides a call that just came, if what is known suffices.
    pub(super) fn decide(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        let mut state = self.state.lock();
        state.cache.record_demand(request, now);
        state.cache.collect_evicted();
        state.cache.decide(request, now)
    }

    /// Decides a call that was looked at before, if what is known suffices by now: where there may be tokens.
    pub(super) fn decide_again(&self, request: &TagRequest, now: Instant) -> Option<Verdicts> {
        let may_have_tokens = request.checks().any(|check| check.sync == SyncMode::Leased);
        may_have_tokens.then(|| self.state.lock().cache.decide(request, now)).flatten()
    }

    /// What to charge ahead together with a call.
    pub(super) fn prefetches(&self, request: &TagRequest, now: Instant) -> Prefetches {
        if request.checks().all(|check| check.sync == SyncMode::Strict) {
            return Prefetches::new();
        }
        let mut state = self.state.lock();
        let prefetch = |counter: (&Cell, &Check)| state.cache.prefetch(counter, now).unwrap_or_default();
        let prefetches: Prefetches = request.checks_with_cells().map(prefetch).collect();
        match prefetches.iter().any(|prefetch| *prefetch != Prefetch::default()) {
            true => prefetches,
            false => Prefetches::new(),
        }
    }

    /// Takes note of what a call came to that was sent at `sent_at`, at the latest.
    pub(super) fn learn(&self, request: &TagRequest, sent_at: Instant, outcome: &RunOutcome) {
        let Some(verdicts) = outcome.verdicts.last() else { return };
        let is_denied = verdicts.iter().any(|(_, verdict)| !verdict.admitted);
        let is_usual = |check: &Check| check.sync == SyncMode::Strict && !check.hits.is_refund();
        let mut state = self.state.lock();
        if !is_denied && state.cache.is_empty() && request.checks().all(is_usual) {
            return;
        }
        for (at, (counter, (_, verdict))) in request.checks_with_cells().zip(verdicts).enumerate() {
            let is_denial = match request.charging {
                Charging::Independent => !verdict.admitted,
                Charging::AllOrNone => is_denied,
            };
            let reserved = outcome.reserved.get(at).copied().unwrap_or_default();
            state.cache.learn(counter, verdict, is_denial, reserved, sent_at);
        }
        state.cache.collect_evicted();
        if state.slot.is_none() && state.cache.may_owe_refunds() {
            state.slot = self.background.acquire(1).map(Arc::new);
            self.wakeup.notify_one();
        }
    }

    /// Forgets what a call that failed was about, which may have become something else.
    pub(super) fn forget(&self, request: &TagRequest) {
        let mut state = self.state.lock();
        request.checks_with_cells().for_each(|counter| state.cache.forget(counter));
    }

    /// Forgets everything, as when another server may be asked from now on, which may have heard of no charge.
    pub(super) fn forget_all(&self) {
        *self.state.lock() = State::default();
    }

    /// What gives back what is left over of charges ahead.
    pub(super) fn take_unused(&self, now: Instant) -> UnusedTokens {
        let mut state = self.state.lock();
        let requests = state.cache.refunds_due(now);
        let has_more = state.cache.may_owe_refunds();
        let slot = if has_more { state.slot.clone() } else { state.slot.take() };
        UnusedTokens { requests, slot, has_more }
    }
}

#[cfg(test)]
mod tests;
