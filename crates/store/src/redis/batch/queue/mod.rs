//! Queue of requests waiting to be sent.
//!
//! A server executes all commands that it receives, even those whose callers no longer wait; beyond its capacity, it
//! soon does nothing else. So a request that would miss its deadline, as `LatencyEstimate` has it, is not sent at all.

use std::hash::{BuildHasher as _, Hasher as _};
use std::{collections::VecDeque, mem, time::Duration};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tokio::{sync::oneshot, time::Instant};
use tollgate_core::algorithm::{Algorithm, Charging};
use tollgate_core::descriptor::Hits;

use super::pending::{BoxedRequest, PendingRequest, Waiter};
use super::{DecisionResult, Submission};
use crate::redis::error::SendError;
use crate::request::{Check, TagRequest};

/// Requests ahead from which on the estimate applies: fewer take hardly any time.
const MIN_QUEUED_CALLS: usize = 512;

/// Smallest batch that is sampled. The time of a smaller one is mostly that of the network.
const MIN_SAMPLE_CALLS: usize = 256;

/// Divisor of the moving average: a sample has the weight 1/4.
const SMOOTHING_DIVISOR: u64 = 4;

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
    admission: Admission,
    pub(super) latency: LatencyEstimate,
    hasher: RandomState,
}

/// Whether requests are accepted.
#[derive(Debug, Default)]
enum Admission {
    #[default]
    Open,
    /// Requests fail at once, for this reason.
    Closed(SendError),
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
        match &self.admission {
            Admission::Open => Ok(()),
            Admission::Closed(error) => Err(error.clone()),
        }
    }

    /// Accepts requests from now on.
    pub(super) fn open(&mut self) {
        self.admission = Admission::Open;
    }

    /// Appends a request, or adds its caller to an identical one. Returns whether the queue was empty.
    ///
    /// # Errors
    /// The reason why requests are not accepted; [`SendError::Overloaded`] if the response would be too late.
    pub(super) fn push(
        &mut self,
        submission: Submission<'_>,
        sender: oneshot::Sender<DecisionResult>,
    ) -> Result<bool, SendError> {
        self.ensure_available()?;
        if self.callers >= MAX_QUEUED_CALLERS {
            return Err(SendError::Overloaded);
        }
        let was_empty = self.queued.is_empty();
        self.earliest_deadline = earlier(self.earliest_deadline, Some(submission.deadline));
        let Submission { request, clock, made_at, deadline } = submission;
        let time_left = deadline.duration_since(made_at);
        let has_room = self.queued.len() < MAX_QUEUED_REQUESTS
            && self.latency.meets_deadline(self.queued.len(), time_left);
        let waiter = Waiter::new(sender, deadline);
        let hash = is_coalescable(request).then(|| self.hash_of(request));
        if let Some(hash) = hash {
            let Self { queued, coalescable, head, callers, .. } = self;
            let is_identical = |sequence: &u64| {
                pending_at(queued, *head, *sequence).is_some_and(|pending| {
                    // Requests that can be coalesced have the same charging.
                    pending.clock == clock && pending.request.cells == request.cells
                })
            };
            if let Some(pending) = coalescable.find(hash, is_identical).copied().and_then(|sequence| {
                let at = usize::try_from(sequence.wrapping_sub(*head)).ok()?;
                queued.get_mut(at)
            }) {
                pending.waiters.push(waiter);
                *callers = callers.saturating_add(1);
                return Ok(was_empty);
            }
            if !has_room {
                return Err(SendError::Overloaded);
            }
            let sequence = head.wrapping_add(queued.len() as u64);
            coalescable.insert_unique(hash, sequence, |sequence| {
                pending_at(queued, *head, *sequence).and_then(|pending| pending.hash).unwrap_or_default()
            });
        }
        if !has_room {
            return Err(SendError::Overloaded);
        }
        self.callers = self.callers.saturating_add(1);
        self.queued.push_back(Box::new(PendingRequest::new(request.clone(), clock, waiter, hash)));
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
        self.admission = Admission::Closed(error.clone());
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
            let is_abandoned = pending.is_abandoned();
            abandoned = abandoned.saturating_add(usize::from(is_abandoned));
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
        let hash_at = |sequence: &u64| {
            pending_at(queued, *head, *sequence).and_then(|pending| pending.hash).unwrap_or_default()
        };
        for (at, pending) in (0_u64..).zip(queued.iter()) {
            if let Some(hash) = pending.hash {
                coalescable.insert_unique(hash, head.wrapping_add(at), hash_at);
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

fn pending_at(queued: &VecDeque<BoxedRequest>, head: u64, sequence: u64) -> Option<&PendingRequest> {
    queued.get(usize::try_from(sequence.wrapping_sub(head)).ok()?).map(|pending| &**pending)
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

/// Moving average of the time per request, and the number of requests in flight.
#[derive(Debug, Default)]
pub(super) struct LatencyEstimate {
    in_flight: usize,
    /// Moving average of the time per request.
    nanos_per_call: u64,
    completed_at: Option<Instant>,
}

impl LatencyEstimate {
    /// Records that `calls` requests were sent.
    pub(super) const fn sent(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_add(calls);
    }

    /// Records that `calls` requests are no longer awaited.
    pub(super) const fn remove(&mut self, calls: usize) {
        self.in_flight = self.in_flight.saturating_sub(calls);
    }

    /// Records the response to `calls` requests that were sent together.
    pub(super) fn complete(&mut self, calls: usize, sent_at: Instant, now: Instant) {
        self.remove(calls);
        // Earlier batches are executed first.
        let started =
            self.completed_at.replace(now).map_or(sent_at, |completed_at| completed_at.max(sent_at));
        if calls < MIN_SAMPLE_CALLS {
            return;
        }
        let sample = now.duration_since(started).as_nanos().checked_div(calls as u128);
        let sample = sample.and_then(|sample| u64::try_from(sample).ok()).unwrap_or(u64::MAX);
        let part = |of: u64| of / SMOOTHING_DIVISOR;
        self.nanos_per_call = match self.nanos_per_call {
            0 => sample,
            nanos_per_call => {
                nanos_per_call.saturating_sub(part(nanos_per_call)).saturating_add(part(sample))
            }
        };
    }

    /// Whether a request behind `waiting` queued ones would be answered within `time_left`.
    pub(super) fn meets_deadline(&self, waiting: usize, time_left: Duration) -> bool {
        let ahead = self.in_flight.saturating_add(waiting);
        let nanos = self.nanos_per_call.saturating_mul(ahead as u64);
        ahead < MIN_QUEUED_CALLS || Duration::from_nanos(nanos) < time_left
    }
}

#[cfg(test)]
mod tests;
