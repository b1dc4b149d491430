//! What stores keep of a version.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Draft, Files, Runtime, Version,
    bounds::{check_files, shortened},
    error::ControlError,
};
use tollgate_core::clock::Clock;
use tollgate_rules::config::Fingerprint;

/// Who makes what no operator made.
pub(super) const OURSELVES: &str = "tollgate";

/// A version with its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) version: Version,
    /// Tells the making of this version from that of another with the same number.
    pub(super) token: String,
    pub(super) files: Arc<Files>,
    /// The tokens of the versions that it comes after, where the store keeps them.
    #[serde(skip)]
    pub(super) trail: String,
}

/// Lists and switches as the store has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeptRuntime {
    pub(super) runtime: Runtime,
    /// Tells the last change from that of another store with the same generation; empty where there is but one.
    pub(super) token: String,
    /// The tokens of the changes before, where the store keeps them.
    pub(super) trail: String,
    /// What could not be read, and is left out.
    pub(super) problems: Vec<String>,
}

/// What an instance enforces, as a store has to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Enforced {
    pub(super) version: Option<Current>,
    /// The token of its lists and switches.
    pub(super) runtime_token: String,
}

/// Which version is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) token: String,
}

/// What changes in a store, as far as those that follow it have to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) current: Option<Current>,
    /// Whether the files of the current version are there too.
    pub(super) content: Content,
    /// Bytes of these files; 0 where it does not matter.
    pub(super) size: u64,
    /// Of the lists and switches.
    pub(super) generation: u64,
    /// Of the lists and switches, see [`KeptRuntime`].
    pub(super) runtime_token: String,
}

/// Whether the files of the current version are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    There,
    Lost,
    /// Another version is enforced, so nobody looked.
    #[default]
    Unknown,
}

/// How an instance reached the store lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reach {
    #[default]
    Steady,
    /// It did not, for so long that others may have gone on without it.
    CutOff,
}

/// What came of putting something back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PutBack {
    Made,
    /// It is there.
    Kept,
    /// Somebody went on from what was left, and that stands.
    Other,
}

impl Kept {
    /// The version that a draft becomes if nothing comes before it.
    pub(super) fn of(draft: Draft) -> Result<Self, ControlError> {
        let Draft { files, based_on, rollback_to, author, comment } = draft;
        check_files(&files)?;
        let texts = files.iter().map(|(name, text)| (name.as_str(), text.as_bytes()));
        let version = Version {
            number: based_on.unwrap_or_default().saturating_add(1),
            based_on,
            rollback_to,
            author: shortened(author),
            comment: shortened(comment),
            created_at_ms: now_ms(),
            fingerprint: Fingerprint::of_files(texts).to_string(),
        };
        Ok(Self { version, token: token(), files: Arc::new(files), trail: String::new() })
    }

    pub(super) fn current(&self) -> Current {
        Current { number: self.version.number, token: self.token.clone() }
    }
}

/// What nothing else is called.
pub(super) fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    Clock::System.now().as_micros() / 1_000
}
