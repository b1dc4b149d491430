//! How much in how long: units, windows and quotas.

use std::{fmt, num::NonZeroU32, str::FromStr};

/// A unit of time in which the reference's configuration states limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// 1 second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3,600 seconds.
    Hour,
    /// 86,400 seconds.
    Day,
    /// 604,800 seconds; counted from the epoch, a week starts on Thursday.
    Week,
    /// 2,592,000 seconds: 30 days, not a calendar month.
    Month,
    /// 31,536,000 seconds: 365 days, not a calendar year.
    Year,
}

impl Unit {
    /// Every unit, shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The unit's length in seconds.
    pub const fn seconds(self) -> u32 {
        self.length().get()
    }

    const fn length(self) -> NonZeroU32 {
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

    /// The name that the configuration uses, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected second, minute, hour, day, week, month or year")]
pub struct UnknownUnit;

impl FromStr for Unit {
    type Err = UnknownUnit;

    /// Reads a unit's name in any case.
    fn from_str(word: &str) -> Result<Self, UnknownUnit> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(word)).ok_or(UnknownUnit)
    }
}

/// A window's length: a unit, so many times. Always whole seconds, at least one and at most
/// [`Window::MAX_SECONDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    unit: Unit,
    multiplier: NonZeroU32,
}

/// A window that is longer than [`Window::MAX_SECONDS`], or not a whole positive number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a window of 1 second to 730 days, in whole seconds")]
pub struct WindowOutOfRange;

impl Window {
    /// The longest window: two years of 365 days. It keeps every time that is computed from a window exact
    /// in the 53 bits of a Lua number.
    pub const MAX_SECONDS: u32 = 2 * Unit::Year.seconds();

    /// A window of one unit.
    pub const fn of(unit: Unit) -> Self {
        Self { unit, multiplier: NonZeroU32::MIN }
    }

    /// A window of `multiplier` units.
    ///
    /// # Errors
    /// [`WindowOutOfRange`] when it is empty or too long.
    pub fn new(unit: Unit, multiplier: u32) -> Result<Self, WindowOutOfRange> {
        let multiplier = NonZeroU32::new(multiplier).ok_or(WindowOutOfRange)?;
        match unit.seconds().checked_mul(multiplier.get()) {
            Some(seconds) if seconds <= Self::MAX_SECONDS => Ok(Self { unit, multiplier }),
            _ => Err(WindowOutOfRange),
        }
    }

    /// A window of `seconds`, stated in the longest unit that divides it.
    ///
    /// # Errors
    /// [`WindowOutOfRange`] when it is empty or too long.
    pub fn from_seconds(seconds: u32) -> Result<Self, WindowOutOfRange> {
        let longest = Unit::ALL.into_iter().rev().find(|unit| seconds.is_multiple_of(unit.seconds()));
        let unit = longest.unwrap_or(Unit::Second);
        Self::new(unit, seconds / unit.length())
    }

    /// The unit in which the window is stated.
    pub const fn unit(self) -> Unit {
        self.unit
    }

    /// How many units make the window.
    pub const fn multiplier(self) -> NonZeroU32 {
        self.multiplier
    }

    /// The window's length in seconds.
    pub const fn seconds(self) -> u32 {
        self.length().get()
    }

    /// The window's length in seconds, as what can be divided by.
    pub const fn length(self) -> NonZeroU32 {
        // Checked to fit when the window was made.
        self.unit.length().saturating_mul(self.multiplier)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.multiplier.get() {
            1 => write!(f, "{}", self.unit),
            many => write!(f, "{many} {}s", self.unit),
        }
    }
}

/// So many hits in a window. A limit of 0 denies everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// Hits that one window admits.
    pub limit: u32,
    /// The window's length.
    pub window: Window,
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.limit, self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_in_seconds_is_stated_in_the_longest_unit_that_divides_it() {
        for (seconds, unit, multiplier) in [
            (1, Unit::Second, 1),
            (30, Unit::Second, 30),
            (300, Unit::Minute, 5),
            (604_800, Unit::Week, 1),
            (2_592_000, Unit::Month, 1),
        ] {
            let window = Window::from_seconds(seconds).expect("in range");
            assert_eq!((window.unit(), window.multiplier().get()), (unit, multiplier));
            assert_eq!(window.seconds(), seconds);
        }
    }

    #[test]
    fn windows_outside_one_second_to_two_years_are_refused() {
        assert_eq!(Window::from_seconds(0), Err(WindowOutOfRange));
        assert!(Window::from_seconds(Window::MAX_SECONDS).is_ok());
        assert_eq!(Window::from_seconds(Window::MAX_SECONDS + 1), Err(WindowOutOfRange));
        assert_eq!(Window::new(Unit::Year, 3), Err(WindowOutOfRange));
        assert_eq!(Window::new(Unit::Year, u32::MAX), Err(WindowOutOfRange));
    }

    #[test]
    fn unit_names_are_read_in_any_case_and_unknown_is_none_of_them() {
        assert_eq!("MiNuTe".parse(), Ok(Unit::Minute));
        assert_eq!("unknown".parse::<Unit>(), Err(UnknownUnit));
        assert_eq!("".parse::<Unit>(), Err(UnknownUnit));
    }
}
