//! Requests that wait to be sent or for their replies, with the callers that wait for them.

use ::redis::Value;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::DecisionResult;
use crate::redis::script::{CommandKeys, Run};
use crate::redis::{ScriptClock, error::SendError};
use crate::{LateOutcome, LateReply, local::Attachment, request::TagRequest};

/// Number of a write, and the response to it.
pub(super) type Response = (u64, Result<Vec<Value>, SendError>);

/// Requests sent in one write, which await their responses.
pub(super) struct Batch {
    pub(super) number: u64,
    /// Generation of the connection.
    pub(super) generation: u64,
    pub(super) sent_at: Instant,
    pub(super) commands: Vec<Command>,
    /// Number of scripts that the write loads before.
    pub(super) loads: usize,
}

impl Batch {
    pub(super) fn requests(&self) -> usize {
        self.commands.iter().map(|command| command.pending.len()).sum()
    }
}

/// Calls of one command.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) keys: CommandKeys,
    pub(super) pending: Vec<BoxedRequest>,
}

/// A queued or sent request, boxed since it is moved several times.
pub(super) type BoxedRequest = Box<PendingRequest>;

/// A request and all callers that made it.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: TagRequest,
    pub(super) clock: ScriptClock,
    pub(super) waiters: SmallVec<[Waiter; 1]>,
    /// Number of times it was sent to a server without the script.
    pub(super) attempts: u32,
    /// Hash of the request, if it can be coalesced.
    pub(super) hash: Option<u64>,
    pub(super) attachment: Attachment,
}

/// A caller that waits for a response.
#[derive(Debug)]
pub(super) struct Waiter {
    sender: Option<oneshot::Sender<DecisionResult>>,
    deadline: Instant,
    /// Set when the deadline passed while the request was in flight.
    late: Option<LateReply>,
}

impl PendingRequest {
    pub(super) fn new(request: TagRequest, clock: ScriptClock, first: Waiter, hash: Option<u64>) -> Self {
        let waiters = SmallVec::from_iter([first]);
        Self { request, clock, waiters, attempts: 0, hash, attachment: Attachment::default() }
    }

    /// The request with its repetitions, as the script reads it.
    pub(super) fn run(&self) -> Run<'_> {
        let Self { request, attachment: Attachment { prefetches, reported }, .. } = self;
        let times = u16::try_from(self.waiters.len()).unwrap_or(u16::MAX);
        Run { request, times, prefetches, reported }
    }

    /// Sends an error to all callers.
    pub(super) fn fail(&mut self, error: &SendError) {
        self.waiters.iter_mut().for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// Sends an error to the callers whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant, error: &SendError) {
        let expired = self.waiters.iter_mut().filter(|waiter| waiter.deadline <= now);
        expired.for_each(|waiter| waiter.respond(Err(error.clone())));
    }

    /// Sends a time-out to the callers whose deadline has passed: the request is in flight, and its reply still awaited.
    pub(super) fn time_out(&mut self, now: Instant) {
        self.waiters.iter_mut().filter(|waiter| waiter.deadline <= now).for_each(Waiter::time_out);
    }

    /// Whether a caller waits whose deadline has passed.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.waiters.iter().any(|waiter| waiter.deadline <= now && waiter.is_waiting())
    }

    /// Earliest deadline of the waiting callers.
    pub(super) fn earliest_deadline(&self) -> Option<Instant> {
        self.waiters.iter().filter(|waiter| waiter.is_waiting()).map(|waiter| waiter.deadline).min()
    }

    /// Whether no caller waits any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.waiters.iter().all(|waiter| !waiter.is_waiting())
    }

    /// Drops callers that stopped waiting; returns whether others remain. Only for a request that is not in flight.
    pub(super) fn retain_waiting(&mut self) -> bool {
        self.waiters.retain(|waiter| {
            let is_waiting = waiter.is_waiting();
            if let Some(late) = waiter.late.take_if(|_| !is_waiting) {
                late.arrived(LateOutcome::NotCharged);
            }
            is_waiting
        });
        !self.waiters.is_empty()
    }
}

impl Waiter {
    pub(super) const fn new(sender: oneshot::Sender<DecisionResult>, deadline: Instant) -> Self {
        Self { sender: Some(sender), deadline, late: None }
    }

    pub(super) fn respond(&mut self, response: DecisionResult) {
        if let Some(sender) = self.sender.take() {
            // Fails when the caller is dropped.
            let _ = sender.send(response);
        } else if let Some(late) = self.late.take() {
            match response {
                Ok(verdicts) => late.arrived(LateOutcome::Decided(verdicts)),
                Err(error) if error.charged_nothing() => late.arrived(LateOutcome::NotCharged),
                Err(_) => {}
            }
        }
    }

    fn time_out(&mut self) {
        let late = LateReply::default();
        if let Some(sender) = self.sender.take()
            && sender.send(Err(SendError::Late(late.clone()))).is_ok()
        {
            self.late = Some(late);
        }
    }

    /// Whether the caller still waits.
    fn is_waiting(&self) -> bool {
        self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }
}
