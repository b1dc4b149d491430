//! Copies of overrides, page by page.

use super::{ReadRules, handle::audit};
use crate::{
    Action, Control,
    bounds::MAX_OVERRIDES,
    copies::{CopyClaim, OverridesHead, OverridesPage},
    redis::overrides::{self, CopySources, CopyStep},
    rule_overrides::OverrideChange,
};

/// Number of changes that are stored by one step.
const STEP_CHANGES: usize = 250;

/// Time after which a copy that was begun is begun anew, in milliseconds: longer than one takes.
const MAX_COPY_MS: u64 = 60_000;

/// Start of the name of a state that is being copied, before the time.
const COPYING: &str = "copying:";

/// A copy in progress.
struct Copying<'c> {
    control: &'c Control,
    region: &'c str,
    /// Source of what the store has.
    source: String,
    changes: usize,
}

/// Copies the overrides of a region whose state is `head`. Whether there were changes.
pub(super) async fn copy(
    (control, regions): (&Control, &dyn ReadRules),
    region: &str,
    claim: &CopyClaim,
    head: &OverridesHead,
) -> Result<bool, String> {
    let source = head.source_in(region);
    let has = &claim.overrides;
    let is_same = has.source == source && has.revision == head.revision;
    let has_neither = head.lineage.is_empty() && has.revision == 0;
    if is_same || has_neither || is_in_progress(&has.source, claim.now_ms) {
        return Ok(false);
    }
    let revision = if has.source == source { has.revision } else { 0 };
    let lineage = if has.source == source { head.lineage.clone() } else { String::new() };
    let mut known = OverridesHead { lineage, revision, epoch: head.epoch };
    let first = read(regions, region, &known, false).await?;
    let mut copying = Copying { control, region, source: has.source.clone(), changes: 0 };
    if first.is_whole {
        copying.begin(claim.now_ms).await?;
    }
    let (is_whole, source) = (first.is_whole, first.head.source_in(region));
    let (mut page, mut pages) = (first, 0_usize);
    loop {
        if page.head.source_in(region) != source || pages > MAX_OVERRIDES {
            return Err("the overrides of the writing region were restored meanwhile".to_owned());
        }
        let last = copying.store(&page, is_whole).await?.unwrap_or(known.revision);
        if !page.has_more {
            break;
        }
        known = OverridesHead { revision: last, ..page.head.clone() };
        page = read(regions, region, &known, true).await?;
        pages = pages.saturating_add(1);
    }
    copying.finish(is_whole, &source, page.head.revision).await?;
    Ok(true)
}

/// Whether another instance copies everything.
fn is_in_progress(source: &str, now_ms: u64) -> bool {
    let began = source.strip_prefix(COPYING).and_then(|rest| rest.split(':').next()?.parse::<u64>().ok());
    began.is_some_and(|began| now_ms.saturating_sub(began) < MAX_COPY_MS && began <= now_ms)
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

impl Copying<'_> {
    /// Begins to replace everything.
    async fn begin(&mut self, now_ms: u64) -> Result<(), String> {
        let after = format!("{COPYING}{now_ms}:{:x}", fastrand::u64(..));
        self.step(CopyStep::Begin, (&after, 0), &[]).await?;
        self.source = after;
        Ok(())
    }

    /// Stores a page, and returns the revision of its last change.
    async fn store(&mut self, page: &OverridesPage, is_whole: bool) -> Result<Option<u64>, String> {
        let mut last = None;
        for some in page.changes.chunks(STEP_CHANGES) {
            let read = some.iter().filter_map(|change| {
                // An unreadable one, which a newer release may have written, does not affect the others.
                overrides::change(change.revision, change.id.clone().into_bytes(), &change.payload).ok()
            });
            let changes: Vec<OverrideChange> = read.collect();
            last = some.last().map(|change| change.revision).or(last);
            let step = if is_whole { CopyStep::More } else { CopyStep::Part };
            let source = self.source.clone();
            self.step(step, (&source, last.unwrap_or_default()), &changes).await?;
            self.changes = self.changes.saturating_add(some.len());
        }
        Ok(last)
    }

    /// Ends the copy of a state whose last revision is `revision`.
    async fn finish(&self, is_whole: bool, source: &str, revision: u64) -> Result<(), String> {
        let step = if is_whole { CopyStep::End } else { CopyStep::Part };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_was_begun_is_left_to_its_instance_for_a_minute() {
        let began = format!("{COPYING}1000000:abc");
        assert!(is_in_progress(&began, 1_000_000) && is_in_progress(&began, 1_059_999));
        assert!(!is_in_progress(&began, 1_060_000) && !is_in_progress(&began, 900_000));
        assert!(!is_in_progress("", 1) && !is_in_progress("us-east:abc:0", 1));
    }
}
