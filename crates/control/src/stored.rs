//! Stored form of versions, and the head of the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_core::clock::now_ms;
use tollgate_directory::Fingerprint;

use crate::{ControlError, Draft, Files, Version};
use crate::{book::BookHead, bounds::truncated, model::check_files};

/// A version with its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredVersion {
    pub(super) version: Version,
    /// Distinguishes this version from another one with the same number.
    pub(super) token: String,
    pub(super) files: Arc<Files>,
    /// The tokens of the preceding versions, if the backend stores them.
    pub(super) trail: String,
}

/// Identity of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VersionId {
    pub(super) number: u64,
    pub(super) token: String,
}

/// Head of the store: identities of everything that instances reconcile with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreHead {
    pub(super) current: Option<VersionId>,
    /// Whether the files of the current version are present.
    pub(super) files: FilesPresence,
    /// Size of these files in bytes; 0 in memory.
    pub(super) size: u64,
    /// Number of bans that were lifted.
    pub(super) lifted_bans: u64,
    /// Identities of the books, in the order of [`BookName`](crate::book::BookName).
    pub(super) books: [BookHead; 2],
}

/// Presence of the files of the current version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FilesPresence {
    Present,
    Lost,
    /// Not checked, because this instance enforces another version.
    #[default]
    Unknown,
}

tollgate_core::named! {
    /// Recent connectivity of an instance to the store, by the names that the script takes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) enum Connectivity {
        #[default]
        Steady = "steady",
        /// The instance was disconnected for so long that others may have continued without it.
        Interrupted = "cut off",
    }
}

/// Result of restoring lost state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restore {
    Restored,
    /// Nothing is lost.
    Present,
    /// An operator continued from the remaining state, which stands.
    Superseded,
}

impl StoredVersion {
    /// Makes a version of a draft.
    pub(super) fn of(draft: Draft) -> Result<Self, ControlError> {
        let Draft { files, based_on, rollback_to, author, comment } = draft;
        check_files(&files)?;
        let version = Version {
            number: based_on.unwrap_or_default().saturating_add(1),
            based_on,
            rollback_to,
            author: truncated(author),
            comment: truncated(comment),
            created_at_ms: now_ms(),
            fingerprint: fingerprint(&files),
        };
        Ok(Self { version, token: token(), files: Arc::new(files), trail: String::new() })
    }

    /// Whether the files are those of the version.
    pub(super) fn is_intact(&self) -> bool {
        self.version.fingerprint == fingerprint(&self.files)
    }

    pub(super) fn id(&self) -> VersionId {
        VersionId { number: self.version.number, token: self.token.clone() }
    }
}

fn fingerprint(files: &Files) -> String {
    Fingerprint::of(files.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()])).to_string()
}

/// Returns a unique token.
pub(super) fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}
