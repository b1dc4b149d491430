//! Bans: a counter that keeps denying is denied for longer, whatever its limit would admit.
//!
//! A *bad second* is one in which at least as many hits were denied as admitted. Once an interval has enough of them, the
//! counter is banned; each further ban is twice as long, up to a maximum, and each time without a ban takes one doubling
//! off. Denied hits by themselves are no measure: clients that retry a little over their limit, and many clients behind
//! one address, are denied often too.
//!
//! [`BanRecord`] is the definition of the state; `lua/decide/bans.lua` is its twin.

mod policy;
mod record;
#[cfg(test)]
mod tests;

use std::num::NonZeroU8;

pub use self::policy::{BanMode, BanParameters, BanPolicy, BanPolicyError};
pub use self::record::{BAD_BIT, BALANCE_ZERO, BANNED, BanRecord, LEVEL_BIT, MAX_BALANCE, SECOND_BIT};
use crate::clock::Timestamp;

/// An active ban, as a verdict reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// End of the ban, in seconds since the epoch.
    pub until: u32,
    /// Level of the ban: 1 for a first one; the next ban is twice as long.
    pub level: NonZeroU8,
    /// Whether the ban began with this decision.
    pub is_new: bool,
    /// Whether the ban denies. One that is only watched does not.
    pub is_enforced: bool,
}

impl Ban {
    /// The end of the ban.
    pub fn ends_at(&self) -> Timestamp {
        Timestamp::from_seconds(self.until)
    }

    /// Whether the ban denies.
    pub const fn mode(&self) -> BanMode {
        if self.is_enforced { BanMode::Enforce } else { BanMode::Watch }
    }

    /// Returns the ban as every decision but the first reports it.
    #[must_use]
    pub const fn known(self) -> Self {
        Self { is_new: false, ..self }
    }
}

/// Effect of a decision on the ban of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BanEffect {
    /// Counts, and reports bans without denying.
    Watch,
    /// Counts, and denies while the counter is banned.
    Enforce,
    /// Ends an active ban. Its level is kept: a later ban is longer.
    Lift,
    /// Ends an active ban and removes the record: a later ban is a first one.
    Forgive,
}

impl BanEffect {
    /// Whether it ends a ban.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Lift | Self::Forgive)
    }
}

/// Ban of a counter that a decision applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanCheck {
    /// Parameters of the rule's bans.
    pub policy: BanPolicy,
    /// Effect of the decision.
    pub effect: BanEffect,
}

impl BanCheck {
    /// Returns a counter's active ban with its effect.
    pub fn report(&self, ban: Option<Ban>) -> Option<Ban> {
        ban.map(|ban| Ban { is_enforced: self.effect == BanEffect::Enforce, ..ban })
    }
}
