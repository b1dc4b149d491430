//! One lock's worth of counters.

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::{
    counter_key::{CounterKey, StoredKey},
    eviction::EvictionRank,
    slab::Slab,
};
use tollgate_core::{algorithm::State, clock::Timestamp};

/// Slots that each new counter looks at for one whose time has passed. More than one, so that the dead are
/// found faster than the living come.
const SWEEP_SLOTS: usize = 2;

/// Slots that are compared when all are taken and one must go.
const EVICTION_CANDIDATES: usize = 32;

/// Counters in one slab, with an index beside it.
///
/// A hand goes round the slab and drops counters whose time has passed, as fast as new ones come. When the weight is
/// too much, one of the next few goes: the one that was asked for least, where one that denies counts as if it had been
/// asked for some times more, and the one that ends first among equals.
#[derive(Debug)]
pub(super) struct Shard {
    hasher: RandomState,
    slots: Slab<Slot>,
    /// Positions in `slots`, by the hash of the slot's name.
    index: HashTable<u32>,
    /// Where the next look for dead counters begins.
    hand: usize,
    /// The weight of all slots' states at most, and of those there are.
    capacity: usize,
    weight: usize,
    evicted: u64,
    /// Goes up by one, and round, each time that as many counters were dropped to make room as are held.
    epoch: u8,
    /// Counters dropped to make room in this turn.
    epoch_evictions: usize,
}

/// A counter. With a short name it is one cache line, and nothing else has to be fetched to decide it.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    name: StoredKey,
    state: State,
    eviction: EvictionRank,
}

impl Shard {
    /// An empty shard for at most `capacity` counters of a few words, and at least one counter of any size. Its
    /// names are hashed by `hasher`.
    pub(super) fn new(capacity: usize, hasher: RandomState) -> Self {
        // Positions in the index are 32 bits wide.
        let capacity = capacity.clamp(1, u32::MAX as usize);
        Self {
            hasher,
            slots: Slab::new(),
            index: HashTable::new(),
            hand: 0,
            capacity,
            weight: 0,
            evicted: 0,
            epoch: 0,
            epoch_evictions: 0,
        }
    }

    /// Counters held.
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Live counters dropped to make room.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Has a look at a counter's state; at that of an unused one when it is not held.
    pub(super) fn inspect<T>(&mut self, name: &CounterKey<'_>, inspect: impl FnOnce(&mut State) -> T) -> T {
        match self.slot(name) {
            Some(slot) => inspect(&mut slot.state),
            None => inspect(&mut State::default()),
        }
    }

    /// Has a counter decided, that of an unused one when it is not held, and keeps it as long as it stands.
    pub(super) fn decide<T>(
        &mut self,
        name: &CounterKey<'_>,
        now: Timestamp,
        decide: impl FnOnce(&mut State) -> (T, EvictionRank),
    ) -> T {
        let epoch = self.epoch;
        let Some(slot) = self.slot(name) else {
            let mut state = State::default();
            let (result, eviction) = decide(&mut state);
            if eviction.expires_at > now.seconds() {
                self.add(name, state, eviction, now);
            }
            return result;
        };
        let before = slot.state.weight();
        let (result, eviction) = decide(&mut slot.state);
        slot.eviction = eviction.after(slot.eviction, epoch);
        let after = slot.state.weight();
        self.weight = self.weight.saturating_add(after).saturating_sub(before);
        if after > before {
            self.make_room(0, Some(name), now);
        }
        result
    }

    /// Adds a counter that is not held, making room for it.
    fn add(&mut self, name: &CounterKey<'_>, state: State, eviction: EvictionRank, now: Timestamp) {
        let weight = state.weight();
        self.sweep(now);
        self.make_room(weight, None, now);
        let Ok(at) = u32::try_from(self.slots.len()) else { return };
        self.slots.push(Slot { name: name.to_stored(), state, eviction: eviction.at_epoch(self.epoch) });
        self.weight = self.weight.saturating_add(weight);
        self.make_room_in_index(at);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(name.hash, at, |at| hash_at(slots, hasher, *at));
    }

    /// Builds the index of the first `count` slots anew where entries that are gone take up its room: it would grow
    /// for them, though far from full.
    fn make_room_in_index(&mut self, count: u32) {
        let buckets = self.index.num_buckets();
        let most = (buckets / 16).saturating_mul(13);
        if self.index.len() < self.index.capacity() || self.index.len() > most {
            return;
        }
        let (slots, hasher) = (&self.slots, &self.hasher);
        // As many buckets as before.
        self.index = HashTable::with_capacity((buckets / 8).saturating_mul(7));
        for at in 0..count {
            self.index.insert_unique(hash_at(slots, hasher, at), at, |at| hash_at(slots, hasher, *at));
        }
    }

    fn slot(&mut self, name: &CounterKey<'_>) -> Option<&mut Slot> {
        let slots = &self.slots;
        let matches = |at: &u32| slots.get(*at as usize).is_some_and(|slot| name.matches(&slot.name));
        let at = *self.index.find(name.hash, matches)?;
        self.slots.get_mut(at as usize)
    }

    /// The position under the hand, which then moves on.
    const fn next_position(&mut self) -> usize {
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
        let at = self.hand;
        self.hand = at.saturating_add(1);
        at
    }

