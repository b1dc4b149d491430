//! Queue of requests waiting to be sent, and the callers that wait for their verdicts.
//!
//! A server executes all commands that it receives, even those whose callers no longer wait; beyond its capacity, it
//! soon does nothing else. So a request that would miss its deadline, as `LatencyEstimate` has it, is not sent at all.

mod latency;

use std::hash::{BuildHasher as _, Hasher as _};
use std::{collections::VecDeque, mem};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};
use tollgate_core::algorithm::{Algorithm, Charging};
use tollgate_core::{clock::Timestamp, descriptor::Hits};

use self::latency::LatencyEstimate;
use super::{CallTimes, DecisionResult};
use crate::redis::error::SendError;
use crate::redis::script::Run;
use crate::request::{Check, TagRequest};
use crate::{LateOutcome, LateReply, local::Attachment};

/// Maximum number of queued requests, coalesced ones counted once: as many as a server decides in some tens of
/// milliseconds, so one more would hardly meet its deadline.
const MAX_QUEUED_REQUESTS: usize = 4_096;

/// Maximum number of waiting callers. The repetitions of a run, a 16-bit number, could express more.
const MAX_QUEUED_CALLERS: usize = 32_768;

/// Requests in order of arrival. Identical ones are coalesced.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queued: VecDeque<BoxedRequest>,
    /// Sequence numbers of requests that can be coalesced, by the hash of the request.
    coalescable: HashTable<u64>,
    /// Sequence number of the first queued request.
    head: u64,
    /// Number of waiting callers, including those that timed out but whose request is still queued.
    callers: usize,
    /// A lower bound of the deadlines of all waiting callers.
    earliest_deadline: Option<Instant>,
    /// Error with which new requests fail at once.
    refusal: Option<SendError>,
    pub(super) latency: LatencyEstimate,
    hasher: RandomState,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Number of waiting callers, and of requests in flight.
    pub(super) const fn waiting(&self) -> (usize, usize) {
        (self.callers, self.latency.in_flight)
    }

    /// The error with which a request would fail at once, if any.
    pub(super) fn ensure_available(&self) -> Result<(), SendError> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    /// Accepts requests from now on.
    pub(super) fn open(&mut self) {
        self.refusal = None;
    }

    /// Appends a request, or adds its caller to an identical one. Returns whether the queue was empty.
    ///
    /// # Errors
    /// The reason why requests are not accepted; [`SendError::Overloaded`] if the response would be too late.
    pub(super) fn push(
        &mut self,
        request: &TagRequest,
        CallTimes { made_at, deadline, fixed }: CallTimes,
        sender: oneshot::Sender<DecisionResult>,
    ) -> Result<bool, SendError> {
        self.ensure_available()?;
        if self.callers >= MAX_QUEUED_CALLERS {
            return Err(SendError::Overloaded);
        }
        let was_empty = self.queued.is_empty();
        self.earliest_deadline = earlier(self.earliest_deadline, Some(deadline));
        let time_left = deadline.duration_since(made_at);
        let has_room = self.queued.len() < MAX_QUEUED_REQUESTS
            && self.latency.meets_deadline(self.queued.len(), time_left);
        let waiter = Waiter::new(sender, deadline);
        let hash = is_coalescable(request).then(|| self.hash_of(request));
        let Self { queued, coalescable, head, callers, .. } = self;
        // Requests that can be coalesced have the same charging.
        let is_identical = |sequence: &u64| {
            pending_at(queued, *head, *sequence)
                .is_some_and(|known| known.fixed == fixed && known.request.cells == request.cells)
        };
        let known = hash.and_then(|hash| coalescable.find(hash, is_identical).copied());
        if let Some(pending) = known.and_then(|sequence| queued.get_mut(place(*head, sequence)?)) {
            pending.waiters.push(waiter);
            *callers = callers.saturating_add(1);
            return Ok(was_empty);
        }
        if !has_room {
            return Err(SendError::Overloaded);
        }
        if let Some(hash) = hash {
            let sequence = head.wrapping_add(queued.len() as u64);
            coalescable.insert_unique(hash, sequence, |sequence| hash_at(queued, *head, *sequence));
        }
        *callers = callers.saturating_add(1);
        queued.push_back(Box::new(PendingRequest::new(request.clone(), fixed, waiter, hash)));
        Ok(was_empty)
    }

    /// Removes the first requests, up to `max_requests`, without abandoned ones.
    pub(super) fn take(&mut self, max_requests: usize) -> Vec<BoxedRequest> {
        let mut taken = Vec::with_capacity(max_requests.min(self.queued.len()));
        while taken.len() < max_requests
            && let Some(mut pending) = self.pop()
        {
            if pending.retain_waiting() {
                taken.push(pending);
            }
        }
        taken
    }

    fn pop(&mut self) -> Option<BoxedRequest> {
        let pending = self.queued.pop_front()?;
        let sequence = self.head;
        self.head = sequence.wrapping_add(1);
        self.callers = self.callers.saturating_sub(pending.waiters.len());
        if let Some(hash) = pending.hash
            && let Ok(entry) = self.coalescable.find_entry(hash, |known| *known == sequence)
        {
            entry.remove();
        }
        Some(pending)
    }

    /// Fails all queued requests, and new ones from now on.
    pub(super) fn close(&mut self, error: &SendError) {
        self.coalescable.clear();
        self.callers = 0;
        self.head = self.head.wrapping_add(self.queued.len() as u64);
        for mut pending in mem::take(&mut self.queued) {
            pending.fail(error);
        }
        self.refusal = Some(error.clone());
    }

    /// Fails callers whose deadline has passed, and drops abandoned requests. Some of them stay in the queue as long as
    /// they are in the minority.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.earliest_deadline.is_none_or(|earliest_deadline| now < earliest_deadline) {
            return;
        }
        self.earliest_deadline = None;
        let mut abandoned = 0_usize;
        for pending in &mut self.queued {
            pending.expire(now, &SendError::QueueTimeout);
            self.earliest_deadline = earlier(self.earliest_deadline, pending.earliest_deadline());
            abandoned = abandoned.saturating_add(usize::from(pending.is_abandoned()));
        }
        // Abandoned requests count until they are removed, and so do their callers.
        while self.queued.front().is_some_and(|pending| pending.is_abandoned()) {
            drop(self.pop());
            abandoned = abandoned.saturating_sub(1);
        }
        if abandoned > self.queued.len() / 2 {
            self.sweep();
        }
    }

    /// Drops abandoned requests, wherever they are.
    fn sweep(&mut self) {
        let Self { queued, coalescable, head, callers, .. } = self;
        *head = head.wrapping_add(queued.len() as u64);
        queued.retain_mut(|pending| pending.retain_waiting());
        *callers = queued.iter().map(|pending| pending.waiters.len()).sum();
        coalescable.clear();
        for (at, pending) in (0_u64..).zip(queued.iter()) {
            if let Some(hash) = pending.hash {
                coalescable
                    .insert_unique(hash, head.wrapping_add(at), |sequence| hash_at(queued, *head, *sequence));
            }
        }
    }

    fn hash_of(&self, request: &TagRequest) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for cell in &request.cells {
            hasher.write(cell.key.as_bytes());
            cell.checks.iter().for_each(|check| hasher.write(check.record.as_bytes()));
        }
        hasher.finish()
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// Place of a request in the queue.
fn place(head: u64, sequence: u64) -> Option<usize> {
    usize::try_from(sequence.wrapping_sub(head)).ok()
}

