//! Text output: untrusted text, timestamps and tables.

use jiff::Timestamp;
use tollgate_runtime::redact::is_printable;

/// Escapes control and invisible characters, which a terminal would execute or hide, except line feed and tab.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => escaped.push(letter),
            letter if is_printable(letter) => escaped.push(letter),
            letter => escaped.extend(letter.escape_default()),
        }
    }
    escaped
}

/// Escapes a text and joins its lines.
pub(super) fn escape_line(text: &str) -> String {
    escape(text).replace(['\n', '\t'], " ")
}

/// Formats milliseconds since 1970 as `2026-11-21 06:27:09 UTC`; times after the year 9999 as one near its end.
pub(super) fn utc(millis: u64) -> String {
    let at = i64::try_from(millis).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a timestamp, or `never`.
pub(super) fn utc_or_never(millis: Option<u64>) -> String {
    millis.map_or_else(|| "never".to_owned(), utc)
}

/// Formats rows under a header, with columns as wide as their widest text.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let texts = rows.iter().filter_map(|row| row.get(column)).map(|text| text.chars().count());
        texts.chain(head.get(column).map(|text| text.len())).max().unwrap_or_default()
    });
    let line = |texts: &[String; N]| {
        let padded = texts.iter().zip(widths).map(|(text, width)| format!("{text:width$}"));
        let line = padded.collect::<Vec<_>>().join("  ");
        format!("{}\n", line.trim_end())
    };
    let head = line(&head.map(str::to_owned));
    rows.iter().fold(head, |table, row| table + &line(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(escape("a\x1b[2J\u{9b}b\nc\td"), "a\\u{1b}[2J\\u{9b}b\nc\td");
        assert_eq!(escape_line("a\nb"), "a b");
        assert_eq!(escape("ann\u{202e}gnik\u{200b}\u{2028}é"), "ann\\u{202e}gnik\\u{200b}\\u{2028}é");
    }

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
            (253_402_207_200, "9999-12-30 22:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000), expected);
        }
        assert!(utc(u64::MAX).starts_with("9999-12-30"));
        assert_eq!(utc_or_never(None), "never");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_text() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let expected = "A     BB\nwide  x\näöü\n";
        assert_eq!(table(["A", "BB"], &[row("wide", "x"), row("äöü", "")]), expected);
    }
}
