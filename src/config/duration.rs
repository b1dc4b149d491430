//! Lengths of time as `window` states them.

/// Why a text is no length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a length of time in whole seconds, such as 30s, 5m, 1h, 2d, 1w or 1h30m")]
pub(super) struct NoDuration;

/// The seconds that a text such as `90s` or `1h30m` states.
pub(super) fn seconds(text: &str) -> Result<u32, NoDuration> {
    let mut rest = text;
    let mut total: u32 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).ok_or(NoDuration)?;
        let (number, after) = rest.split_at_checked(digits).ok_or(NoDuration)?;
        let end = after.find(|character: char| character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(end).ok_or(NoDuration)?;
        let length: u32 = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 604_800,
            _ => return Err(NoDuration),
        };
        // A sum that is too large is longer than any window, which is said with the limits of windows.
        let number = number.parse().or(if number.is_empty() { Err(NoDuration) } else { Ok(u32::MAX) })?;
        total = total.saturating_add(length.saturating_mul(number));
        rest = next;
    }
    if text.is_empty() { Err(NoDuration) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums_of_numbers_with_a_unit() {
        for (text, length) in [
            ("1s", 1),
            ("30s", 30),
            ("5m", 300),
            ("1h", 3_600),
            ("2d", 172_800),
            ("1w", 604_800),
            ("1h30m", 5_400),
            ("0s", 0),
            ("99999999999s", u32::MAX),
        ] {
            assert_eq!(seconds(text), Ok(length), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_of_seconds_is_refused() {
        for text in ["", "30", "s", "1.5s", "500ms", "-1s", "1 s", "5min", "1M", "1h30", "é"] {
            assert_eq!(seconds(text), Err(NoDuration), "{text}");
        }
    }
}
