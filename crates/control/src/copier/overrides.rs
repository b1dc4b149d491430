//! Copies of overrides, page by page.

use std::collections::HashMap;

use tollgate_rules::OverrideId;

use super::{
    ReadRules,
    handle::audit,
    whole_copy::{Readiness, WholeCopy},
};
use crate::{
    Action, Control,
    bounds::MAX_OVERRIDES,
    copies::{CopyClaim, OverridesHead, OverridesPage},
    redis::overrides::{self, CopySources, CopyStep, STEP_CHANGES},
    rule_overrides::OverrideChange,
};

/// Copies overrides, and retries whole copies that fail.
#[derive(Debug, Default)]
pub(super) struct OverridesCopier {
    /// The last whole copy that this instance began and did not complete.
    abandoned: Option<WholeCopy>,
}

/// A copy in progress.
struct Copying<'c> {
    control: &'c Control,
    region: &'c str,
    /// Source of what the store has.
    source: String,
    /// Last revision that was copied.
    revision: u64,
    changes: usize,
    /// The whole copy that it is, unless it is one of further changes.
    whole: Option<Gathered>,
}

/// Overrides that a whole copy has gathered.
struct Gathered {
    copy: WholeCopy,
    /// Whether each has an end.
    overrides: HashMap<OverrideId, bool>,
}

impl OverridesCopier {
    /// Records in the store that a whole copy of this instance has failed, so that the next one need not wait for its end.
    pub(super) async fn release(&self, control: &Control, region: &str, claim: &mut CopyClaim) {
        let Some(abandoned) = self.abandoned.filter(|copy| copy.has_named(&claim.overrides.source)) else {
            return;
        };
        let source = claim.overrides.source.clone();
        let copying = Copying::new(control, region, source, claim.overrides.revision);
        let failed = abandoned.failed(claim.now_ms);
        // Without success, the next round does it.
        if copying.step(CopyStep::Release, (&failed, 0), &[]).await.is_ok() {
            claim.overrides.source = failed;
        }
    }

    /// Copies the overrides of a region whose state is `head`. Whether there were changes.
    pub(super) async fn copy(
        &mut self,
        (control, regions): (&Control, &dyn ReadRules),
        region: &str,
        claim: &CopyClaim,
        head: &OverridesHead,
    ) -> Result<bool, String> {
        let source = head.source_in(region);
        let has = &claim.overrides;
        let is_same = has.source == source && has.revision == head.revision;
        let has_neither = head.lineage.is_empty() && has.revision == 0;
        if is_same || has_neither {
            return Ok(false);
        }
        let failures = match Readiness::of(&has.source, claim.now_ms) {
            Readiness::Ready { failures } => failures,
            Readiness::InProgress => return Ok(false),
            Readiness::Paused { failures } => {
                return Err(format!("the last {failures} copies of all overrides failed"));
            }
        };
        let revision = if has.source == source { has.revision } else { 0 };
        let lineage = if has.source == source { head.lineage.clone() } else { String::new() };
        let known = OverridesHead { lineage, revision, epoch: head.epoch };
        let first = read(regions, region, &known, false).await?;
        let mut copying = Copying::new(control, region, has.source.clone(), revision);
        if first.is_whole {
            let copy = WholeCopy::new(claim.now_ms, failures);
            // From here on, until it is complete.
            self.abandoned = Some(copy);
            copying.begin(copy).await?;
        }
        copying.store_all(regions, first).await?;
        self.abandoned = None;
        Ok(true)
    }
}

async fn read(
    regions: &dyn ReadRules,
    region: &str,
    known: &OverridesHead,
    is_continued: bool,
) -> Result<OverridesPage, String> {
    let read = regions.read_overrides(region, known, is_continued);
    super::in_time(read).await
}

impl<'c> Copying<'c> {
    fn new(control: &'c Control, region: &'c str, source: String, revision: u64) -> Self {
        Self { control, region, source, revision, changes: 0, whole: None }
    }

    /// Begins to replace everything.
    async fn begin(&mut self, copy: WholeCopy) -> Result<(), String> {
        let after = copy.after(0);
        self.step(CopyStep::Begin, (&after, 0), &[]).await?;
        (self.source, self.revision) = (after, 0);
        self.whole = Some(Gathered { copy, overrides: HashMap::new() });
        Ok(())
    }

    /// Stores a page and those that follow it.
    async fn store_all(&mut self, regions: &dyn ReadRules, first: OverridesPage) -> Result<(), String> {
        let source = first.head.source_in(self.region);
        let (mut page, mut pages) = (first, 0_usize);
        loop {
            self.store(&page).await?;
            if !page.has_more {
                break;
            }
            let known = OverridesHead { revision: self.revision, ..page.head };
            page = read(regions, self.region, &known, true).await?;
            pages = pages.saturating_add(1);
            // The latter is a page of the first changes, in place of those that follow.
            if page.head.source_in(self.region) != source || page.is_whole || pages > MAX_OVERRIDES {
                return Err("the overrides of the writing region were restored meanwhile".to_owned());
            }
        }
        self.finish(&source, page.head.revision).await
    }

    /// Stores a page.
    async fn store(&mut self, page: &OverridesPage) -> Result<(), String> {
        for some in page.changes.chunks(STEP_CHANGES) {
            let read = some.iter().filter_map(|change| {
                // An unreadable one, which a newer release may have written, does not affect the others.
                overrides::change(change.revision, change.id.clone().into_bytes(), &change.payload).ok()
            });
            let changes: Vec<OverrideChange> = read.collect();
            let last = some.last().map_or(self.revision, |change| change.revision);
            let stored = self.changes.saturating_add(some.len());
            let (step, after) = match &self.whole {
                Some(Gathered { copy, .. }) => (CopyStep::More, copy.after(stored)),
                None => (CopyStep::Part { from: self.revision }, self.source.clone()),
            };
            self.step(step, (&after, last), &changes).await?;
            (self.source, self.revision, self.changes) = (after, last, stored);
            if let Some(gathered) = &mut self.whole {
                gathered.include(&changes);
            }
        }
        Ok(())
    }

    /// Ends the copy of a state whose last revision is `revision`.
    async fn finish(&self, source: &str, revision: u64) -> Result<(), String> {
        let step = match &self.whole {
            Some(gathered) => gathered.end(),
            None => CopyStep::Part { from: self.revision },
        };
        self.step(step, (source, revision), &[]).await
    }

    async fn step(
        &self,
        step: CopyStep,
        (after, revision): (&str, u64),
        changes: &[OverrideChange],
    ) -> Result<(), String> {
        let redis = self.control.copied_store().map_err(|error| error.to_string())?;
        let subject = format!("{} changes of overrides", self.changes.saturating_add(changes.len()));
        let audit = audit(self.region, Action::SetOverride, subject);
        let sources = CopySources { before: &self.source, after, revision };
        match overrides::adopt(redis.client(), step, sources, changes, &audit).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the overrides of this region were changed meanwhile".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Gathered {
    fn include(&mut self, changes: &[OverrideChange]) {
        for change in changes {
            match &change.entry {
                Some(entry) => self.overrides.insert(change.id, entry.expires_at_ms.is_some_and(|at| at > 0)),
                None => self.overrides.remove(&change.id),
            };
        }
    }

    /// The last step, at which the store has to have all of it.
    fn end(&self) -> CopyStep {
        let ending = self.overrides.values().filter(|has_end| **has_end).count();
        CopyStep::End { overrides: self.overrides.len(), ending }
    }
}
