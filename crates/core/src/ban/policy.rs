//! Parameters of a rule's bans.

use serde::{Deserialize, Serialize};

use crate::quota::Quota;

crate::named! {
    /// Whether bans deny.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BanMode {
        /// Bans are counted and reported, and deny nothing.
        #[default]
        Watch = "watch",
        /// A banned counter denies.
        Enforce = "enforce",
    }
}

/// Parameters of bans, as stated. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BanParameters {
    /// Bad seconds within an interval that lead to a ban.
    pub threshold: u32,
    /// The interval, from the first denial on.
    pub interval: u32,
    /// Length of a first ban.
    pub duration: u32,
    /// Maximum length of a ban; the length of the first if absent, so that bans do not grow.
    pub max_duration: Option<u32>,
    /// Time without a ban that takes one doubling off.
    pub forgive: u32,
    /// Bans of the maximum length in a row, the last of which lists the client; never if absent.
    pub list_after: Option<u32>,
    /// Whether bans deny.
    pub mode: BanMode,
}

impl Default for BanParameters {
    fn default() -> Self {
        Self {
            threshold: 180,
            interval: 300,
            duration: 600,
            max_duration: None,
            forgive: 86_400,
            list_after: None,
            mode: BanMode::Watch,
        }
    }
}

/// Error of a parameter that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}")]
pub struct BanPolicyError {
    /// Name of the parameter.
    pub key: &'static str,
    expected: &'static str,
}

/// Admitted or denied hits of a second that the record distinguishes, for a client at its limit.
const COUNTED_UNITS: u32 = 256;

/// Parameters of a rule's bans. Times are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BanPolicy {
    /// Bad seconds within an interval that lead to a ban.
    pub threshold: u16,
    /// The interval, from the first denial on.
    pub interval: u16,
    /// Length of a first ban.
    pub duration: u32,
    /// Maximum length of a ban.
    pub max_duration: u32,
    /// Time without a ban that takes one doubling off.
    pub forgive: u32,
    /// Hits counted as one, so that the hits of a second fit the record.
    pub grain: u32,
    /// Bans of the maximum length in a row, the last of which lists the client.
    pub list_after: Option<u8>,
    /// Whether bans deny.
    pub mode: BanMode,
}

/// Hits counted as one for a limit with this quota.
fn grain_of(quota: Quota) -> u32 {
    let per_second = quota.limit.div_ceil(quota.window.length().get().into());
    u32::try_from(per_second.div_ceil(COUNTED_UNITS.into())).unwrap_or(u32::MAX).max(1)
}

impl BanPolicy {
    /// Maximum interval in seconds.
    pub const MAX_INTERVAL: u32 = 3_600;
    /// Maximum length of a first ban in seconds.
    pub const MAX_FIRST: u32 = 30 * 86_400;
    /// Maximum length of a ban, and of the time until it is forgiven, in seconds.
    pub const MAX_LENGTH: u32 = 365 * 86_400;
    /// Maximum level: five bits of a record.
    pub const MAX_LEVEL: u8 = 31;

    /// Returns the policy of the counters of a limit with this quota.
    ///
    /// # Errors
    /// [`BanPolicyError`] for the first parameter that is out of range.
    pub fn new(parameters: &BanParameters, quota: Quota) -> Result<Self, BanPolicyError> {
        let BanParameters { threshold, interval, duration, max_duration, forgive, list_after, mode } =
            *parameters;
        let max_duration = max_duration.unwrap_or(duration);
        let small = |number: u32, range: std::ops::RangeInclusive<u32>| {
            u16::try_from(number).ok().filter(|_| range.contains(&number))
        };
        let error = |key, expected| BanPolicyError { key, expected };
        let interval = small(interval, 1..=Self::MAX_INTERVAL)
            .ok_or(error("interval", "an interval of 1 second to 1 hour"))?;
        let threshold = small(threshold, 1..=u32::from(interval))
            .ok_or(error("threshold", "a threshold from 1 to the seconds of the interval"))?;
        if !(1..=Self::MAX_FIRST).contains(&duration) {
            return Err(error("duration", "a duration of 1 second to 30 days"));
        }
        if !(duration..=Self::MAX_LENGTH).contains(&max_duration) {
            return Err(error("max_duration", "a max_duration from the duration to 365 days"));
        }
        if !(1..=Self::MAX_LENGTH).contains(&forgive) {
            return Err(error("forgive", "1 second to 365 days to forgive a ban"));
        }
        let grain = grain_of(quota);
        let policy =
            Self { threshold, interval, duration, max_duration, forgive, grain, list_after: None, mode };
        match list_after {
            None => Ok(policy),
            Some(count) => policy
                .listing_after(count)
                .ok_or(error("list_after", "1 to 31 bans, with those that are shorter than max_duration")),
        }
    }

    /// Returns this policy with `list_after`, if a record can count that many bans.
    fn listing_after(self, list_after: u32) -> Option<Self> {
        let list_after = u8::try_from(list_after).ok().filter(|count| *count > 0)?;
        let levels = self.level_of_maximum().checked_add(list_after.checked_sub(1)?)?;
        (levels <= Self::MAX_LEVEL).then_some(Self { list_after: Some(list_after), ..self })
    }

    /// Returns this policy for the counters of a limit with another quota.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { grain: grain_of(quota), ..self }
    }

    /// Whether bans grow.
    pub const fn grows(&self) -> bool {
        self.max_duration > self.duration
    }

    /// Whether a ban depends on those before it, so that they are forgiven one at a time.
    pub fn remembers(&self) -> bool {
        self.max_level() > 1
    }

    /// The lowest level at which bans have their maximum length.
    fn level_of_maximum(&self) -> u8 {
        (1..Self::MAX_LEVEL).find(|level| self.length(*level) >= self.max_duration).unwrap_or(Self::MAX_LEVEL)
    }

    /// The highest level: that of the first ban of the maximum length, or of the one that lists the client. Higher ones
    /// would only take longer to forgive.
    pub fn max_level(&self) -> u8 {
        self.level_of_maximum().saturating_add(self.list_after.unwrap_or(0).saturating_sub(1))
    }

    /// Whether a ban of this level lists the client.
    pub fn lists(&self, level: u8) -> bool {
        self.list_after.is_some() && level >= self.max_level()
    }

    /// Length in seconds of a ban of a level, which is at least 1.
    pub fn length(&self, level: u8) -> u32 {
        let doublings = u32::from(level.saturating_sub(1));
        let length = u64::from(self.duration).checked_shl(doublings).unwrap_or(u64::MAX);
        u32::try_from(length).unwrap_or(u32::MAX).min(self.max_duration)
    }
}
