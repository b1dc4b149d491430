//! Text that another server sent, for logs and reports: on one line, printable, and of bounded length.

use crate::redact::is_printable;

/// Maximum length of such a text, in bytes, without its mark of truncation.
const MAX_TEXT_BYTES: usize = 512;

/// The text with control and invisible characters escaped, truncated to half a kilobyte.
pub fn bounded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    for character in text.chars() {
        if shown.len() >= MAX_TEXT_BYTES {
            shown.push('…');
            break;
        }
        match is_printable(character) {
            true => shown.push(character),
            false => shown.extend(character.escape_default()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_its_line() {
        assert_eq!(
            bounded("a\n2026 ERROR \u{1b}[31mb\r\u{85}\u{2028}é\""),
            "a\\n2026 ERROR \\u{1b}[31mb\\r\\u{85}\\u{2028}é\""
        );
    }

    #[test]
    fn a_long_text_is_truncated() {
        let exact = "x".repeat(MAX_TEXT_BYTES);
        assert_eq!(bounded(&exact), exact);
        assert_eq!(bounded(&format!("{exact}y")), format!("{exact}…"));
        assert!(bounded(&"\n".repeat(1 << 20)).len() < MAX_TEXT_BYTES + 8);
    }
}
