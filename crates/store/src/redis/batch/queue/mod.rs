//! Queue of requests waiting to be sent.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, Hasher as _},
    mem,
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tokio::{sync::oneshot, time::Instant};
use tollgate_core::{
    algorithm::{Algorithm, Charging},
    descriptor::Hits,
};

use super::{
    DecisionResult, Submission,
    group::{BoxedGroup, Group, Waiter},
    latency_estimate::LatencyEstimate,
};
use crate::{
    redis::connection::SendError,
    request::{Check, TagRequest},
};

/// Maximum number of queued requests, coalesced ones counted once: as many as a server decides in some tens of
/// milliseconds, so one more would hardly meet its deadline.
const MAX_QUEUED_REQUESTS: usize = 4_096;

/// Maximum number of waiting callers. The repetitions of a run, a 16-bit number, could express more.
const MAX_QUEUED_CALLERS: usize = 32_768;

/// Requests in order of arrival. Identical ones are coalesced.
#[derive(Debug, Default)]
pub(super) struct Queue {
    queued: VecDeque<BoxedGroup>,
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
        (self.callers, self.latency.in_flight())
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
        let time_left = deadline.saturating_duration_since(made_at);
        let has_room = self.queued.len() < MAX_QUEUED_REQUESTS
            && self.latency.meets_deadline(self.queued.len(), time_left);
        let waiter = Waiter::new(sender, deadline);
        let hash = is_coalescable(request).then(|| self.hash_of(request));
        if let Some(hash) = hash {
            let Self { queued, coalescable, head, callers, .. } = self;
            let is_identical = |sequence: &u64| {
                group_at(queued, *head, *sequence).is_some_and(|group| {
                    // Requests that can be coalesced have the same charging.
                    group.clock == clock && group.request.cells == request.cells
                })
            };
            if let Some(group) = coalescable.find(hash, is_identical).copied().and_then(|sequence| {
                let at = usize::try_from(sequence.wrapping_sub(*head)).ok()?;
                queued.get_mut(at)
            }) {
                group.waiters.push(waiter);
                *callers = callers.saturating_add(1);
                return Ok(was_empty);
            }
            if !has_room {
                return Err(SendError::Overloaded);
            }
            let sequence = head.wrapping_add(queued.len() as u64);
            coalescable.insert_unique(hash, sequence, |sequence| {
                group_at(queued, *head, *sequence).and_then(|group| group.hash).unwrap_or_default()
            });
        }
        if !has_room {
            return Err(SendError::Overloaded);
        }
        self.callers = self.callers.saturating_add(1);
        self.queued.push_back(Box::new(Group::new(request.clone(), clock, waiter, hash)));
        Ok(was_empty)
    }

    /// Removes the first requests, up to `max_requests`, without abandoned ones.
    pub(super) fn take(&mut self, max_requests: usize) -> Vec<BoxedGroup> {
        let mut taken = Vec::with_capacity(max_requests.min(self.queued.len()));
        while taken.len() < max_requests
            && let Some(mut group) = self.pop()
        {
            if group.retain_waiting() {
                taken.push(group);
            }
        }
        taken
    }

    fn pop(&mut self) -> Option<BoxedGroup> {
        let group = self.queued.pop_front()?;
        let sequence = self.head;
        self.head = sequence.wrapping_add(1);
        self.callers = self.callers.saturating_sub(group.waiters.len());
        if let Some(hash) = group.hash
            && let Ok(entry) = self.coalescable.find_entry(hash, |known| *known == sequence)
        {
            entry.remove();
        }
        Some(group)
    }

    /// Fails all queued requests, and new ones from now on.
    pub(super) fn close(&mut self, error: &SendError) {
        self.coalescable.clear();
        self.callers = 0;
        self.head = self.head.wrapping_add(self.queued.len() as u64);
        for mut group in mem::take(&mut self.queued) {
            group.fail(error);
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
        for group in &mut self.queued {
            group.expire(now, &SendError::QueueTimeout);
            self.earliest_deadline = earlier(self.earliest_deadline, group.earliest_deadline());
            let is_abandoned = group.is_abandoned();
            abandoned = abandoned.saturating_add(usize::from(is_abandoned));
        }
        // Abandoned requests count until they are removed, and so do their callers.
        while self.queued.front().is_some_and(|group| group.is_abandoned()) {
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
        queued.retain_mut(|group| group.retain_waiting());
        *callers = queued.iter().map(|group| group.waiters.len()).sum();
        coalescable.clear();
        let hash_at = |sequence: &u64| {
            group_at(queued, *head, *sequence).and_then(|group| group.hash).unwrap_or_default()
        };
        for (at, group) in (0_u64..).zip(queued.iter()) {
            if let Some(hash) = group.hash {
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

fn group_at(queued: &VecDeque<BoxedGroup>, head: u64, sequence: u64) -> Option<&Group> {
    queued.get(usize::try_from(sequence.wrapping_sub(head)).ok()?).map(|group| &**group)
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

#[cfg(test)]
mod tests;
