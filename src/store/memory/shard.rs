//! One lock's worth of counters.

use std::{
    hash::{BuildHasher, Hasher},
    mem,
};

use hashbrown::HashTable;

use crate::{algorithm::State, clock::Timestamp, rules::RecordId};

/// Slots that each new counter looks at for one whose time has passed. More than one, so that the dead are
/// found faster than the living come.
const SWEEP: usize = 2;

/// Slots that are compared when all are taken and one must go.
const CANDIDATES: usize = 32;

/// Counters in one slab, with an index beside it.
///
/// A hand goes round the slab and drops counters whose time has passed, as fast as new ones come. When the weight is
/// too much, one of the next few goes: one that denies nothing before one that does, and the one that ends first
/// among equals.
#[derive(Debug)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    /// Positions in `slots`, by the hash of the slot's name.
    index: HashTable<u32>,
    /// Where the next look for dead counters begins.
    hand: usize,
    /// The weight of all slots' states at most, and of those there are.
    capacity: usize,
    weight: usize,
    evicted: u64,
}

#[derive(Debug)]
struct Slot {
    /// The cell's name, then the record's id.
    name: Box<[u8]>,
    /// The hash of the name, to find the slot's place in the index when it moves.
    hash: u64,
    state: State,
    weight: usize,
    /// When the state is as good as unused, in seconds since the epoch.
    expires_at: u32,
    /// Whether nothing remained after the last decision: the limit is being enforced.
    exhausted: bool,
}

/// A counter's name, in the two parts that make it, with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    cell: &'a [u8],
    record: RecordId,
    hash: u64,
}

impl<'a> Name<'a> {
    pub(super) fn new(hasher: &impl BuildHasher, cell: &'a [u8], record: RecordId) -> Self {
        let mut state = hasher.build_hasher();
        state.write(cell);
        state.write(record.as_bytes());
        Self { cell, record, hash: state.finish() }
    }

    fn is(&self, name: &[u8]) -> bool {
        name.strip_prefix(self.cell).is_some_and(|rest| rest == self.record.as_bytes())
    }

    fn to_bytes(self) -> Box<[u8]> {
        [self.cell, self.record.as_bytes()].concat().into()
    }
}

impl Shard {
    /// An empty shard for at most `capacity` counters of a few words, and at least one counter of any size.
    pub(super) fn new(capacity: usize) -> Self {
        // Positions in the index are 32 bits wide.
        let capacity = capacity.clamp(1, u32::MAX as usize);
        Self { slots: Vec::new(), index: HashTable::new(), hand: 0, capacity, weight: 0, evicted: 0 }
    }

    /// Counters held.
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Live counters dropped to make room.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Takes a counter's state out, to be kept again; that of an unused one when it is not held.
    pub(super) fn take(&mut self, name: &Name<'_>) -> State {
        self.slot(name).map(|slot| mem::take(&mut slot.state)).unwrap_or_default()
    }

    /// Has a look at a counter's state; at that of an unused one when it is not held.
    pub(super) fn look<T>(&mut self, name: &Name<'_>, look: impl FnOnce(&mut State) -> T) -> T {
        match self.slot(name) {
            Some(slot) => look(&mut slot.state),
            None => look(&mut State::default()),
        }
    }

    /// Keeps a counter's new state until `expires_at`, making room when it is a new one.
    pub(super) fn keep(
        &mut self,
        name: &Name<'_>,
        state: State,
        expires_at: u32,
        exhausted: bool,
        now: Timestamp,
    ) {
        let weight = state.weight();
        if let Some(slot) = self.slot(name) {
            let before = mem::replace(&mut slot.weight, weight);
            slot.state = state;
            slot.expires_at = expires_at;
            slot.exhausted = exhausted;
            self.weight = self.weight.saturating_add(weight).saturating_sub(before);
            if weight > before {
                self.make_room(0, Some(name.hash));
            }
            return;
        }
        if expires_at <= now.seconds() {
            return;
        }
        self.sweep(now);
        self.make_room(weight, None);
        let Ok(at) = u32::try_from(self.slots.len()) else { return };
        self.slots.push(Slot {
            name: name.to_bytes(),
            hash: name.hash,
            state,
            weight,
            expires_at,
            exhausted,
        });
        self.weight = self.weight.saturating_add(weight);
        let slots = &self.slots;
        self.index.insert_unique(name.hash, at, |at| hash_at(slots, *at));
    }

    fn slot(&mut self, name: &Name<'_>) -> Option<&mut Slot> {
        self.position(name).and_then(|at| self.slots.get_mut(at))
    }

    fn position(&self, name: &Name<'_>) -> Option<usize> {
        let is_it = |at: &u32| self.slots.get(*at as usize).is_some_and(|slot| name.is(&slot.name));
        self.index.find(name.hash, is_it).map(|at| *at as usize)
    }

    /// The position under the hand, which then moves on.
    fn next_position(&mut self) -> usize {
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
        let at = self.hand;
        self.hand = at.saturating_add(1);
        at
    }

    /// Drops what has ended among the next few slots.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEEP {
            let at = self.next_position();
            if self.slots.get(at).is_some_and(|slot| slot.expires_at <= now.seconds()) {
                self.remove(at);
                // Another slot moved here; it is due a look too.
                self.hand = at;
            }
        }
    }

    /// Drops slots, but for the one of the hash `spared`, until there is room for one more of that weight.
    fn make_room(&mut self, weight: usize, spared: Option<u64>) {
        while self.weight.saturating_add(weight) > self.capacity && self.evict(spared) {}
    }

    /// Drops the next slot that matters least; says no when there is none.
    fn evict(&mut self, spared: Option<u64>) -> bool {
        let candidates =
            (0..CANDIDATES.min(self.slots.len())).map(|_| self.next_position()).collect::<Vec<_>>();
        let rank = |at: &usize| self.slots.get(*at).map(|slot| (slot.exhausted, slot.expires_at));
        let is_spared = |at: &usize| self.slots.get(*at).map(|slot| slot.hash) == spared;
        match candidates.into_iter().filter(|at| !is_spared(at)).min_by_key(rank) {
            Some(at) => {
                self.remove(at);
                self.evicted = self.evicted.saturating_add(1);
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, at: usize) {
        if at >= self.slots.len() {
            return;
        }
        let gone = self.slots.swap_remove(at);
        self.weight = self.weight.saturating_sub(gone.weight);
        if let Ok(entry) = self.index.find_entry(gone.hash, |known| *known as usize == at) {
            entry.remove();
        }
        // The last slot has moved into the gap; the index still knows it by its old position.
        let old = self.slots.len();
        if let Some(moved) = self.slots.get(at)
            && let Some(known) = self.index.find_mut(moved.hash, |known| *known as usize == old)
            && let Ok(at) = u32::try_from(at)
        {
            *known = at;
        }
    }
}

fn hash_at(slots: &[Slot], at: u32) -> u64 {
    slots.get(at as usize).map_or(0, |slot| slot.hash)
}
