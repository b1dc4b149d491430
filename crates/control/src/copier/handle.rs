//! Copies of rules: operations on the control store.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::de::IgnoredAny;

use crate::{
    Action, AuditEntry, Control, ControlError, Version,
    backend::Backend,
    bounds::{MAX_ENTRIES, MAX_SWITCHES},
    copies::{
        Adopted, CopyClaim, ListsCopy, MAX_LISTS_BYTES, MAX_TOKEN_BYTES, MAX_TRAIL_BYTES, OverridesHead,
        OverridesPage, RulesCopy, RulesIdentity, StoredField, VersionCopy,
    },
    redis::{Redis, SharedCopies, overrides},
};

impl Control {
    /// Sets the region that writes the rules, lists, switches and overrides of this store, unless it is this one. Then changes of
    /// them are refused here.
    pub fn set_writing_region(&self, region: Option<&str>) {
        let present = self.writing_region().load();
        if present.as_ref().map(|present| present.as_str()) != region {
            self.writing_region().store(region.map(|region| Arc::new(region.to_owned())));
            self.changed().notify_one();
        }
    }

    /// Returns an error if another region writes the rules.
    pub fn require_writable(&self) -> Result<(), ControlError> {
        match self.writing_region().load().as_deref() {
            Some(region) => Err(ControlError::OtherRegion { region: String::clone(region) }),
            None => Ok(()),
        }
    }

    /// Returns what this store has that differs from a known state.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn rules_after(&self, known: &RulesIdentity) -> Result<RulesCopy, ControlError> {
        self.copies()?.rules_after(known, self.source().has_versions()).await
    }

    /// Claims the next comparison with the writing region, at most once in `interval` for all instances of the region.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn claim_copy(&self, interval: Duration) -> Result<CopyClaim, ControlError> {
        self.copies()?.claim(interval).await
    }

    /// Replaces the version, the lists and the switches that differ from the writing region, unless they were replaced since
    /// `claim`.
    ///
    /// # Errors
    /// When the copy is malformed, or the store does not respond; then a part may have been replaced.
    pub async fn adopt_copy(
        &self,
        region: &str,
        claim: &CopyClaim,
        copy: RulesCopy,
    ) -> Result<Adopted, ControlError> {
        let copies = self.copies()?;
        let mut adopted = Adopted::default();
        let version = copy.version.filter(|_| self.source().has_versions());
        if let Some(version) = version {
            check_version(&version)?;
            let audit = audit(region, Action::Apply, format!("version {}", version.number));
            adopted.version = copies.adopt_version(&claim.has.version, version, &audit).await?;
        }
        if let Some(lists) = copy.lists {
            check_lists(&lists)?;
            let subject = format!("lists and switches after {} changes", lists.generation);
            let audit = audit(region, Action::AddEntry, subject);
            adopted.lists = copies.adopt_lists(&claim.has.lists, lists, &audit).await?;
        }
        if adopted != Adopted::default() {
            self.changed().notify_one();
        }
        Ok(adopted)
    }

    /// Records that a comparison with the writing region has succeeded.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn compared(&self, claim: &CopyClaim) -> Result<(), ControlError> {
        self.copies()?.record_comparison(claim.now_ms).await
    }

    /// Returns the changes of overrides that a copy of the state `known` lacks.
    ///
    /// # Errors
    /// When the store does not respond, or is in this process.
    pub async fn overrides_after(
        &self,
        known: &OverridesHead,
        is_continued: bool,
    ) -> Result<OverridesPage, ControlError> {
        overrides::read(self.copied_store()?.client(), known, is_continued).await
    }

    pub(super) fn copied_store(&self) -> Result<&Redis, ControlError> {
        match self.backend() {
            Backend::Redis(redis) => Ok(redis),
            Backend::Memory(_) => {
                Err(ControlError::Unavailable("rules are copied between Redis servers".into()))
            }
        }
    }

    fn copies(&self) -> Result<SharedCopies<'_>, ControlError> {
        self.copied_store().map(Redis::copies)
    }
}

pub(super) fn audit(region: &str, action: Action, subject: String) -> AuditEntry {
    let audit = AuditEntry::restored(action, subject);
    AuditEntry { comment: format!("copied from region {region}"), ..audit }
}

fn check_version(copy: &VersionCopy) -> Result<(), ControlError> {
    check_identity(&copy.token, &copy.trail)?;
    let version: Version = serde_json::from_slice(&copy.meta).map_err(|error| malformed(&error))?;
    if version.number != copy.number || copy.number == 0 {
        return Err(ControlError::Malformed("a version with another number".into()));
    }
    // Only the form; each instance checks the rules before it activates them.
    serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(&copy.files)
        .map(drop)
        .map_err(|error| malformed(&error))
}

fn check_lists(copy: &ListsCopy) -> Result<(), ControlError> {
    check_identity(&copy.token, &copy.trail)?;
    let check = |fields: &[StoredField], what, most| match fields.len() > most {
        true => Err(ControlError::TooMany { what, most }),
        false => Ok(()),
    };
    check(&copy.entries, "entries of lists", MAX_ENTRIES)?;
    check(&copy.switches, "switches", MAX_SWITCHES)?;
    let fields = copy.entries.iter().chain(&copy.switches);
    let bytes = fields
        .fold(0_usize, |sum, field| sum.saturating_add(field.name.len()).saturating_add(field.value.len()));
    match bytes > MAX_LISTS_BYTES {
        true => Err(ControlError::TooLarge { what: "a copy of lists and switches", most: MAX_LISTS_BYTES }),
        false => Ok(()),
    }
}

fn check_identity(token: &str, trail: &str) -> Result<(), ControlError> {
    let is_valid = (1..=MAX_TOKEN_BYTES).contains(&token.len()) && trail.len() <= MAX_TRAIL_BYTES;
    if is_valid { Ok(()) } else { Err(ControlError::Malformed("a copy without a valid token".into())) }
}

fn malformed(error: &serde_json::Error) -> ControlError {
    ControlError::Malformed(error.to_string())
}
