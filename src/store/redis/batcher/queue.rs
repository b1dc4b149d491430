//! Calls that wait to be sent, and who waits for them.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, Hasher as _},
    mem,
};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tokio::{sync::oneshot, time::Instant};

use super::{Answer, Request};
use crate::{
    algorithm::Charging,
    descriptor::Hits,
    store::{
        call::{Ask, Call},
        redis::{ScriptClock, connection::SendError, local::Wishes},
    },
};

/// Callers of one call at the most: what a command can say of how often it is made.
const MOST_RIDERS: usize = u16::MAX as usize;

/// Calls in the order in which they came. Ones that ask the same share a place.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Places of those that others may join, by the hash of what they ask; counted from the first that ever waited.
    joinable: HashTable<u64>,
    /// How many went before the first that waits.
    gone: u64,
    hasher: RandomState,
}

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
    hash: Option<u64>,
    pub(super) wishes: Wishes,
}

/// One who waits for an answer.
#[derive(Debug)]
pub(super) struct Rider {
    answer: Option<oneshot::Sender<Answer>>,
    deadline: Instant,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a call at the end, or its caller to those of one that asks the same. Says whether nothing waited before.
    pub(super) fn push(&mut self, request: Request<'_>, answer: oneshot::Sender<Answer>) -> bool {
        let was_empty = self.waiting.is_empty();
        let Request { call, clock, deadline, .. } = request;
        let rider = Rider { answer: Some(answer), deadline };
        let hash = can_be_joined(call).then(|| self.hash_of(call));
        if let Some(hash) = hash {
            let Self { waiting, joinable, gone, .. } = self;
            let asks_same = |place: &u64| {
                group_at(waiting, *gone, *place).is_some_and(|group| {
                    // Those that can be joined are charged alike.
                    group.clock == clock && group.riders.len() < MOST_RIDERS && group.call.cells == call.cells
                })
            };
            if let Some(group) = joinable.find(hash, asks_same).copied().and_then(|place| {
                let at = usize::try_from(place.wrapping_sub(*gone)).ok()?;
                waiting.get_mut(at)
            }) {
                group.riders.push(rider);
                return was_empty;
            }
            let place = gone.wrapping_add(waiting.len() as u64);
            joinable.insert_unique(hash, place, |place| {
                group_at(waiting, *gone, *place).and_then(|group| group.hash).unwrap_or_default()
            });
        }
        let riders = SmallVec::from_iter([rider]);
        self.waiting.push_back(Box::new(Group {
            call: call.clone(),
            clock,
            riders,
            attempts: 0,
            hash,
            wishes: Wishes::new(),
        }));
        was_empty
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
        if let Some(hash) = group.hash
            && let Ok(entry) = self.joinable.find_entry(hash, |known| *known == place)
        {
            entry.remove();
        }
        Some(group)
    }

    /// Tells everybody that waits why there will be no answer.
    pub(super) fn fail(&mut self, error: &SendError) {
        self.joinable.clear();
        self.gone = self.gone.wrapping_add(self.waiting.len() as u64);
        for mut group in mem::take(&mut self.waiting) {
            group.fail(error);
        }
    }

    /// Tells those whose time is over so, and drops calls that nobody waits for any more, but for some behind others.
    pub(super) fn expire(&mut self, now: Instant) {
        self.waiting.iter_mut().for_each(|group| group.expire(now, &SendError::Unsent));
        while self.waiting.front_mut().is_some_and(|group| !group.keep_waiting()) {
            drop(self.pop());
        }
    }

    fn hash_of(&self, call: &Call) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for cell in &call.cells {
            hasher.write(cell.key.as_bytes());
            cell.asks.iter().for_each(|ask| hasher.write(ask.record.as_bytes()));
        }
        hasher.finish()
    }
}

fn group_at(waiting: &VecDeque<Waiting>, gone: u64, place: u64) -> Option<&Group> {
    waiting.get(usize::try_from(place.wrapping_sub(gone)).ok()?).map(|group| &**group)
}

/// Whether making the call several times is the same as making each of its asks several times: its counters are
/// charged each for itself, and each is asked once. What gives back is made alone, as is what is kept hit by hit.
fn can_be_joined(call: &Call) -> bool {
    let [cell] = call.cells.as_slice() else { return false };
    let is_plain =
        |ask: &Ask| matches!(ask.hits, Hits::Peek | Hits::Charge(_)) && !ask.policy.algorithm().has_own_key();
    call.charging == Charging::EachForItself
        && cell.asks.iter().all(|ask| is_plain(ask) && cell.asks_once(ask.record))
}

impl Group {
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

    /// Forgets those who don't wait any more; says whether there are others.
    pub(super) fn keep_waiting(&mut self) -> bool {
        self.riders.retain(|rider| rider.waits());
        !self.riders.is_empty()
    }

    /// When the last of those who wait stops to.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.riders.iter().map(|rider| rider.deadline).max()
    }
}

impl Rider {
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

#[cfg(test)]
mod tests;
