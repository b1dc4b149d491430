//! The heaviest keys of a stream, in bounded memory.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

/// Keys in one summary at the most: what a table of 1,024 places holds.
pub(super) const MOST: usize = 896;

/// Keys that it may hold though memory is short.
pub(super) const FEWEST: usize = 28;

/// How many keys there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// [`MOST`].
    Ample,
    /// No more than there are, and [`FEWEST`].
    Short,
}

/// What is known of a key: its hits are at most `weight`, and at least `weight - error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) weight: u64,
    pub(super) error: u64,
}

/// A space-saving summary (Metwally, Agrawal and El Abbadi, 2005): each key that has a counter has counted at least
/// its hits, and one that has none has at most `floor` of them.
///
/// Where the original gives the place of the lightest counter to a new key, this makes room for many at once, which
/// needs no order among the counters (as Anderson et al., 2017, do): when it is full, only the heaviest three in four
/// stay, and the weight of the next one becomes the floor. What counters have above the floor is never more than the
/// hits that came, and each time that the floor rises by some hits, more than three in four counters lose as much. So,
/// for N hits, the floor is at most N divided by three quarters of the places.
#[derive(Debug, Default)]
pub(super) struct Summary {
    counters: HashMap<Box<str>, Estimate, RandomState>,
    floor: u64,
    /// Bytes of the keys.
    texts: usize,
}

impl Summary {
    /// Adds hits of a key.
    pub(super) fn add(&mut self, key: &str, hits: u64, room: Room) {
        if let Some(known) = self.counters.get_mut(key) {
            known.weight = known.weight.saturating_add(hits);
            return;
        }
        let places = if room == Room::Ample { MOST } else { FEWEST };
        if self.counters.len() >= places {
            self.make_room(room);
        }
        self.texts = self.texts.saturating_add(key.len());
        let weight = self.floor.saturating_add(hits);
        self.counters.insert(key.into(), Estimate { weight, error: self.floor });
    }

    /// Drops the lightest quarter, and all that are no heavier than the heaviest of these.
    fn make_room(&mut self, room: Room) {
        let mut weights: Vec<_> = self.counters.values().map(|known| known.weight).collect();
        let dropped = weights.len().div_ceil(4).saturating_sub(1);
        let (_, heaviest, _) = weights.select_nth_unstable(dropped);
        self.floor = self.floor.max(*heaviest);
        self.counters.retain(|_, known| known.weight > self.floor);
        self.texts = self.counters.keys().map(|key| key.len()).sum();
        if room == Room::Short {
            self.counters.shrink_to(FEWEST);
        }
    }

    /// The most hits that a key can have which has no counter.
    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Every key that has a counter, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Estimate)> {
        self.counters.iter().map(|(key, known)| (&**key, *known))
    }

    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.texts.saturating_add(self.counters.allocation_size())
    }
}
