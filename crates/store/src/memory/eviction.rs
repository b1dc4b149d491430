//! Eviction policy: the rank of a counter when the shard is full.

/// Uses that weigh as much as being exhausted. More than each name of a flood is used; less than a limit that is about
/// to be reached.
const EXHAUSTED_BONUS: u8 = 4;

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
    pub(super) expires_at: u32,
}

impl EvictionRank {
    /// The rank of a counter after its first use.
    pub(super) const fn new(exhausted: bool, expires_at: u32) -> Self {
        Self { exhausted, uses: 1, cycle: 0, expires_at }
    }

    /// Number of uses, decayed to `cycle`.
    const fn uses(self, cycle: u8) -> u8 {
        match self.uses.checked_shr(cycle.wrapping_sub(self.cycle) as u32) {
            Some(uses) => uses,
            None => 0,
        }
    }

    /// This rank for a counter added in `cycle`.
    pub(super) const fn at_cycle(self, cycle: u8) -> Self {
        Self { cycle, ..self }
    }

    /// This rank, of the latest use, with the uses of `before` added.
    pub(super) const fn after(self, before: Self, cycle: u8) -> Self {
        Self { uses: before.uses(cycle).saturating_add(1), cycle, ..self }
    }

    /// Sort key: the counter with the lowest is evicted first.
    pub(super) const fn rank(self, cycle: u8) -> (u8, u32) {
        let bonus = if self.exhausted { EXHAUSTED_BONUS } else { 0 };
        (self.uses(cycle).saturating_add(bonus), self.expires_at)
    }
}
