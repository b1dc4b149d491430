//! Output of a command, as text or as JSON: untrusted text, timestamps and tables.

use std::io::{self, Write};
use std::iter;

use jiff::Timestamp;
use serde_json::Value;
use tollgate_runtime::redact::is_printable;

/// Result or error of a call, as text and as JSON.
#[derive(Debug)]
pub(super) struct CommandOutput {
    pub(super) text: String,
    pub(super) json: Value,
}

impl CommandOutput {
    /// Writes the JSON or the text.
    pub(super) fn write(&self, is_json: bool, out: &mut impl Write) -> io::Result<()> {
        if is_json {
            writeln!(out, "{}", self.json)?;
        } else {
            out.write_all(self.text.as_bytes())?;
        }
        out.flush()
    }
}

/// Head and text of a column.
pub(super) type Column<T> = (&'static str, fn(&T) -> String);

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

/// Formats a table, or states that there are no rows.
pub(super) fn table_or<T>(none: &str, rows: &[T], columns: &[Column<T>]) -> String {
    if rows.is_empty() { format!("{none}\n") } else { table(rows, columns) }
}

/// Formats rows under a header, with columns as wide as their widest text. Escapes all texts.
pub(super) fn table<T>(rows: &[T], columns: &[Column<T>]) -> String {
    let head = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(_, cell)| escape_line(&cell(row))).collect());
    let lines: Vec<Vec<String>> = iter::once(head).chain(cells).collect();
    let width = |column: usize| {
        let texts = lines.iter().filter_map(|line| line.get(column));
        texts.map(|text| text.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let lines = lines.iter().map(|line| {
        let padded = line.iter().zip(&widths).map(|(text, width)| format!("{text:width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    });
    lines.collect()
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
        let columns: [Column<[&str; 2]>; 2] =
            [("A", |row| row[0].to_owned()), ("BB", |row| row[1].to_owned())];
        assert_eq!(table(&[["wide", "x"], ["äöü", ""]], &columns), "A     BB\nwide  x\näöü\n");
        assert_eq!(table_or("none", &[], &columns), "none\n");
    }
}
