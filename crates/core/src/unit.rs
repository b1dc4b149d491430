//! Units of time of limits.

use std::{fmt, num::NonZeroU32, str::FromStr};

crate::named! {
    /// Unit of time of a limit, as in envoyproxy/ratelimit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Unit {
        /// 1 second.
        Second = "second",
        /// 60 seconds.
        Minute = "minute",
        /// 3,600 seconds.
        Hour = "hour",
        /// 86,400 seconds.
        Day = "day",
        /// 604,800 seconds; counted from the epoch, a week starts on Thursday.
        Week = "week",
        /// 2,592,000 seconds: 30 days, not a calendar month.
        Month = "month",
        /// 31,536,000 seconds: 365 days, not a calendar year.
        Year = "year",
    }
}

impl Unit {
    /// The unit's length in seconds.
    pub const fn seconds(self) -> u32 {
        self.length().get()
    }

    pub(crate) const fn length(self) -> NonZeroU32 {
        let seconds = match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        };
        match NonZeroU32::new(seconds) {
            Some(length) => length,
            None => NonZeroU32::MIN,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Error of a text that is not the name of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected second, minute, hour, day, week, month or year")]
pub struct UnknownUnit;

impl FromStr for Unit {
    type Err = UnknownUnit;

    /// Parses a unit's name in any case.
    fn from_str(word: &str) -> Result<Self, UnknownUnit> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(word)).ok_or(UnknownUnit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_are_case_insensitive_and_unknown_names_are_rejected() {
        assert_eq!("MiNuTe".parse(), Ok(Unit::Minute));
        assert_eq!("unknown".parse::<Unit>(), Err(UnknownUnit));
        assert_eq!("".parse::<Unit>(), Err(UnknownUnit));
    }
}
