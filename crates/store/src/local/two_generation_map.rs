//! A map of bounded size that keeps the entries in use.
//!
//! It has two generations. Every access moves an entry to the newer one; when that is full it becomes the older one,
//! and the previous older one is evicted, with the entries that were not accessed while as many others were. Entries are
//! evicted as others take their places, a few at a time: tens of thousands at once would hold up a worker. So would the
//! memory of a new table, of which the kernel has to clear every page: the tables take turns.

use std::{hash::BuildHasher as _, mem};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use tollgate_core::RecordId;

use crate::key::CellKey;

/// Capacity of one generation: that of a table with 32,768 places, of which one more entry would double the memory.
pub(super) const MAX_GENERATION_ENTRIES: usize = 28_672;

/// Entries that are evicted when one is inserted: a whole generation before the next one is full.
const EVICTED_AT_A_TIME: usize = 2;

/// Name of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CounterName {
    pub(super) cell: CellKey,
    pub(super) record: RecordId,
}

type Generation<T> = HashTable<(CounterName, T)>;

/// Values by counter.
#[derive(Debug)]
pub(super) struct TwoGenerationMap<T> {
    newer: Generation<T>,
    older: Generation<T>,
    evicted: Evicted<T>,
    hasher: RandomState,
}

/// The latest generation that lost its place.
#[derive(Debug)]
struct Evicted<T> {
    table: Generation<T>,
    /// Bucket of the table before which all are empty.
    bucket: usize,
    /// Entries of it that left the map since the last call of [`TwoGenerationMap::take_evicted`].
    taken: Vec<(CounterName, T)>,
}

impl<T> Evicted<T> {
    fn take(&mut self, most: usize) {
        let Self { table, bucket, taken } = self;
        for _ in 0..most.min(table.len()) {
            let mut buckets = *bucket..table.num_buckets();
            taken.extend(buckets.find_map(|at| Some(table.get_bucket_entry(at).ok()?.remove().0)));
            *bucket = buckets.start;
        }
    }

    /// Replaces the table, which then is empty.
    fn replace(&mut self, evicted: Generation<T>) -> Generation<T> {
        self.take(usize::MAX);
        self.bucket = 0;
        let mut table = mem::replace(&mut self.table, evicted);
        let is_of_full_size = table.num_buckets() > MAX_GENERATION_ENTRIES;
        // In a table of full size, half of it clears the marks of removed entries, past which lookups go, in its place.
        // Another one is of full size at once: a table that grows moves its entries.
        let room = if is_of_full_size { MAX_GENERATION_ENTRIES / 2 } else { MAX_GENERATION_ENTRIES };
        table.reserve(room, |_| 0);
        table
    }
}

impl<T> Default for TwoGenerationMap<T> {
    fn default() -> Self {
        let [newer, older, table] = [(); 3].map(|()| Generation::new());
        let evicted = Evicted { table, bucket: 0, taken: Vec::new() };
        Self { newer, older, evicted, hasher: RandomState::default() }
    }
}

impl<T> TwoGenerationMap<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.newer.is_empty() && self.older.is_empty()
    }

    /// The value of a counter, if any.
    pub(super) fn get(&mut self, cell: &CellKey, record: RecordId) -> Option<&mut T> {
        self.find(cell, record, || None)
    }

    /// The value of a counter, which is set to `new` if absent.
    pub(super) fn get_or_insert(
        &mut self,
        cell: &CellKey,
        record: RecordId,
        new: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        self.find(cell, record, || Some(new()))
    }

    /// Hash of a counter's name.
    pub(super) fn hash(&self, cell: &CellKey, record: RecordId) -> u64 {
        self.hasher.hash_one((cell.as_bytes(), record.as_bytes()))
    }

    /// Bytes of the tables, without what the entries refer to.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        let tables = [&self.newer, &self.older, &self.evicted.table].map(Generation::allocation_size);
        tables.iter().sum::<usize>() + self.evicted.taken.capacity() * size_of::<(CounterName, T)>()
    }

    /// Takes the entries that left the map since the last call.
    pub(super) fn take_evicted(&mut self) -> impl Iterator<Item = (CounterName, T)> {
        self.evicted.taken.drain(..)
    }

    /// Evicts further entries of the generation that lost its place, whether others are inserted or not.
    pub(super) fn evict(&mut self, most: usize) {
        self.evicted.take(most);
    }

    /// Whether entries are still to be evicted or taken.
    pub(super) fn is_evicting(&self) -> bool {
        !self.evicted.table.is_empty() || !self.evicted.taken.is_empty()
    }

    /// The value of a counter, which is set to that of `new`, if there is one, if absent.
    pub(super) fn find(
        &mut self,
        cell: &CellKey,
        record: RecordId,
        new: impl FnOnce() -> Option<T>,
    ) -> Option<&mut T> {
        let hash = self.hash(cell, record);
        let matches = |(name, _): &(CounterName, T)| name.record == record && name.cell == *cell;
        let newer = match self.newer.find_entry(hash, matches) {
            Ok(entry) => return Some(&mut entry.into_mut().1),
            Err(absent) => absent.into_table(),
        };
        let map = match self.older.find_entry(hash, matches) {
            Ok(entry) => entry.remove().0,
            Err(_) => (CounterName { cell: cell.clone(), record }, new()?),
        };
        if newer.len() >= MAX_GENERATION_ENTRIES {
            mem::swap(newer, &mut self.older);
            *newer = self.evicted.replace(mem::take(newer));
        }
        self.evicted.take(EVICTED_AT_A_TIME);
        let hasher = &self.hasher;
        let rehash =
            |(name, _): &(CounterName, T)| hasher.hash_one((name.cell.as_bytes(), name.record.as_bytes()));
        Some(&mut newer.insert_unique(hash, map, rehash).into_mut().1)
    }
}

