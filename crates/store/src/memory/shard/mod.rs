//! Counters under one lock, their names, and the policy of their eviction.

use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tollgate_core::{RecordId, algorithm::CounterState, clock::Timestamp};

use super::slab::Slab;

/// Slots that each insertion examines for expired counters. More than one, so that expired counters are found faster
/// than new ones are added.
const SWEEP_SLOTS: usize = 2;

/// Slots compared when the shard is full.
const EVICTION_CANDIDATES: usize = 32;

/// Uses that weigh as much as being exhausted. More than each name of a flood is used; less than a limit that is about
/// to be reached.
const EXHAUSTED_BONUS: u8 = 4;

/// Longest name that is stored within its slot.
const INLINE_BYTES: usize = 38;

/// Counters in one slab, with an index beside it.
///
/// A clock hand moves over the slab and removes expired counters as fast as new ones are added. When the weight exceeds
/// the capacity, one of the next few counters is evicted: the least used one, where an exhausted counter gets a bonus
/// of some uses, and among equals the one that expires first.
#[derive(Debug)]
pub(super) struct Shard {
    hasher: RandomState,
    slots: Slab<Slot>,
    /// Positions in `slots`, by the hash of the slot's name.
    index: HashTable<u32>,
    /// Position of the clock hand: the next slot to examine.
    hand: usize,
    /// Maximum total weight of the states, and the current one.
    capacity: usize,
    weight: usize,
    pub(super) evicted: u64,
    /// Wrapping number of the current cycle, which ends when more counters were evicted in it than are held.
    cycle: u8,
    /// Counters evicted in this cycle.
    cycle_evictions: usize,
}

/// A counter. With a short name it fits one cache line, and a decision fetches no other.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    name: StoredKey,
    state: CounterState,
    eviction: EvictionRank,
}

#[allow(clippy::arithmetic_side_effects)] // Numbers of counters in memory and of their words.
impl Shard {
    /// An empty shard for at most `capacity` counters of a few words, and at least one counter of any size. Names are
    /// hashed by `hasher`.
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
            cycle: 0,
            cycle_evictions: 0,
        }
    }

    /// Number of counters held.
    pub(super) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Passes the state of a counter to `inspect`, or an unused state if the counter is not held.
    pub(super) fn inspect<T>(
        &mut self,
        name: &CounterKey<'_>,
        inspect: impl FnOnce(&mut CounterState) -> T,
    ) -> T {
        let Some(slot) = self.slot(name) else { return inspect(&mut CounterState::default()) };
        // An inspection may advance the state to a time, which removes hits that have expired.
        let before = slot.state.weight();
        let result = inspect(&mut slot.state);
        let after = slot.state.weight();
        self.weight = self.weight + after - before;
        result
    }

    /// Decides a counter by `decide`, from an unused state if it is not held, and keeps it until it expires.
    pub(super) fn decide<T>(
        &mut self,
        name: &CounterKey<'_>,
        now: Timestamp,
        decide: impl FnOnce(&mut CounterState) -> (T, EvictionRank),
    ) -> T {
        let cycle = self.cycle;
        let Some(slot) = self.slot(name) else {
            let mut state = CounterState::default();
            let (result, eviction) = decide(&mut state);
            if eviction.expires_at > now.seconds() {
                self.add(name, state, eviction, now);
            }
            return result;
        };
        let before = slot.state.weight();
        let (result, eviction) = decide(&mut slot.state);
        slot.eviction = eviction.after(slot.eviction, cycle);
        let after = slot.state.weight();
        self.weight = self.weight + after - before;
        if after > before {
            self.make_room(0, Some(name), now);
        }
        result
    }

    /// Adds a counter that is not held, evicting others if necessary.
    fn add(&mut self, name: &CounterKey<'_>, state: CounterState, eviction: EvictionRank, now: Timestamp) {
        let weight = state.weight();
        self.sweep(now);
        self.make_room(weight, None, now);
        let Ok(at) = u32::try_from(self.slots.len()) else { return };
        let eviction = EvictionRank { cycle: self.cycle, ..eviction };
        self.slots.push(Slot { name: name.to_stored(), state, eviction });
        self.weight += weight;
        self.make_room_in_index(at);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(name.hash, at, |at| hash_at(slots, hasher, *at));
    }

    /// Rebuilds the index of the first `count` slots when tombstones use up its room: otherwise it would grow for them,
    /// though far from full.
    fn make_room_in_index(&mut self, count: u32) {
        let buckets = self.index.num_buckets();
        let max_entries = buckets / 16 * 13;
        if self.index.len() < self.index.capacity() || self.index.len() > max_entries {
            return;
        }
        let (slots, hasher) = (&self.slots, &self.hasher);
        // The number of buckets stays.
        self.index = HashTable::with_capacity(buckets / 8 * 7);
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

    /// Returns the position of the clock hand and advances it.
    const fn next_position(&mut self) -> usize {
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
        let at = self.hand;
        self.hand = at + 1;
        at
    }

    /// Removes expired counters among the next few slots.
    fn sweep(&mut self, now: Timestamp) {
        for _ in 0..SWEEP_SLOTS {
            let at = self.next_position();
            if self.slots.get(at).is_some_and(|slot| slot.eviction.expires_at <= now.seconds()) {
                self.remove(at);
                // Another slot moved here and has to be examined too.
                self.hand = at;
            }
        }
    }

    /// Evicts counters, except `spared`, until there is room for one more of that weight.
    fn make_room(&mut self, weight: usize, spared: Option<&CounterKey<'_>>, now: Timestamp) {
        while self.weight + weight > self.capacity && self.evict(spared, now) {}
    }

    /// Removes the next expired counter, or evicts the lowest ranked of the next few. Returns false without a
    /// candidate.
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
            let rank = slot.eviction.rank(self.cycle);
            if least.is_none_or(|(least, _)| rank < least) {
                least = Some((rank, at));
            }
        }
        if let Some((_, at)) = least {
            self.remove(at);
            self.evicted += 1;
            self.cycle_evictions += 1;
            if self.cycle_evictions > self.slots.len() {
                self.cycle_evictions = 0;
                self.cycle = self.cycle.wrapping_add(1);
            }
        }
        least.is_some()
    }

    fn remove(&mut self, at: usize) {
        let Some(removed) = self.slots.swap_remove(at) else { return };
        self.weight -= removed.state.weight();
        let hash = removed.name.hash(&self.hasher);
        if let Ok(entry) = self.index.find_entry(hash, |known| *known as usize == at) {
            entry.remove();
        }
        // The last slot has moved into the gap; the index still has its old position.
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

/// The properties by which a counter is ranked for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvictionRank {
    /// Whether nothing remained after the last decision: the limit currently denies.
    exhausted: bool,
    /// Number of uses, halved with each cycle.
    uses: u8,
    /// Cycle to which `uses` refers.
    cycle: u8,
    /// Time from which the state equals an unused one, in seconds since 1970.
    expires_at: u32,
}

