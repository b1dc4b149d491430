//! Calendars: where windows begin in a time zone, by the data that is built into the program.

use std::{collections::BTreeMap, str::FromStr};

use jiff::ToSpan as _;
use jiff::civil::{Date, Weekday, date};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use parking_lot::Mutex;
use tollgate_core::{calendar::Calendar, quota::Unit};

/// Maximum number of calendars that a process makes, since they are never dropped: a few MiB at most.
const MAX_CALENDARS: usize = 1_024;

/// First day of the windows, and the last year: that of the last second that a state can have.
const FIRST_DAY: Date = date(2000, 1, 1);
const LAST_YEAR: i16 = 2106;

/// The calendars of the process, by unit, time zone and anchor.
static CALENDARS: Mutex<BTreeMap<CalendarName, Calendar>> = Mutex::new(BTreeMap::new());

type CalendarName = (&'static str, Box<str>, Option<Box<str>>);

/// Day on which windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// Each day.
    Daily,
    /// A day of the week.
    Weekday(Weekday),
    /// A day of the month, or the month's last day if it is shorter.
    DayOfMonth(i8),
    /// A month and a day of it.
    DayOfYear(i8, i8),
}

/// Problem of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CalendarError {
    /// A unit below a day.
    #[error("is no unit of a calendar; expected day, week, month or year")]
    Unit,
    /// A time zone that does not exist.
    #[error("is not a time zone; expected a name of the IANA database, such as Europe/Berlin")]
    TimeZone,
    /// An anchor that the unit does not have.
    #[error("{0}")]
    Anchor(&'static str),
    /// Too many calendars.
    #[error(
        "is one calendar more than a process can have; expected fewer than {MAX_CALENDARS}, or a restart"
    )]
    TooMany,
    /// Data with windows that are too uneven.
    #[error("has windows of too different lengths; expected another time zone")]
    Uneven,
}

/// Returns the calendar with windows of `unit` in the time zone of a name.
///
/// # Errors
/// [`CalendarError`] for the first problem.
pub(crate) fn calendar(unit: Unit, time_zone: &str, anchor: Option<&str>) -> Result<Calendar, CalendarError> {
    let day = Anchor::parse(unit, anchor)?;
    let zone = TimeZoneDatabase::bundled().get(time_zone).map_err(|_| CalendarError::TimeZone)?;
    let time_zone = zone.iana_name().unwrap_or(time_zone);
    // The first day of the unit is not an anchor.
    let stated = (day != Anchor::first(unit)).then(|| day.text().into());
    let name = (unit.name(), time_zone.into(), stated);
    let mut calendars = CALENDARS.lock();
    if let Some(known) = calendars.get(&name) {
        return Ok(*known);
    }
    if calendars.len() >= MAX_CALENDARS {
        return Err(CalendarError::TooMany);
    }
    let (_, time_zone, stated) = name.clone();
    let made =
        Calendar::new(unit, time_zone, stated, starts(day, &zone)).map_err(|_| CalendarError::Uneven)?;
    calendars.insert(name, made);
    Ok(made)
}

impl Anchor {
    fn parse(unit: Unit, stated: Option<&str>) -> Result<Self, CalendarError> {
        let first = Self::first(unit);
        let Some(text) = stated else {
            return if unit.seconds() < Unit::Day.seconds() { Err(CalendarError::Unit) } else { Ok(first) };
        };
        match unit {
            Unit::Second | Unit::Minute | Unit::Hour => Err(CalendarError::Unit),
            Unit::Day => Err(CalendarError::Anchor(
                "has no effect on days, which begin at midnight; expected `unit: week`, `month` or `year`",
            )),
            Unit::Week => WEEKDAYS
                .into_iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(text))
                .map(|(_, day)| Self::Weekday(day))
                .ok_or(CalendarError::Anchor("is not a day of the week; expected e.g. monday")),
            Unit::Month => number(text, 31)
                .map(Self::DayOfMonth)
                .ok_or(CalendarError::Anchor("is not a day of the month; expected 1 to 31")),
            Unit::Year => {
                let day = text.split_once('-').and_then(|(month, day)| {
                    let (month, day) = (number(month, 12)?, number(day, 31)?);
                    // A leap year has every day.
                    Date::new(2000, month, day).ok().map(|_| Self::DayOfYear(month, day))
                });
                day.ok_or(CalendarError::Anchor(
                    "is not a day of the year; expected its month and day, such as 04-06",
                ))
            }
        }
    }

    const fn first(unit: Unit) -> Self {
        match unit {
            Unit::Second | Unit::Minute | Unit::Hour | Unit::Day => Self::Daily,
            Unit::Week => Self::Weekday(Weekday::Monday),
            Unit::Month => Self::DayOfMonth(1),
            Unit::Year => Self::DayOfYear(1, 1),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Daily => String::new(),
            Self::Weekday(day) => {
                let named = WEEKDAYS.into_iter().find(|(_, named)| *named == day);
                named.map_or_else(String::new, |(name, _)| name.to_owned())
            }
            Self::DayOfMonth(day) => day.to_string(),
            Self::DayOfYear(month, day) => format!("{month:02}-{day:02}"),
        }
    }

    /// Whether a window begins on a day.
    fn begins(self, date: Date) -> bool {
        match self {
            Self::Daily => true,
            Self::Weekday(day) => date.weekday() == day,
            Self::DayOfMonth(day) => date.day() == day.min(date.days_in_month()),
            Self::DayOfYear(month, day) => {
                date.month() == month && date.day() == day.min(date.days_in_month())
            }
        }
    }
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

