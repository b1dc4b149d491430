//! All that the store holds, at one moment.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    AuditEntry, ControlError, Runtime, Version,
    bounds::{MOST_AUDITED, MOST_KEPT_BYTES, MOST_VERSIONS, size},
    change::Change,
    stored::{Kept, now_ms},
};

/// All that the store holds. A clone costs little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// By their numbers; the last one is current.
    versions: BTreeMap<u64, Arc<Kept>>,
    pub(super) runtime: Runtime,
    /// Newest last.
    audit: VecDeque<Arc<AuditEntry>>,
    /// How many there have been.
    audited: u64,
}

impl State {
    pub(super) fn current(&self) -> Option<&Arc<Kept>> {
        self.versions.last_key_value().map(|(_, kept)| kept)
    }

    pub(super) fn versions(&self, before: Option<u64>, most: usize) -> Vec<Version> {
        let earlier = self.versions.range(..before.unwrap_or(u64::MAX));
        earlier.rev().take(most).map(|(_, kept)| kept.version.clone()).collect()
    }

    pub(super) fn version(&self, number: u64) -> Option<Arc<Kept>> {
        self.versions.get(&number).cloned()
    }

    /// Makes a version current, if the one that it is based on is.
    pub(super) fn apply(&mut self, kept: Kept, audit: AuditEntry) -> Result<Version, ControlError> {
        let current = self.current().map(|kept| kept.version.clone());
        if current.as_ref().map(|version| version.number) != kept.version.based_on {
            return Err(match current {
                Some(current) => ControlError::Stale { current: Box::new(current) },
                None => ControlError::Unavailable("it has no versions any more".into()),
            });
        }
        let version = kept.version.clone();
        self.versions.insert(version.number, Arc::new(kept));
        self.make_room();
        self.note(audit);
        Ok(version)
    }

    /// Drops the oldest versions until the others fit.
    fn make_room(&mut self) {
        let mut bytes: usize = self.versions.values().map(|kept| size(&kept.files)).sum();
        let most = usize::try_from(MOST_VERSIONS).unwrap_or(usize::MAX);
        while self.versions.len() > 1 && (self.versions.len() > most || bytes > MOST_KEPT_BYTES) {
            let oldest = self.versions.pop_first();
            bytes = bytes.saturating_sub(oldest.map_or(0, |(_, kept)| size(&kept.files)));
        }
    }

    pub(super) fn make(&mut self, change: Change, audit: AuditEntry) -> Result<bool, ControlError> {
        let is_made = self.runtime.make(change, now_ms())?;
        if is_made {
            self.note(audit);
        }
        Ok(is_made)
    }

    pub(super) fn audit(&self, before: Option<&str>, most: usize) -> Vec<AuditEntry> {
        let before = before.map_or(u64::MAX, |id| id.parse().unwrap_or(0));
        let earlier = |entry: &&Arc<AuditEntry>| entry.id.parse::<u64>().is_ok_and(|id| id < before);
        self.audit.iter().rev().filter(earlier).take(most).map(|entry| AuditEntry::clone(entry)).collect()
    }

    fn note(&mut self, entry: AuditEntry) {
        self.audited = self.audited.saturating_add(1);
        self.audit.push_back(Arc::new(AuditEntry { id: self.audited.to_string(), ..entry }));
        while self.audit.len() > MOST_AUDITED {
            self.audit.pop_front();
        }
    }
}