impl EvictionRank {
    /// The rank of a counter after its first use.
    pub(super) const fn new(exhausted: bool, expires_at: u32) -> Self {
        Self { exhausted, uses: 1, cycle: 0, expires_at }
    }

    /// Number of uses, decayed to `cycle`.
    const fn uses(self, cycle: u8) -> u8 {
        if let Some(uses) = self.uses.checked_shr(cycle.wrapping_sub(self.cycle) as u32) { uses } else { 0 }
    }

    /// This rank, of the latest use, with the uses of `before` added.
    const fn after(self, before: Self, cycle: u8) -> Self {
        Self { uses: before.uses(cycle).saturating_add(1), cycle, ..self }
    }

    /// Sort key: the counter with the lowest is evicted first.
    const fn rank(self, cycle: u8) -> (u8, u32) {
        let bonus = if self.exhausted { EXHAUSTED_BONUS } else { 0 };
        (self.uses(cycle).saturating_add(bonus), self.expires_at)
    }
}

/// The name of a counter, in its two parts, with its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CounterKey<'a> {
    cell: &'a [u8],
    record: &'a [u8],
    hash: u64,
}

/// The stored name of a counter: the name of the cell, then the id of the record.
#[derive(Debug)]
enum StoredKey {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl<'a> CounterKey<'a> {
    pub(super) fn new(hasher: &RandomState, cell: &'a [u8], record: &'a [u8]) -> Self {
        let mut state = hasher.build_hasher();
        state.write(cell);
        state.write(record);
        Self { cell, record, hash: state.finish() }
    }

    fn matches(&self, stored: &StoredKey) -> bool {
        stored.bytes().strip_prefix(self.cell).is_some_and(|rest| rest == self.record)
    }

    fn to_stored(self) -> StoredKey {
        let whole = || [self.cell, self.record].concat().into();
        let length = self.cell.len().saturating_add(self.record.len());
        let mut bytes = [0; INLINE_BYTES];
        match (bytes.split_at_mut_checked(self.cell.len()), u8::try_from(length)) {
            (Some((cell, rest)), Ok(length)) => match rest.get_mut(..self.record.len()) {
                Some(record) => {
                    cell.copy_from_slice(self.cell);
                    record.copy_from_slice(self.record);
                    StoredKey::Inline { length, bytes }
                }
                None => StoredKey::Heap(whole()),
            },
            _ => StoredKey::Heap(whole()),
        }
    }
}

impl StoredKey {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Self::Heap(bytes) => bytes,
        }
    }

    /// Recomputes [`CounterKey::hash`].
    fn hash(&self, hasher: &RandomState) -> u64 {
        let bytes = self.bytes();
        let parts = bytes.split_at_checked(bytes.len().saturating_sub(RecordId::LENGTH));
        parts.map_or(0, |(cell, record)| CounterKey::new(hasher, cell, record).hash)
    }
}

#[cfg(test)]
mod tests;