    /// Drops what has ended among the next few slots.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEEP_SLOTS {
            let at = self.next_position();
            if self.slots.get(at).is_some_and(|slot| slot.eviction.expires_at <= now.seconds()) {
                self.remove(at);
                // Another slot moved here; it is due a look too.
                self.hand = at;
            }
        }
    }

    /// Drops slots, but for the one that is `spared`, until there is room for one more of that weight.
    fn make_room(&mut self, weight: usize, spared: Option<&CounterKey<'_>>, now: Timestamp) {
        while self.weight.saturating_add(weight) > self.capacity && self.evict(spared, now) {}
    }

    /// Drops the next slot that has ended, or of the next few the one that matters least; says no when there is none.
    fn evict(&mut self, spared: Option<&CounterKey<'_>>, now: Timestamp) -> bool {
        let mut least: Option<((u8, u32), usize)> = None;
        for _ in 0..EVICTION_CANDIDATES.min(self.slots.len()) {
            let at = self.next_position();
            let Some(slot) = self.slots.get(at) else { continue };
            if spared.is_some_and(|spared| spared.matches(&slot.name)) {
                continue;
            }
            if slot.eviction.expires_at <= now.seconds() {
                self.remove(at);
                return true;
            }
            let rank = slot.eviction.rank(self.epoch);
            if least.is_none_or(|(least, _)| rank < least) {
                least = Some((rank, at));
            }
        }
        if let Some((_, at)) = least {
            self.remove(at);
            self.evicted = self.evicted.saturating_add(1);
            self.epoch_evictions = self.epoch_evictions.saturating_add(1);
            if self.epoch_evictions > self.slots.len() {
                self.epoch_evictions = 0;
                self.epoch = self.epoch.wrapping_add(1);
            }
        }
        least.is_some()
    }

    fn remove(&mut self, at: usize) {
        let Some(removed) = self.slots.swap_remove(at) else { return };
        self.weight = self.weight.saturating_sub(removed.state.weight());
        let hash = removed.name.hash(&self.hasher);
        if let Ok(entry) = self.index.find_entry(hash, |known| *known as usize == at) {
            entry.remove();
        }
        // The last slot has moved into the gap; the index still knows it by its old position.
        let old = self.slots.len();
        if let Some(moved) = self.slots.get(at)
            && let Some(known) =
                self.index.find_mut(moved.name.hash(&self.hasher), |known| *known as usize == old)
            && let Ok(at) = u32::try_from(at)
        {
            *known = at;
        }
    }
}

fn hash_at(slots: &Slab<Slot>, hasher: &RandomState, at: u32) -> u64 {
    slots.get(at as usize).map_or(0, |slot| slot.name.hash(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::{RecordId, algorithm::Algorithm};

    #[test]
    fn counters_that_come_and_go_leave_the_index_as_large_as_it_was() {
        let hasher = RandomState::default();
        let mut shard = Shard::new(500, hasher.clone());
        let record = RecordId::alone(Algorithm::FixedWindow);
        let eviction = EvictionRank::new(false, 100);
        for number in 0..100_000 {
            let cell = format!("{number}");
            let name = CounterKey::new(&hasher, cell.as_bytes(), &record);
            shard.decide(&name, Timestamp::from_micros(0), |state| {
                *state = State::Words([number, 0, 0]);
                ((), eviction)
            });
            assert_eq!(shard.inspect(&name, |state| state.clone()), State::Words([number, 0, 0]));
        }
        assert_eq!((shard.len(), shard.index.len(), shard.index.num_buckets()), (500, 500, 1024));
        let held = (0..100_000_u32).filter(|number| {
            let cell = format!("{number}");
            let name = CounterKey::new(&hasher, cell.as_bytes(), &record);
            shard.inspect(&name, |state| *state == State::Words([*number, 0, 0]))
                && shard.slot(&name).is_some()
        });
        assert_eq!(held.count(), 500);
    }

    #[test]
    fn what_has_ended_goes_before_anything_that_counts() {
        let hasher = RandomState::default();
        let mut shard = Shard::new(1_000, hasher.clone());
        let record = RecordId::alone(Algorithm::FixedWindow);
        let mut charge = |number: u32, exhausted, expires_at, second: u64| {
            let cell = format!("{number}");
            let name = CounterKey::new(&hasher, cell.as_bytes(), &record);
            let now = Timestamp::from_micros(second * 1_000_000);
            shard.decide(&name, now, |state| {
                let State::Words([count, ..]) = *state else {
                    return (0, EvictionRank::new(exhausted, expires_at));
                };
                *state = State::Words([count + 1, 0, 0]);
                (count + 1, EvictionRank::new(exhausted, expires_at))
            })
        };
        // Most of what is held is exhausted, and soon over.
        for number in 0..900 {
            charge(number, true, 10, 0);
        }
        for number in 900..1_000 {
            charge(number, false, 1_000, 0);
        }
        for number in 1_000..1_900 {
            charge(number, false, 1_000, 20);
        }
        for number in 900..1_000 {
            assert_eq!(charge(number, false, 1_000, 20), 2, "one that counts was forgotten");
        }
        assert_eq!(shard.evicted(), 0);
    }

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
