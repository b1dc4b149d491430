//! Units of time of limits.

use std::{fmt, num::NonZeroU32};

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
    /// The unit of a name in any case.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

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
        if let Some(length) = NonZeroU32::new(seconds) { length } else { NonZeroU32::MIN }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_are_case_insensitive_and_unknown_names_are_rejected() {
        assert_eq!(Unit::of("MiNuTe"), Some(Unit::Minute));
        assert_eq!(Unit::of("unknown"), None);
        assert_eq!(Unit::of(""), None);
    }
}