fn pending_at(queued: &VecDeque<BoxedRequest>, head: u64, sequence: u64) -> Option<&PendingRequest> {
    queued.get(place(head, sequence)?).map(|pending| &**pending)
}

fn hash_at(queued: &VecDeque<BoxedRequest>, head: u64, sequence: u64) -> u64 {
    pending_at(queued, head, sequence).and_then(|pending| pending.hash).unwrap_or_default()
}

/// Whether repeating the request equals repeating each of its checks: its counters are charged independently, and each
/// is checked once; one that records single hits alone. Refunds and charges beyond the limit are never coalesced.
fn is_coalescable(request: &TagRequest) -> bool {
    let [cell] = request.cells.as_slice() else { return false };
    let is_replayable = |check: &Check| {
        let is_alone = cell.checks.len() == 1;
        let is_alone = is_alone && check.policy.algorithm() != Algorithm::Budget;
        let is_plain = (is_alone || !check.policy.algorithm().has_own_key()) && !check.policy.has_bound();
        matches!(check.hits, Hits::Peek | Hits::Charge(_)) && is_plain
    };
    request.charging == Charging::Independent
        && cell.checks.iter().all(|check| is_replayable(check) && cell.checks_once(check.record))
}

/// A queued or sent request, boxed since it is moved several times.
pub(super) type BoxedRequest = Box<PendingRequest>;

/// A request and all callers that made it.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: TagRequest,
    /// Time that a test has set.
    pub(super) fixed: Option<Timestamp>,
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
    pub(super) fn new(
        request: TagRequest,
        fixed: Option<Timestamp>,
        first: Waiter,
        hash: Option<u64>,
    ) -> Self {
        let waiters = SmallVec::from_iter([first]);
        Self { request, fixed, waiters, attempts: 0, hash, attachment: Attachment::default() }
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

#[cfg(test)]
mod tests;
