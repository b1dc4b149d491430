//! Calls that wait to be sent.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, Hasher as _},
    mem,
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tokio::{sync::oneshot, time::Instant};

use super::{
    Answer, Submission,
    group::{Group, Waiter, Waiting},
    latency_estimate::LatencyEstimate,
};
use crate::{
    redis::connection::SendError,
    request::{Check, TagRequest},
};
use tollgate_core::{algorithm::Charging, descriptor::Hits};

/// Calls that wait at the most, those that ask the same as one: what a server decides within some tens of milliseconds,
/// so one more would hardly have its turn in time.
const MOST_WAITING: usize = 4_096;

/// Callers that wait at the most; a command can say of more that they make the same call.
const MOST_CALLERS: usize = 32_768;

/// Calls in the order in which they came. Ones that ask the same share a place.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Places of those that others may join, by the hash of what they ask; counted from the first that ever waited.
    joinable: HashTable<u64>,
    /// How many went before the first that waits.
    gone: u64,
    /// How many wait, those included whose time is over but whose call is still here.
    callers: usize,
    /// No time of anyone who waits is over before this.
    earliest: Option<Instant>,
    gate: Gate,
    pub(super) latency: LatencyEstimate,
    hasher: RandomState,
}

/// Whether calls may wait.
#[derive(Debug, Default)]
enum Gate {
    #[default]
    Open,
    /// They fail at once, for this reason.
    Shut(SendError),
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Callers that wait, and calls that are under way.
    pub(super) const fn waiting(&self) -> (usize, usize) {
        (self.callers, self.latency.under_way())
    }

    /// Why a call would fail at once, if it would.
    pub(super) fn check(&self) -> Result<(), SendError> {
        match &self.gate {
            Gate::Open => Ok(()),
            Gate::Shut(error) => Err(error.clone()),
        }
    }

    /// Lets calls wait, from now on.
    pub(super) fn open(&mut self) {
        self.gate = Gate::Open;
    }

    /// Adds a call at the end, or its caller to those of one that asks the same. Says whether nothing waited before.
    ///
    /// # Errors
    /// Why calls may not wait; [`SendError::Crowded`] when so many do that it would be answered too late.
    pub(super) fn push(
        &mut self,
        request: Submission<'_>,
        answer: oneshot::Sender<Answer>,
    ) -> Result<bool, SendError> {
        self.check()?;
        if self.callers >= MOST_CALLERS {
            return Err(SendError::Crowded);
        }
        let was_empty = self.waiting.is_empty();
        self.earliest = earlier(self.earliest, Some(request.deadline));
        let Submission { call, clock, made_at, deadline } = request;
        let within = deadline.saturating_duration_since(made_at);
        let has_room =
            self.waiting.len() < MOST_WAITING && self.latency.is_in_time(self.waiting.len(), within);
        let waiter = Waiter::new(answer, deadline);
        let hash = can_be_joined(call).then(|| self.hash_of(call));
        if let Some(hash) = hash {
            let Self { waiting, joinable, gone, callers, .. } = self;
            let asks_same = |place: &u64| {
                group_at(waiting, *gone, *place).is_some_and(|group| {
                    // Those that can be joined are charged alike.
                    group.clock == clock && group.call.cells == call.cells
                })
            };
            if let Some(group) = joinable.find(hash, asks_same).copied().and_then(|place| {
                let at = usize::try_from(place.wrapping_sub(*gone)).ok()?;
                waiting.get_mut(at)
            }) {
                group.waiters.push(waiter);
                *callers = callers.saturating_add(1);
                return Ok(was_empty);
            }
            if !has_room {
                return Err(SendError::Crowded);
            }
            let place = gone.wrapping_add(waiting.len() as u64);
            joinable.insert_unique(hash, place, |place| {
                group_at(waiting, *gone, *place).and_then(|group| group.hash).unwrap_or_default()
            });
        }
        if !has_room {
            return Err(SendError::Crowded);
        }
        self.callers = self.callers.saturating_add(1);
        self.waiting.push_back(Box::new(Group::new(call.clone(), clock, waiter, hash)));
        Ok(was_empty)
    }

