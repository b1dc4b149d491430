//! A call on its way, and who waits for its answer.

use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::Answer;
use crate::store::{
    call::Call,
    redis::{ScriptClock, connection::SendError, local::Wishes},
};

/// A group on its way, boxed since it changes hands some times.
pub(super) type Waiting = Box<Group>;

/// A call, and all who made it.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) call: Call,
    pub(super) clock: ScriptClock,
    pub(super) riders: SmallVec<[Rider; 1]>,
    /// How often it was sent to a server that did not know the script.
    pub(super) attempts: u32,
    /// Of what it asks, where others may join.
    pub(super) hash: Option<u64>,
    pub(super) wishes: Wishes,
}

/// One who waits for an answer.
#[derive(Debug)]
pub(super) struct Rider {
    answer: Option<oneshot::Sender<Answer>>,
    deadline: Instant,
}

impl Group {
    pub(super) fn new(call: Call, clock: ScriptClock, first: Rider, hash: Option<u64>) -> Self {
        let riders = SmallVec::from_iter([first]);
        Self { call, clock, riders, attempts: 0, hash, wishes: Wishes::new() }
    }

    /// How often the call is made.
    pub(super) fn times(&self) -> u16 {
        u16::try_from(self.riders.len()).unwrap_or(u16::MAX)
    }

    /// Tells everybody the same.
    pub(super) fn fail(&mut self, error: &SendError) {
        self.riders.iter_mut().for_each(|rider| rider.answer(Err(error.clone())));
    }

    /// Tells those whose time is over so.
    pub(super) fn expire(&mut self, now: Instant, error: &SendError) {
        let expired = self.riders.iter_mut().filter(|rider| rider.deadline <= now);
        expired.for_each(|rider| rider.answer(Err(error.clone())));
    }

    /// When the first of those who wait stops to.
    pub(super) fn earliest(&self) -> Option<Instant> {
        self.riders.iter().filter(|rider| rider.waits()).map(|rider| rider.deadline).min()
    }

    /// Whether nobody waits any more.
    pub(super) fn is_dead(&self) -> bool {
        self.riders.iter().all(|rider| !rider.waits())
    }

    /// Forgets those who don't wait any more; says whether there are others.
    pub(super) fn keep_waiting(&mut self) -> bool {
        self.riders.retain(|rider| rider.waits());
        !self.riders.is_empty()
    }
}

impl Rider {
    pub(super) const fn new(answer: oneshot::Sender<Answer>, deadline: Instant) -> Self {
        Self { answer: Some(answer), deadline }
    }

    pub(super) fn answer(&mut self, answer: Answer) {
        if let Some(sender) = self.answer.take() {
            // Fails when the caller has gone.
            let _ = sender.send(answer);
        }
    }

    /// Whether somebody still waits.
    fn waits(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }
}
