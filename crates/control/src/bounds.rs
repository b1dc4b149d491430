//! Bounds of the control store.

use tollgate_rules::Listing;
use tollgate_runtime::redact::beginning;

/// Maximum number of retained versions; older ones are dropped.
pub const MAX_VERSIONS: u64 = 1_000;
/// Maximum size of one version's files, including their names.
pub const MAX_VERSION_BYTES: usize = 2 << 20;
/// Maximum size of the files of all retained versions; older versions are dropped.
pub const MAX_STORED_BYTES: usize = 64 << 20;
/// Maximum number of entries of both lists together.
pub const MAX_ENTRIES: usize = 1_000;
/// Maximum number of active automatic entries, exemptions included.
pub const MAX_AUTOMATIC_ENTRIES: usize = 5_000;
/// Maximum number of overrides of rules and keys.
pub const MAX_OVERRIDES: usize = 200_000;
/// Maximum number of switches.
pub const MAX_SWITCHES: usize = 1_000;
/// Maximum number of retained audit log entries; older ones are dropped.
pub const MAX_AUDIT_ENTRIES: usize = 10_000;
/// Maximum length of an author, a comment or a reason; longer texts are truncated.
pub const MAX_TEXT_BYTES: usize = 1_024;
/// Maximum length of a domain or a rule's path in a record.
pub const MAX_NAME_BYTES: usize = 4_096;
/// Maximum length of a key or a value of a list entry.
pub const MAX_VALUE_BYTES: usize = Listing::MAX_TEXT_BYTES;
/// Maximum number of pairs of a list entry.
pub const MAX_PAIRS: usize = Listing::MAX_PAIRS;

/// Maximum number of listed bans; of more, watched ones and then those that end first are dropped.
pub const MAX_BANS: usize = 10_000;
/// Maximum number of bans that an instance adds to the list at once.
pub const MAX_BAN_BATCH: usize = 100;
/// Maximum number of listed bans in one response.
pub const MAX_BAN_PAGE: usize = 500;
/// Maximum length of the keys and values of a listed ban's descriptor; a longer one is truncated.
pub const MAX_BAN_KEY_BYTES: usize = 1_024;

/// The first [`MAX_TEXT_BYTES`] bytes of a text, or a little less so that no character is split.
pub fn truncated(mut text: String) -> String {
    text.truncate(beginning(&text, MAX_TEXT_BYTES).len());
    text
}