fn number(text: &str, max: i8) -> Option<i8> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    i8::from_str(text).ok().filter(|number| is_plain && (1..=max).contains(number))
}

/// The first second of each day on which a window begins, as far as 32 bits have it. A country that changes to the other
/// side of the date line skips a day, which is no window.
fn starts(anchor: Anchor, zone: &TimeZone) -> Vec<u32> {
    let first_second = |day: Date| {
        let midnight = day.to_zoned(zone.clone()).and_then(|noted| noted.start_of_day()).ok()?;
        u32::try_from(midnight.timestamp().as_second()).ok()
    };
    let days = FIRST_DAY.series(1.day()).take_while(|day| day.year() <= LAST_YEAR);
    let mut starts: Vec<u32> = days.filter(|day| anchor.begins(*day)).filter_map(first_second).collect();
    starts.dedup();
    starts
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    /// Zones with daylight saving at all hours, midnight among them, with odd offsets, and with days that were skipped.
    const ZONES: &str = "
        Africa/Cairo Africa/Casablanca Africa/Johannesburg Africa/Juba Africa/Lagos Africa/Sao_Tome
        America/Adak America/Anchorage America/Asuncion America/Bogota America/Caracas
        America/Chicago America/Havana America/Los_Angeles America/Mexico_City America/New_York
        America/Nuuk America/Port-au-Prince America/Santiago America/Sao_Paulo America/Scoresbysund
        America/St_Johns Antarctica/Troll Asia/Amman Asia/Baghdad Asia/Beirut Asia/Damascus
        Asia/Gaza Asia/Hong_Kong Asia/Kathmandu Asia/Kolkata Asia/Pyongyang Asia/Tehran Asia/Tokyo
        Asia/Ulaanbaatar Atlantic/Azores Australia/Adelaide Australia/Eucla Australia/Lord_Howe
        Australia/Sydney Europe/Berlin Europe/Dublin Europe/Istanbul Europe/Lisbon Europe/London
        Europe/Moscow Pacific/Apia Pacific/Chatham Pacific/Fakaofo Pacific/Fiji Pacific/Kiritimati
        UTC
    ";

    fn zones() -> Vec<&'static str> {
        ZONES.split_whitespace().collect()
    }

    /// The first instant of a window after an instant, by the library alone: of the days around it that begin a window.
    fn reset(zone: &TimeZone, begins: impl Fn(Date) -> bool, second: i64) -> i64 {
        let today = Timestamp::from_second(second).expect("in range").to_zoned(zone.clone()).date();
        let days = today.yesterday().expect("in range").series(1.day());
        let midnight = |day: Date| day.to_zoned(zone.clone()).and_then(|noted| noted.start_of_day());
        let starts = days.filter(|day| begins(*day)).map(|day| midnight(day).expect("in range"));
        starts.map(|start| start.timestamp().as_second()).find(|start| *start > second).expect("repeats")
    }

    /// Whether a day begins a window, stated apart from [`Anchor::begins`].
    fn begins(unit: Unit, anchor: &str, day: Date) -> bool {
        let clamped = |date: Date, day: i8| {
            date.day() == day
                || date.day() < day && date.tomorrow().expect("in range").month() != date.month()
        };
        match unit {
            Unit::Week => format!("{:?}", day.weekday()).eq_ignore_ascii_case(anchor),
            Unit::Month => clamped(day, anchor.parse().expect("a number")),
            Unit::Year => {
                let (month, of_month) = anchor.split_once('-').expect("a day of the year");
                day.month() == month.parse::<i8>().expect("a number")
                    && clamped(day, of_month.parse().expect("a number"))
            }
            _ => true,
        }
    }

    const ANCHORS: [(Unit, &str); 9] = [
        (Unit::Day, ""),
        (Unit::Week, "monday"),
        (Unit::Week, "saturday"),
        (Unit::Month, "1"),
        (Unit::Month, "15"),
        (Unit::Month, "30"),
        (Unit::Month, "31"),
        (Unit::Year, "02-29"),
        (Unit::Year, "10-31"),
    ];

    fn made(unit: Unit, zone: &str, anchor: &str) -> Calendar {
        calendar(unit, zone, Some(anchor).filter(|anchor| !anchor.is_empty())).expect("valid")
    }

    /// Compares the end of the window of an instant with the library's.
    fn compare(zone: &str, (unit, anchor): (Unit, &str), second: i64) {
        let library = TimeZoneDatabase::bundled().get(zone).expect("a zone");
        let window = made(unit, zone, anchor).window(u32::try_from(second).expect("in range"));
        let expected = reset(&library, |day| begins(unit, anchor, day), second);
        assert_eq!(i64::from(window.end), expected, "{unit} in {zone} from {anchor:?} at {second}");
        assert!(i64::from(window.start) <= second);
    }

    /// Twenty years from 2010.
    fn years() -> std::ops::Range<i64> {
        let second =
            |year| date(year, 1, 1).to_zoned(TimeZone::UTC).expect("in range").timestamp().as_second();
        second(2010)..second(2030)
    }

    #[test]
    fn windows_around_each_change_of_an_offset_end_when_the_library_says_so() {
        let mut changes = 0;
        for zone in zones() {
            let library = TimeZoneDatabase::bundled().get(zone).expect("a zone");
            let from = Timestamp::from_second(years().start).expect("in range");
            let transitions = library.following(from).map(|change| change.timestamp().as_second());
            for change in transitions.take_while(|change| *change < years().end) {
                changes += 1;
                // The days around the change, and the seconds around its midnights.
                for hours in [-48, -24, -2, -1, 0, 1, 2, 24, 48] {
                    for second in [-1, 0] {
                        compare(zone, (Unit::Day, ""), change + hours * 3_600 + second);
                    }
                }
            }
        }
        assert!(changes > 1_000, "only {changes} changes");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn windows_end_when_the_library_says_so(
            zone in proptest::sample::select(zones()),
            anchor in proptest::sample::select(&ANCHORS[..]),
            second in years(),
        ) {
            compare(zone, anchor, second);
        }
    }

    #[test]
    fn windows_are_contiguous_and_of_plausible_lengths_until_2105() {
        for zone in zones() {
            for (unit, anchor, longest) in
                [(Unit::Day, "", 49), (Unit::Month, "31", 32 * 24), (Unit::Year, "02-29", 367 * 24)]
            {
                let calendar = made(unit, zone, anchor);
                let (mut window, mut count) = (calendar.window(950_000_000), 0);
                while window.end < 4_260_000_000 {
                    let next = calendar.window(window.end);
                    assert_eq!(next.start, window.end, "{unit} in {zone}");
                    assert!(next.end - next.start <= longest * 3_600, "{unit} in {zone}: {next:?}");
                    (window, count) = (next, count + 1);
                }
                assert!(count > 100, "{unit} in {zone}");
            }
        }
    }

    /// All zones that exist have calendars of all units; takes a minute.
    #[test]
    #[ignore = "takes a minute"]
    fn every_zone_has_every_calendar() {
        let mut zones = 0;
        for zone in TimeZoneDatabase::bundled().available() {
            for (unit, anchor) in
                [(Unit::Day, ""), (Unit::Week, "monday"), (Unit::Month, "31"), (Unit::Year, "02-29")]
            {
                let day =
                    Anchor::parse(unit, Some(anchor).filter(|anchor| !anchor.is_empty())).expect("valid");
                let library = TimeZoneDatabase::bundled().get(zone.as_str()).expect("a zone");
                let calendar = Calendar::new(unit, zone.as_str().into(), None, starts(day, &library));
                assert!(calendar.is_ok(), "{unit} in {zone}");
            }
            zones += 1;
        }
        assert!(zones > 400, "only {zones} zones");
    }
}
