//! What decides which counter goes when there is no more room.

/// How often a counter that denies nothing must have been asked for to matter as much as one that denies. More than a
/// flood of names is asked for each of them; less than a limit that somebody is about to reach.
const EXHAUSTED_BONUS: u8 = 4;

/// What matters of a counter when it is looked at for whether it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvictionRank {
    /// Whether nothing remained after the last decision: the limit is being enforced.
    exhausted: bool,
    /// How often the counter was asked for, halved with each turn.
    uses: u8,
    /// The turn in which that was.
    epoch: u8,
    /// When the state is as good as unused, in seconds since the epoch.
    pub(super) expires_at: u32,
}

impl EvictionRank {
    /// The standing of a counter that was asked for once.
    pub(super) const fn new(exhausted: bool, expires_at: u32) -> Self {
        Self { exhausted, uses: 1, epoch: 0, expires_at }
    }

    /// How often the counter was asked for, as it counts in a turn.
    const fn uses(self, epoch: u8) -> u8 {
        match self.uses.checked_shr(epoch.wrapping_sub(self.epoch) as u32) {
            Some(uses) => uses,
            None => 0,
        }
    }

    /// This one, of a counter that came in this turn.
    pub(super) const fn at_epoch(self, epoch: u8) -> Self {
        Self { epoch, ..self }
    }

    /// This one after another.
    pub(super) const fn after(self, before: Self, epoch: u8) -> Self {
        Self { uses: before.uses(epoch).saturating_add(1), epoch, ..self }
    }

    /// What matters least has the least.
    pub(super) const fn rank(self, epoch: u8) -> (u8, u32) {
        let bonus = if self.exhausted { EXHAUSTED_BONUS } else { 0 };
        (self.uses(epoch).saturating_add(bonus), self.expires_at)
    }
}
