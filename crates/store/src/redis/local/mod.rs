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
use super::script::Outcome;
use crate::{
    BackgroundQueue,
    background::Turn,
    request::{Cell, Check, Requests, TagRequest, Verdicts},
};
use tollgate_core::{
    SyncMode,
    algorithm::{Charging, Prefetch},
};

/// What is wished for each ask of a call; empty when nothing is.
pub(super) type Wishes = SmallVec<[Prefetch; 2]>;

/// What one worker knows of the counters of one server. One lock, which nobody else wants.
#[derive(Debug)]
pub(super) struct Local {
    state: Mutex<State>,
    later: BackgroundQueue,
    /// Tells who gives back what is left over that there will be something, or that the store is no more.
    pub(super) news: Notify,
}

/// What gives back what is left over of charges ahead.
#[derive(Debug)]
pub(super) struct Leftovers {
    pub(super) calls: Requests,
    /// To be held until that is done.
    pub(super) turn: Option<Arc<Turn>>,
    /// Whether there may be more later.
    pub(super) may_be_more: bool,
}

#[derive(Debug, Default)]
struct State {
    known: CounterCache,
    /// Held while anything may have to be given back, so that the process waits for it when it ends.
    turn: Option<Arc<Turn>>,
}

impl Local {
    /// Knows nothing yet. Takes turns of `later` for what is to be given back.
    pub(super) fn new(later: BackgroundQueue) -> Self {
        Self { state: Mutex::default(), later, news: Notify::new() }
    }

    /// Decides a call that just came, if what is known suffices.
    pub(super) fn decide(&self, call: &TagRequest, now: Instant) -> Option<Verdicts> {
        let mut state = self.state.lock();
        state.known.expect(call, now);
        state.known.harvest();
        state.known.decide(call, now)
    }

    /// Decides a call that was looked at before, if what is known suffices by now: where there may be tokens.
    pub(super) fn decide_again(&self, call: &TagRequest, now: Instant) -> Option<Verdicts> {
        let may_have_tokens = call.checks().any(|ask| ask.sync == SyncMode::Leased);
        may_have_tokens.then(|| self.state.lock().known.decide(call, now)).flatten()
    }

    /// What to charge ahead together with a call.
    pub(super) fn prefetches(&self, call: &TagRequest, now: Instant) -> Wishes {
        if call.checks().all(|ask| ask.sync == SyncMode::Strict) {
            return Wishes::new();
        }
        let mut state = self.state.lock();
        let wish = |place: (&Cell, &Check)| state.known.wish(place, now).unwrap_or_default();
        let prefetches: Wishes = call.checks_with_cells().map(wish).collect();
        match prefetches.iter().any(|wish| *wish != Prefetch::default()) {
            true => prefetches,
            false => Wishes::new(),
        }
    }

    /// Takes note of what a call came to that was sent at `sent_at`, at the latest.
    pub(super) fn learn(&self, call: &TagRequest, sent_at: Instant, outcome: &Outcome) {
        let Some(verdicts) = outcome.verdicts.last() else { return };
        let is_denied = verdicts.iter().any(|(_, verdict)| !verdict.admitted);
        let is_usual = |ask: &Check| ask.sync == SyncMode::Strict && !ask.hits.is_refund();
        let mut state = self.state.lock();
        if !is_denied && state.known.is_empty() && call.checks().all(is_usual) {
            return;
        }
        for (at, (place, (_, verdict))) in call.checks_with_cells().zip(verdicts).enumerate() {
            let is_seen = match call.charging {
                Charging::Independent => !verdict.admitted,
                Charging::AllOrNone => is_denied,
            };
            let reserved = outcome.reserved.get(at).copied().unwrap_or_default();
            state.known.learn(place, verdict, is_seen, reserved, sent_at);
        }
        state.known.harvest();
        if state.turn.is_none() && state.known.is_unsettled() {
            state.turn = self.later.begin(1).map(Arc::new);
            self.news.notify_one();
        }
    }

    /// Forgets what a call that failed was about, which may have become something else.
    pub(super) fn forget(&self, call: &TagRequest) {
        let mut state = self.state.lock();
        call.checks_with_cells().for_each(|place| state.known.forget(place));
    }

    /// Forgets everything, as when another server may be asked from now on, which may have heard of no charge.
    pub(super) fn forget_all(&self) {
        *self.state.lock() = State::default();
    }

    /// What gives back what is left over of charges ahead.
    pub(super) fn unused(&self, now: Instant) -> Leftovers {
        let mut state = self.state.lock();
        let calls = state.known.settle(now);
        let may_be_more = state.known.is_unsettled();
        let turn = if may_be_more { state.turn.clone() } else { state.turn.take() };
        Leftovers { calls, turn, may_be_more }
    }
}

#[cfg(test)]
mod tests;
