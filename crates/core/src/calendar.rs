//! Calendar windows: days, weeks, months and years of a time zone, each with a length of its own.
//!
//! The rules make a [`Calendar`] of the instants at which windows begin, for all time until the year 2106; where a window
//! begins is a question to the library of time zones, once. All that decides uses the table, so that one function has the
//! window of a time: in the memory store, and for verdicts of Redis.
//!
//! The script in Redis decides by Redis' clock, and gets the two windows beside the bound that is nearest to the instance's
//! estimate of its time. It refuses a call whose time lies in neither, which takes clocks half a window apart.

use std::hash::{Hash, Hasher};
use std::{fmt, num::NonZeroU32, ptr};

use crate::{clock::Timestamp, saturating::Seconds, unit::Unit};

/// Seconds in a quarter of an hour. Bounds are multiples: so are the offsets of all time zones since the seventies.
pub const QUARTER: u32 = 900;

/// Quarters of an hour in a day.
const DAY: u32 = 96;

/// Quarters by which lengths of windows of a unit may differ, in what the script gets: more than five days.
const MAX_EXCESS: u32 = (1 << LENGTH_BIT) - 1;

/// Bit from which on what the script gets has the bound between two windows.
pub const BOUND_BIT: u32 = 20;

/// Bit from which on it has the unit.
pub const UNIT_BIT: u32 = 18;

/// Bit from which on it has the length of the window before the bound; the length of the one after it is below.
pub const LENGTH_BIT: u32 = 9;

/// The windows of a calendar. Equal to itself only: the rules make one for each that is stated.
#[derive(Clone, Copy)]
pub struct Calendar(&'static Windows);

/// The windows of a unit in a time zone.
struct Windows {
    unit: Unit,
    time_zone: Box<str>,
    anchor: Option<Box<str>>,
    /// Consecutive windows of equal lengths, in their order.
    runs: Box<[Run]>,
    /// The end of the last window.
    end: u32,
}

/// Consecutive windows of one length, until the next run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u32,
    length: NonZeroU32,
}

/// Bounds of a window, in seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first second.
    pub start: u32,
    /// The first second after it.
    pub end: u32,
}

impl Bounds {
    /// Length of the window in seconds.
    pub(crate) fn seconds(self) -> u32 {
        (Seconds(self.end) - self.start).0
    }
}

/// Error of instants that are not those of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ascending instants at quarters of an hour, about as far apart as the unit is long")]
pub struct NotACalendar;

impl Calendar {
    /// Returns the calendar whose windows begin at these seconds since the epoch, each as long as `unit` up to a few days.
    /// Takes memory for the life of the process.
    ///
    /// # Errors
    /// [`NotACalendar`] for other instants, and for fewer than two.
    pub fn new(
        unit: Unit,
        time_zone: Box<str>,
        anchor: Option<Box<str>>,
        starts: impl IntoIterator<Item = u32>,
    ) -> Result<Self, NotACalendar> {
        let mut starts = starts.into_iter();
        let mut end = starts.next().filter(|first| first % QUARTER == 0).ok_or(NotACalendar)?;
        let mut runs = Vec::<Run>::new();
        for next in starts {
            let length = next.checked_sub(end).and_then(NonZeroU32::new).ok_or(NotACalendar)?;
            let excess = (length.get() / QUARTER).checked_sub(form(unit).1).ok_or(NotACalendar)?;
            if length.get() % QUARTER != 0 || excess > MAX_EXCESS {
                return Err(NotACalendar);
            }
            if runs.last().is_none_or(|run| run.length != length) {
                runs.push(Run { start: end, length });
            }
            end = next;
        }
        if runs.is_empty() {
            return Err(NotACalendar);
        }
        Ok(Self(Box::leak(Box::new(Windows { unit, time_zone, anchor, runs: runs.into(), end }))))
    }

    /// The unit of the windows: a day, week, month or year.
    pub const fn unit(self) -> Unit {
        self.0.unit
    }

    /// The time zone's name, such as `Europe/Berlin`.
    pub const fn time_zone(self) -> &'static str {
        &self.0.time_zone
    }

    /// The day on which windows begin, as it is stated; `None` for the first one of the unit.
    pub fn anchor(self) -> Option<&'static str> {
        self.0.anchor.as_deref()
    }

    /// The window that contains a second. The time before the first one, and that after the last one, are one each.
    pub fn window(self, second: u32) -> Bounds {
        let Windows { runs, end, .. } = self.0;
        let after = runs.partition_point(|run| run.start <= second);
        let Some(run) = after.checked_sub(1).and_then(|at| runs.get(at)) else {
            return Bounds { start: 0, end: runs.first().map_or(*end, |first| first.start) };
        };
        if second >= *end {
            return Bounds { start: *end, end: u32::MAX };
        }
        let (first, length) = (Seconds(run.start), Seconds(run.length.get()));
        let start = first + length * ((Seconds(second) - first).0 / run.length);
        Bounds { start: start.0, end: (start + length).0 }
    }

    /// The windows around `now` as the script has them, or with `has_next` that of `now` and the next one: minus a number of 52 bits. From the highest, these are 32 of the
    /// bound between the two; 2 of the unit; and 9 each of the lengths of the window that ends there
    /// and of the one that begins, in quarters of an hour beyond a length of the unit.
    pub(crate) fn script_window(self, now: Timestamp, has_next: bool) -> i64 {
        let second = now.seconds();
        let Bounds { start, end } = self.window(second);
        let is_first_half = Seconds(second) - start < Seconds(end) - second;
        let middle = if is_first_half && !has_next { start } else { end };
        let (unit, shortest) = form(self.0.unit);
        let excess = |window: Bounds| {
            let quarters = Seconds(window.seconds() / QUARTER);
            i64::from((quarters - shortest).0.min(MAX_EXCESS))
        };
        let last = Seconds(middle) - 1;
        let (before, after) = (excess(self.window(last.0)), excess(self.window(middle)));
        // Disjoint bits.
        (i64::from(middle) << BOUND_BIT | unit << UNIT_BIT | before << LENGTH_BIT | after).saturating_neg()
    }
}

