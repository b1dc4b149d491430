//! Record of a counter's refusals and bans, in its cell: counts bad seconds, and begins, shortens and ends bans.

use std::num::NonZeroU8;

use super::{Ban, BanPolicy};
use crate::clock::Timestamp;
use crate::saturating::{Count, Seconds};

/// Number of bad seconds that marks a record as that of a ban.
pub const BANNED: u32 = 4_095;

/// Bound of the difference between denied and admitted hits of a second.
pub const MAX_BALANCE: i32 = 511;

/// Seconds by which an interval may reach further than one that begins now: those of small steps back of the clock.
const MAX_AHEAD: u32 = 10;

/// Zero of a stored balance.
pub const BALANCE_ZERO: i32 = 512;

/// Bit from which on the third word of a record has the last second with hits.
pub const SECOND_BIT: u32 = 10;

/// Bit from which on that word has the level.
pub const LEVEL_BIT: u32 = 15;

/// Bit from which on that word has the bad seconds.
pub const BAD_BIT: u32 = 20;

/// State of a counter that was denied of late, in three words:
///
/// | word | of a ban | otherwise |
/// |---|---|---|
/// | first | when the last ban is forgiven, in seconds since the epoch; 0 without one | likewise |
/// | second | the end of the ban | the second after the one that follows the interval |
/// | third, upper 12 bits | 4095 | bad seconds of the interval, without the last second |
/// | 5 bits | level of the ban | level of the last ban |
/// | 5 bits | 0 | the last second with hits, modulo 32 |
/// | 10 bits | 0 | denied hits of that second less the admitted ones, plus 512 |
///
/// The second that follows the interval is part of the record's life, so that the last second of the interval is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanRecord {
    forgiven_at: Seconds,
    ends_at: Seconds,
    level: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Banned,
    Counting { bad: u32, second: u32, balance: i32 },
}

impl Phase {
    const NONE: Self = Self::Counting { bad: 0, second: 0, balance: -BALANCE_ZERO };
}

impl Default for Phase {
    fn default() -> Self {
        Self::NONE
    }
}

impl BanRecord {
    /// Unpacks a stored record; zeros are that of a counter that was never denied.
    pub const fn from_words([forgiven_at, ends_at, packed]: [u32; 3]) -> Self {
        let (bad, level) = (packed >> BAD_BIT, (packed >> LEVEL_BIT & 31) as u8);
        let phase = match bad {
            BANNED => Phase::Banned,
            _ => Phase::Counting {
                bad,
                second: packed >> SECOND_BIT & 31,
                balance: ((packed & 1_023) as i32).saturating_sub(BALANCE_ZERO),
            },
        };
        Self { forgiven_at: Seconds(forgiven_at), ends_at: Seconds(ends_at), level, phase }
    }

    /// The stored form.
    pub const fn words(&self) -> [u32; 3] {
        let packed = match self.phase {
            Phase::Banned => BANNED << BAD_BIT,
            Phase::Counting { bad, second, balance } => {
                bad << BAD_BIT | second << SECOND_BIT | balance.saturating_add(BALANCE_ZERO) as u32
            }
        };
        [self.forgiven_at.0, self.ends_at.0, packed | (self.level as u32) << LEVEL_BIT]
    }

    /// Time from which the record equals that of a counter that was never denied, in seconds since the epoch.
    pub const fn expires_at(&self) -> u32 {
        if self.forgiven_at.0 > self.ends_at.0 { self.forgiven_at.0 } else { self.ends_at.0 }
    }

    /// The active ban, which is neither new nor enforced.
    pub fn active(&self, now: Timestamp) -> Option<Ban> {
        let level = NonZeroU8::new(self.level)?;
        let is_active = self.phase == Phase::Banned && self.ends_at > now.seconds();
        is_active.then_some(Ban { until: self.ends_at.0, level, is_new: false, is_enforced: false })
    }

    /// Begins a ban if one is due, before hits are decided at `now`. `reported` hits were denied without the store since the
    /// last decision. Returns the active ban, which is not enforced.
    pub fn settle(&mut self, policy: &BanPolicy, now: Timestamp, reported: u16) -> Option<Ban> {
        if self.phase == Phase::Banned {
            self.shorten(policy, now);
            if let Some(ban) = self.active(now) {
                return Some(ban);
            }
        }
        if reported > 0 {
            // Most of them were denied in the second of the last decision, not in this one.
            self.open_interval(policy, now);
            self.add(policy, now, 0, reported.into());
        }
        match self.phase {
            Phase::Counting { bad, second, balance }
                if self.is_kept(policy, now) && second != second_of(now) && is_bad(policy, balance) =>
            {
                let is_due = bad.saturating_add(1) >= policy.threshold.into();
                is_due.then(|| self.begin(policy, now)).flatten()
            }
            Phase::Counting { .. } | Phase::Banned => None,
        }
    }

