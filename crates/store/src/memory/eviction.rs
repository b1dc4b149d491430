//! What decides which counter goes when there is no more room.

/// How often a counter that denies nothing must have been asked for to matter as much as one that denies. More than a
/// flood of names is asked for each of them; less than a limit that somebody is about to reach.
const DENYING: u8 = 4;

/// What matters of a counter when it is looked at for whether it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EvictionRank {
    /// Whether nothing remained after the last decision: the limit is being enforced.
    exhausted: bool,
    /// How often the counter was asked for, halved with each turn.
    asked: u8,
    /// The turn in which that was.
    turn: u8,
    /// When the state is as good as unused, in seconds since the epoch.
    pub(super) expires_at: u32,
}

impl EvictionRank {
    /// The standing of a counter that was asked for once.
    pub(super) const fn new(exhausted: bool, expires_at: u32) -> Self {
        Self { exhausted, asked: 1, turn: 0, expires_at }
    }

    /// How often the counter was asked for, as it counts in a turn.
    const fn asked(self, turn: u8) -> u8 {
        match self.asked.checked_shr(turn.wrapping_sub(self.turn) as u32) {
            Some(asked) => asked,
            None => 0,
        }
    }

    /// This one, of a counter that came in this turn.
    pub(super) const fn begun(self, turn: u8) -> Self {
        Self { turn, ..self }
    }

    /// This one after another.
    pub(super) const fn after(self, before: Self, turn: u8) -> Self {
        Self { asked: before.asked(turn).saturating_add(1), turn, ..self }
    }

    /// What matters least has the least.
    pub(super) const fn rank(self, turn: u8) -> (u8, u32) {
        let bonus = if self.exhausted { DENYING } else { 0 };
        (self.asked(turn).saturating_add(bonus), self.expires_at)
    }
}
