//! How much is kept.

use super::{ControlError, Files};
use tollgate_rules::Listing;

/// Versions; the oldest make room.
pub const MOST_VERSIONS: u64 = 1_000;
/// Bytes of one version's files, their names included.
pub const MOST_BYTES: usize = 2 << 20;
/// Bytes of the files of all versions together; the oldest make room.
pub const MOST_KEPT_BYTES: usize = 64 << 20;
/// Entries of both lists together.
pub const MOST_ENTRIES: usize = 1_000;
/// Switches.
pub const MOST_SWITCHES: usize = 1_000;
/// What operators did; the oldest make room.
pub const MOST_AUDITED: usize = 10_000;
/// Bytes of an author, a comment or a reason; what is longer is cut.
pub const MOST_TEXT: usize = 1_024;
/// Bytes of a domain or of a rule's path, in switches.
pub const MOST_NAME: usize = 4_096;
/// Bytes of a domain, a key or a value of a list's entry.
pub const MOST_VALUE: usize = Listing::MAX_TEXT_BYTES;
/// Pairs of a list's entry.
pub const MOST_PAIRS: usize = Listing::MAX_PAIRS;

/// The first [`MOST_TEXT`] bytes of a text, or a little less so that no character is cut.
pub fn shortened(mut text: String) -> String {
    let end = (0..=MOST_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text
}

/// How many bytes a version's files have.
pub(super) fn size(files: &Files) -> usize {
    files.iter().fold(0, |sum, (name, text)| sum.saturating_add(name.len()).saturating_add(text.len()))
}

/// Whether a version may have these files.
pub fn check_files(files: &Files) -> Result<(), ControlError> {
    match size(files) > MOST_BYTES {
        true => Err(ControlError::TooLarge { what: "the files of a version", most: MOST_BYTES }),
        false => Ok(()),
    }
}

/// Whether a name may be so long.
pub(super) fn check_name(what: &'static str, name: &str, most: usize) -> Result<(), ControlError> {
    match name.len() > most {
        true => Err(ControlError::TooLarge { what, most }),
        false => Ok(()),
    }
}