    /// Counts the hits that a decision admitted, and those that it then denied. Admitted hits of a counter that was not
    /// denied of late leave no record.
    pub fn count(&mut self, policy: &BanPolicy, now: Timestamp, admitted: u64, denied: u64) {
        if self.active(now).is_some() || (admitted == 0 && denied == 0) {
            return;
        }
        if denied > 0 {
            self.open_interval(policy, now);
        }
        if !self.is_open(policy, now) {
            return;
        }
        if let Phase::Counting { bad, second, balance } = &mut self.phase
            && *second != second_of(now)
        {
            *bad = bad.saturating_add(is_bad(policy, *balance).into());
            (*second, *balance) = (second_of(now), 0);
        }
        self.add(policy, now, admitted, denied);
    }

    /// Ends an active ban; its level is kept until it is forgiven.
    pub const fn lift(&mut self) {
        if matches!(self.phase, Phase::Banned) {
            self.ends_at = Seconds(0);
            self.phase = Phase::NONE;
        }
    }

    /// Whether hits count in the interval.
    fn is_open(&self, policy: &BanPolicy, now: Timestamp) -> bool {
        self.phase != Phase::Banned && self.ends_at - 1 > now.seconds() && self.is_kept(policy, now)
    }

    /// Whether the interval counts: one of a longer interval, or of a clock that was ahead, would have too many seconds.
    fn is_kept(&self, policy: &BanPolicy, now: Timestamp) -> bool {
        let longest = Seconds(policy.interval.into()) + 1 + MAX_AHEAD;
        (Seconds(1)..=longest).contains(&(self.ends_at - now.seconds()))
    }

    /// Begins an interval, unless one is open.
    fn open_interval(&mut self, policy: &BanPolicy, now: Timestamp) {
        if self.is_open(policy, now) {
            return;
        }
        if self.forgiven_at <= now.seconds() {
            (self.forgiven_at, self.level) = (Seconds(0), 0);
        }
        self.ends_at = Seconds(now.seconds()) + u32::from(policy.interval) + 1;
        self.phase = Phase::Counting { bad: 0, second: second_of(now), balance: 0 };
    }

    /// Adds hits to the last second.
    fn add(&mut self, policy: &BanPolicy, now: Timestamp, admitted: u64, denied: u64) {
        if let Phase::Counting { balance, .. } = &mut self.phase {
            let less = balance.saturating_sub(units(policy, now, admitted)).max(-MAX_BALANCE);
            *balance = less.saturating_add(units(policy, now, denied)).min(MAX_BALANCE);
        }
    }

    fn begin(&mut self, policy: &BanPolicy, now: Timestamp) -> Option<Ban> {
        let left = (self.forgiven_at - now.seconds()).0.div_ceil(policy.forgive);
        let before = u8::try_from(left).unwrap_or(u8::MAX).min(self.level);
        self.level = before.saturating_add(1).min(policy.max_level());
        self.phase = Phase::Banned;
        self.ban_for(policy, now);
        self.active(now).map(|ban| Ban { is_new: true, ..ban })
    }

    /// Shortens a ban that is longer than the policy has any: one of an earlier policy, or of a clock that was ahead.
    fn shorten(&mut self, policy: &BanPolicy, now: Timestamp) {
        if self.ends_at - now.seconds() > policy.max_duration {
            self.ban_for(policy, now);
        }
    }

    /// Sets the end of a ban of this level that begins now.
    fn ban_for(&mut self, policy: &BanPolicy, now: Timestamp) {
        self.ends_at = Seconds(now.seconds()) + policy.length(self.level);
        let remembered = Seconds(if policy.remembers() { policy.forgive } else { 0 });
        self.forgiven_at = self.ends_at + remembered * u32::from(self.level);
    }
}

const fn second_of(now: Timestamp) -> u32 {
    now.seconds() & 31
}

/// Whether at least as many hits were denied as admitted. Rounded hits may be as many without a denial.
const fn is_bad(policy: &BanPolicy, balance: i32) -> bool {
    balance >= (policy.grain > 1) as i32
}

/// Hits in units of the record, rounded by the time so that many small numbers add up.
fn units(policy: &BanPolicy, now: Timestamp, hits: u64) -> i32 {
    let grain = policy.grain;
    let rounding = now.subsec_micros().checked_rem(grain).unwrap_or_default();
    let units = (Count(hits) + u64::from(rounding)).0.checked_div(grain.into()).unwrap_or_default();
    i32::try_from(units).unwrap_or(i32::MAX).min(2 * MAX_BALANCE + 1)
}
