//! Texts of others, for a terminal.

use crate::redact::is_printable;

/// The text without what a terminal would take for a command, or would show as something else: but for line feed and tab,
/// what does not show as itself is written as an escape.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' | '\t' => plain.push(letter),
            letter if is_printable(letter) => plain.push(letter),
            letter => plain.extend(letter.escape_default()),
        }
    }
    plain
}

/// The same on one line.
pub(super) fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_nothing_by_a_comment() {
        assert_eq!(plain("a\x1b[2J\u{9b}b\nc\td"), "a\\u{1b}[2J\\u{9b}b\nc\td");
        assert_eq!(line("a\nb"), "a b");
        assert_eq!(plain("ann\u{202e}gnik\u{200b}é"), "ann\\u{202e}gnik\\u{200b}é");
    }
}