/// Number of a unit, and the length of its windows in quarters of an hour, at least: a country may skip a day when it changes
/// its time zone.
const fn form(unit: Unit) -> (i64, u32) {
    match unit {
        Unit::Second | Unit::Minute | Unit::Hour | Unit::Day => (0, 0),
        Unit::Week => (1, 5 * DAY),
        Unit::Month => (2, 27 * DAY),
        Unit::Year => (3, 364 * DAY),
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.0, state);
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.time_zone())?;
        self.anchor().map_or(Ok(()), |anchor| write!(f, " from {anchor}"))
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({} in {self})", self.unit())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Days of 23 to 25 hours, in turn, from the 20th day after the epoch on.
    pub(crate) fn uneven_days(count: u32) -> Calendar {
        let lengths = [24, 24, 23, 24, 25, 24].map(|hours| hours * 3_600);
        let lengths = lengths.into_iter().cycle().take(count as usize);
        let first = 20 * 86_400;
        let starts = lengths.scan(first, |next, length| {
            *next += length;
            Some(*next)
        });
        Calendar::new(Unit::Day, "Test".into(), None, [first].into_iter().chain(starts)).expect("days")
    }

    #[test]
    fn windows_are_those_between_the_instants_and_one_on_either_side() {
        let calendar = uneven_days(6);
        let first = 20 * 86_400;
        let window = |second| {
            let Bounds { start, end } = calendar.window(second);
            (start, end)
        };
        assert_eq!(window(0), (0, first));
        assert_eq!(window(first - 1), (0, first));
        assert_eq!(window(first), (first, first + 86_400));
        assert_eq!(window(first + 86_400), (first + 86_400, first + 2 * 86_400));
        assert_eq!(window(first + 2 * 86_400), (first + 2 * 86_400, first + 3 * 86_400 - 3_600));
        let end = first + 6 * 86_400;
        assert_eq!(window(end - 1), (end - 86_400, end));
        assert_eq!(window(end), (end, u32::MAX));
        assert_eq!(window(u32::MAX), (end, u32::MAX));
    }

    #[test]
    fn instants_that_are_no_calendar_are_refused() {
        let made = |unit, starts: &[u32]| {
            Calendar::new(unit, "Test".into(), None, starts.iter().copied()).map(|_| ())
        };
        let day = 86_400;
        assert_eq!(made(Unit::Day, &[0, day, 2 * day]), Ok(()));
        for starts in [&[][..], &[0], &[0, 0], &[day, 0], &[0, day + 1], &[1, day + 1], &[0, 6 * day]] {
            assert_eq!(made(Unit::Day, starts), Err(NotACalendar), "{starts:?}");
        }
        assert_eq!(made(Unit::Month, &[0, 26 * day]), Err(NotACalendar));
        assert_eq!(made(Unit::Month, &[0, 28 * day, 59 * day]), Ok(()));
        assert_eq!(made(Unit::Year, &[0, 365 * day, 731 * day]), Ok(()));
    }

    /// End of a window by the script's parameter: the end of the window of a second, if it is one of the two.
    fn decoded(packed: i64, second: i64) -> Option<i64> {
        let (middle, rest) = (-packed >> 20, -packed % (1 << 20));
        let shortest = i64::from([0, 5, 27, 364][usize::try_from(rest >> 18).expect("in range")] * DAY);
        let (before, after) = ((rest >> 9) % 512, rest % 512);
        let (start, end) = (middle - (shortest + before) * 900, middle + (shortest + after) * 900);
        match second {
            second if second < start || second >= end => None,
            second if second < middle => Some(middle),
            _ => Some(end),
        }
    }

    proptest! {
        #[test]
        fn the_parameter_of_the_script_has_the_windows_of_times_up_to_half_a_day_apart(
            estimate in 21 * 86_400..300 * 86_400_u32,
            apart in -11 * 3_600..=11 * 3_600_i64,
        ) {
            let calendar = uneven_days(400);
            let packed = calendar.script_window(Timestamp::from_micros(u64::from(estimate) * 1_000_000), false);
            // A double is exact.
            prop_assert!(packed < 0 && packed > -(1 << 52));
            let second = i64::from(estimate) + apart;
            let window = calendar.window(u32::try_from(second).expect("in range"));
            prop_assert_eq!(decoded(packed, second), Some(window.end.into()));
            prop_assert_eq!(decoded(packed, second + 3 * 86_400), None);
            prop_assert_eq!(decoded(packed, second - 3 * 86_400), None);
        }
    }
}