    /// Takes the first calls out, at most so many, without those that nobody waits for any more.
    pub(super) fn take(&mut self, most: usize) -> Vec<Waiting> {
        let mut taken = Vec::with_capacity(most.min(self.waiting.len()));
        while taken.len() < most
            && let Some(mut group) = self.pop()
        {
            if group.keep_waiting() {
                taken.push(group);
            }
        }
        taken
    }

    fn pop(&mut self) -> Option<Waiting> {
        let group = self.waiting.pop_front()?;
        let place = self.gone;
        self.gone = place.wrapping_add(1);
        self.callers = self.callers.saturating_sub(group.waiters.len());
        if let Some(hash) = group.hash
            && let Ok(entry) = self.joinable.find_entry(hash, |known| *known == place)
        {
            entry.remove();
        }
        Some(group)
    }

    /// Tells everybody that waits, or comes, why there will be no answer.
    pub(super) fn shut(&mut self, error: &SendError) {
        self.joinable.clear();
        self.callers = 0;
        self.gone = self.gone.wrapping_add(self.waiting.len() as u64);
        for mut group in mem::take(&mut self.waiting) {
            group.fail(error);
        }
        self.gate = Gate::Shut(error.clone());
    }

    /// Tells those whose time is over so, and drops calls that nobody waits for any more. Some of them stay behind others
    /// for as long as these are in the majority.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.earliest.is_none_or(|earliest| now < earliest) {
            return;
        }
        self.earliest = None;
        let mut dead = 0_usize;
        for group in &mut self.waiting {
            group.expire(now, &SendError::Unsent);
            self.earliest = earlier(self.earliest, group.earliest());
            let is_dead = group.is_dead();
            dead = dead.saturating_add(usize::from(is_dead));
        }
        // They count until they are gone, their callers among them who went before.
        while self.waiting.front().is_some_and(|group| group.is_dead()) {
            drop(self.pop());
            dead = dead.saturating_sub(1);
        }
        if dead > self.waiting.len() / 2 {
            self.sweep();
        }
    }

    /// Drops whom nobody waits for, wherever they are.
    fn sweep(&mut self) {
        let Self { waiting, joinable, gone, callers, .. } = self;
        *gone = gone.wrapping_add(waiting.len() as u64);
        waiting.retain_mut(|group| group.keep_waiting());
        *callers = waiting.iter().map(|group| group.waiters.len()).sum();
        joinable.clear();
        let hash_at =
            |place: &u64| group_at(waiting, *gone, *place).and_then(|group| group.hash).unwrap_or_default();
        for (at, group) in (0_u64..).zip(waiting.iter()) {
            if let Some(hash) = group.hash {
                joinable.insert_unique(hash, gone.wrapping_add(at), hash_at);
            }
        }
    }

    fn hash_of(&self, call: &TagRequest) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for cell in &call.cells {
            hasher.write(cell.key.as_bytes());
            cell.checks.iter().for_each(|ask| hasher.write(ask.record.as_bytes()));
        }
        hasher.finish()
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

fn group_at(waiting: &VecDeque<Waiting>, gone: u64, place: u64) -> Option<&Group> {
    waiting.get(usize::try_from(place.wrapping_sub(gone)).ok()?).map(|group| &**group)
}

/// Whether making the call several times is the same as making each of its asks several times: its counters are
/// charged each for itself, and each is asked once. What gives back is made alone, as is what is kept hit by hit.
fn can_be_joined(call: &TagRequest) -> bool {
    let [cell] = call.cells.as_slice() else { return false };
    let is_printable = |ask: &Check| {
        matches!(ask.hits, Hits::Peek | Hits::Charge(_)) && !ask.policy.algorithm().has_own_key()
    };
    call.charging == Charging::Independent
        && cell.checks.iter().all(|ask| is_printable(ask) && cell.checks_once(ask.record))
}

#[cfg(test)]
mod tests;
