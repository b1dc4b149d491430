//! A call on its way, and who waits for its answer.

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::DecisionResult;
use crate::{
    redis::{ScriptClock, connection::SendError, local::Prefetches},
    request::TagRequest,
};

/// A group on its way, boxed since it changes hands some times.
pub(super) type BoxedGroup = Box<Group>;

/// A call, and all who made it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) request: TagRequest,
    pub(super) clock: ScriptClock,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// How often it was sent to a server that did not know the script.
    pub(super) attempts: u32,
    /// Of what it asks, where others may join.
    pub(super) hash: Option<u64>,
    pub(super) prefetches: Prefetches,
}

/// One who waits for an answer.
#[derive(Debug)]
pub(super) struct Waiter {
    sender: Option<oneshot::Sender<DecisionResult>>,
    deadline: Instant,
}

impl Group {
    pub(super) fn new(request: TagRequest, clock: ScriptClock, first: Waiter, hash: Option<u64>) -> Self {
        let waiters = SmallVec::from_iter([first]);
        Self { request, clock, waiters, attempts: 0, hash, prefetches: Prefetches::new() }
    }

    /// How often the call is made.
    pub(super) fn times(&self) -> u16 {
        u16::try_from(self.waiters.len()).unwrap_or(u16::MAX)
    }

    /// Tells everybody the same.
    pub(super) fn fail(&mut self, error: &SendError) {
        self.waiters.iter_mut().for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// Tells those whose time is over so.
    pub(super) fn expire(&mut self, now: Instant, error: &SendError) {
        let expired = self.waiters.iter_mut().filter(|waiter| waiter.deadline <= now);
        expired.for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// When the first of those who wait stops to.
    pub(super) fn earliest_deadline(&self) -> Option<Instant> {
        self.waiters.iter().filter(|waiter| waiter.is_waiting()).map(|waiter| waiter.deadline).min()
    }

    /// Whether nobody waits any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiters.iter().all(|waiter| !waiter.is_waiting())
    }

    /// Forgets those who don't wait any more; says whether there are others.
    pub(super) fn retain_waiting(&mut self) -> bool {
        self.waiters.retain(|waiter| waiter.is_waiting());
        !self.waiters.is_empty()
    }
}

impl Waiter {
    pub(super) const fn new(sender: oneshot::Sender<DecisionResult>, deadline: Instant) -> Self {
        Self { sender: Some(sender), deadline }
    }

    pub(super) fn respond(&mut self, response: DecisionResult) {
        if let Some(sender) = self.sender.take() {
            // Fails when the caller has gone.
            let _ = sender.send(response);
        }
    }

    /// Whether somebody still waits.
    fn is_waiting(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}
