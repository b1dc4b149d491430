//! Bytes as a text that YAML allows.

use super::{Mistake, Position};

/// The text of a file, without a mark of its byte order.
///
/// # Errors
/// The place of what is not UTF-8, or of a character that YAML forbids: the parser would take the first NUL for the end
/// of the file, and what follows it would be lost in silence.
pub(super) fn text_of(bytes: &[u8]) -> Result<&str, Mistake> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let message = "the file is not valid UTF-8 here; save it as UTF-8".to_owned();
        mistake(bytes, error.valid_up_to(), message)
    })?;
    if let Some((at, character)) = text.char_indices().find(|(_, character)| is_forbidden(*character)) {
        let message = format!(
            "the file has the control character {} here, which YAML forbids",
            character.escape_unicode()
        );
        return Err(mistake(bytes, at, message));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// What the reference's parser refuses too.
const fn is_forbidden(character: char) -> bool {
    match character {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => false,
        character => character <= '\u{9f}' || matches!(character, '\u{fffe}' | '\u{ffff}'),
    }
}

fn mistake(bytes: &[u8], at: usize, message: String) -> Mistake {
    let before = bytes.get(..at).unwrap_or_default();
    let line = before.split(|byte| *byte == b'\n').count();
    let column = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(column).chars().count().saturating_add(1);
    Mistake { at: Position::new(line, column), path: String::new(), message }
}
