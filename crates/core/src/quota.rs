//! Quotas: a number of hits per window, and the units of windows.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

pub use crate::unit::Unit;
use crate::{calendar::Calendar, clock::Timestamp};

/// Length of a window: a multiple of a unit, in whole seconds, from 1 to [`Window::MAX_SECONDS`]; or the windows of a
/// calendar, about as long as a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    unit: Unit,
    multiplier: NonZeroU32,
    calendar: Option<Calendar>,
}

/// Error of a window of 0 seconds, or one longer than [`Window::MAX_SECONDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a window of 1 second to 730 days, in whole seconds")]
pub struct WindowOutOfRange;

impl Window {
    /// Maximum length in seconds: two years of 365 days. Times computed from a window stay exact in the 53 bits of a Lua
    /// number.
    pub const MAX_SECONDS: u32 = 2 * Unit::Year.seconds();

    /// Returns a window of one unit.
    pub const fn of(unit: Unit) -> Self {
        Self { unit, multiplier: NonZeroU32::MIN, calendar: None }
    }

    /// Returns the windows of a calendar.
    pub const fn in_calendar(calendar: Calendar) -> Self {
        Self { unit: calendar.unit(), multiplier: NonZeroU32::MIN, calendar: Some(calendar) }
    }

    /// Returns a window of `multiplier` units.
    ///
    /// # Errors
    /// [`WindowOutOfRange`] when it is empty or too long.
    pub fn new(unit: Unit, multiplier: u32) -> Result<Self, WindowOutOfRange> {
        let multiplier = NonZeroU32::new(multiplier).ok_or(WindowOutOfRange)?;
        match unit.seconds().checked_mul(multiplier.get()) {
            Some(seconds) if seconds <= Self::MAX_SECONDS => Ok(Self { unit, multiplier, calendar: None }),
            _ => Err(WindowOutOfRange),
        }
    }

    /// Returns a window of `seconds`, expressed in the longest unit that divides it.
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

    /// Number of units in the window.
    pub const fn multiplier(self) -> NonZeroU32 {
        self.multiplier
    }

    /// The calendar, if the windows are those of one.
    pub const fn calendar(self) -> Option<Calendar> {
        self.calendar
    }

    /// Whether windows begin and end at the same times, as windows of one length and one calendar do.
    pub fn coincides_with(self, other: Self) -> bool {
        self.seconds() == other.seconds() && self.calendar == other.calendar
    }

    /// Returns this window, or `of_rule` if that is the calendar's of the same unit: a request that states a limit of its
    /// own counts in the windows of the rule.
    #[must_use]
    pub fn within(self, of_rule: Self) -> Self {
        let is_of_unit = of_rule.calendar.is_some() && Self::of(of_rule.unit) == self;
        if is_of_unit { of_rule } else { self }
    }

    /// The window's length in seconds; of a calendar that of its unit.
    pub const fn seconds(self) -> u32 {
        self.length().get()
    }

    /// The length in seconds of the window that contains a time.
    pub fn seconds_at(self, time: Timestamp) -> u32 {
        self.calendar.map_or(self.seconds(), |calendar| calendar.window(time.seconds()).seconds())
    }

    /// The window's length in seconds, as a divisor.
    pub const fn length(self) -> NonZeroU32 {
        // The constructor checked that the product fits.
        self.unit.length().saturating_mul(self.multiplier)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.multiplier.get() {
            1 => match self.calendar {
                None => write!(f, "{}", self.unit),
                Some(calendar) => write!(f, "{} in {calendar}", self.unit),
            },
            many => write!(f, "{many} {}s", self.unit),
        }
    }
}

/// Maximum number of hits in a window. A limit of 0 denies all hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// Hits admitted in one window: at most [`Hits::MAX`](crate::descriptor::Hits::MAX).
    pub limit: u64,
    /// The window's length.
    pub window: Window,
}

impl Quota {
    /// The limit for algorithms whose states have 32 bits for it; larger ones are reduced.
    pub(crate) fn word(&self) -> u32 {
        u32::try_from(self.limit).unwrap_or(u32::MAX)
    }

    /// Whether the limit has more than 32 bits.
    pub const fn is_wide(&self) -> bool {
        self.limit > u32::MAX as u64
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.limit, self.window)
    }
}

/// Share of a limit that one of several instances enforces alone while they cannot count together.
///
/// The shares add up to at most the limit, except that each instance admits at least one hit unless the limit is 0: with
/// fewer hits than instances there is no better division.
pub(crate) fn share_of(limit: u64, instances: NonZeroU32) -> u64 {
    (limit / NonZeroU64::from(instances)).max(limit.min(1))
}

/// The share of a limit of 32 bits.
pub(crate) fn word_share_of(limit: u32, instances: NonZeroU32) -> u32 {
    (limit / instances).max(limit.min(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_in_seconds_use_the_longest_unit_that_divides_them() {
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
    fn windows_outside_one_second_to_two_years_are_rejected() {
        assert_eq!(Window::from_seconds(0), Err(WindowOutOfRange));
        assert!(Window::from_seconds(Window::MAX_SECONDS).is_ok());
        assert_eq!(Window::from_seconds(Window::MAX_SECONDS + 1), Err(WindowOutOfRange));
        assert_eq!(Window::new(Unit::Year, 3), Err(WindowOutOfRange));
        assert_eq!(Window::new(Unit::Year, u32::MAX), Err(WindowOutOfRange));
    }
}
