//! Escapes untrusted text for a terminal.

use tollgate_runtime::redact::is_printable;

/// Escapes control and invisible characters, which a terminal would execute or hide, except line feed and tab.
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

/// Escapes a text and joins its lines.
pub(super) fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_escaped() {
        assert_eq!(plain("a\x1b[2J\u{9b}b\nc\td"), "a\\u{1b}[2J\\u{9b}b\nc\td");
        assert_eq!(line("a\nb"), "a b");
        assert_eq!(plain("ann\u{202e}gnik\u{200b}é"), "ann\\u{202e}gnik\\u{200b}é");
    }
}
