//! Timestamps as text.

/// Last day with four digits in the year: the end of 9999.
const LAST_DAY: u64 = 2_932_896;

/// Formats milliseconds since 1970 as `2026-11-21 06:27:09 UTC`.
pub(super) fn utc(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (year, month, day) = date((seconds / 86_400).min(LAST_DAY));
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Formats a timestamp, or `never`.
pub(super) fn utc_or_never(millis: Option<u64>) -> String {
    millis.map_or_else(|| "never".to_owned(), utc)
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(days: u64) -> (u64, usize, u64) {
    let (mut left, mut year) = (days, 1970_u64);
    while let Some(rest) = left.checked_sub(days_of(year)) {
        left = rest;
        year = year.saturating_add(1);
    }
    let february = days_of(year).saturating_sub(337);
    let mut month = 1_usize;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        let Some(rest) = left.checked_sub(length) else { break };
        left = rest;
        month = month.saturating_add(1);
    }
    (year, month, left.saturating_add(1))
}

const fn days_of(year: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    if is_leap { 366 } else { 365 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_formatted_in_utc() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_795_242_429, "2026-11-21 06:27:09 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000), expected);
        }
        assert!(utc(u64::MAX).starts_with("9999-12-31"));
        assert_eq!(utc_or_never(None), "never");
    }
}