/// Values by the hash of a counter's name, at most `CAPACITY` in each of two generations: when the newer one is full, it
/// becomes the older one, and the previous older one is cleared at once.
#[derive(Debug)]
pub(crate) struct RecentValues<T, const CAPACITY: usize> {
    newer: HashTable<(u64, T)>,
    older: HashTable<(u64, T)>,
}

impl<T, const CAPACITY: usize> Default for RecentValues<T, CAPACITY> {
    fn default() -> Self {
        Self { newer: HashTable::new(), older: HashTable::new() }
    }
}

impl<T, const CAPACITY: usize> RecentValues<T, CAPACITY> {
    /// The value of a counter, if any, which stays in its generation.
    pub(crate) fn get(&mut self, hash: u64) -> Option<&mut T> {
        let Self { newer, older } = self;
        let known = newer.find_mut(hash, |(known, _)| *known == hash);
        known.or_else(|| older.find_mut(hash, |(known, _)| *known == hash)).map(|(_, value)| value)
    }

    /// The value of a counter, which is set to `new` if absent, in the newer generation.
    pub(crate) fn get_or_insert(&mut self, hash: u64, new: impl FnOnce() -> T) -> &mut T {
        let is_same = |(known, _): &(u64, T)| *known == hash;
        let newer = match self.newer.find_entry(hash, is_same) {
            Ok(entry) => return &mut entry.into_mut().1,
            Err(absent) => absent.into_table(),
        };
        let value = self.older.find_entry(hash, is_same).map_or_else(|_| new(), |entry| entry.remove().0.1);
        if newer.len() >= CAPACITY {
            mem::swap(newer, &mut self.older);
            newer.clear();
        }
        &mut newer.insert_unique(hash, (hash, value), |(known, _)| *known).into_mut().1
    }

    /// Removes the value of a counter.
    pub(super) fn take(&mut self, hash: u64) -> Option<T> {
        let Self { newer, older } = self;
        let mut found = [newer, older].into_iter().filter_map(|entries| {
            entries.find_entry(hash, |(known, _)| *known == hash).ok().map(|entry| entry.remove().0)
        });
        found.next().map(|(_, value)| value)
    }

    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.newer.allocation_size() + self.older.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_prelude::*;

    #[test]
    fn entries_in_use_stay_and_others_are_evicted_once() {
        let record = RecordId::alone(Algorithm::FixedWindow);
        let mut map = TwoGenerationMap::default();
        assert!(map.get(&cell(0), record).is_none() && map.is_empty());
        let mut evicted = 0;
        for number in 0..MAX_GENERATION_ENTRIES * 5 {
            *map.get_or_insert(&cell(number), record, || 0).expect("a place") = number;
            assert_eq!(map.get(&cell(0), record), Some(&mut 0));
            let evicted_now = map.take_evicted().count();
            // Of two accesses.
            assert!(evicted_now <= 2 * EVICTED_AT_A_TIME, "{evicted_now}");
            evicted += evicted_now;
            assert!(map.newer.len() + map.older.len() <= 2 * MAX_GENERATION_ENTRIES);
        }
        assert_eq!(
            evicted + map.evicted.table.len() + map.newer.len() + map.older.len(),
            MAX_GENERATION_ENTRIES * 5
        );
        assert!(map.get(&cell(1), record).is_none());
        assert!(map.get(&cell(MAX_GENERATION_ENTRIES * 5 - 1), record).is_some());
    }
}
