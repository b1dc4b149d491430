//! Copies of records, page by page.
//!
//! Whole copies of records, by the name that the source of a store's records has meanwhile.
//!
//! - `copying:TIME:ID:CHANGES`: an instance has begun a copy at that time, and has stored this number of changes. Each
//!   step names the step before it, so that a copy does not continue in a store that has lost one in a failover.
//! - `failed:TIME:COUNT`: at that time, this number of copies in a row had failed.
//!
//! Times are by the store's clock, in milliseconds since 1970. Instances of former releases take any name with the first word
//! `copying` for a copy in progress, and any other for that of another state.

use std::{collections::HashMap, time::Duration};

use super::ReadRules;
use crate::Control;
use crate::RecordKey;
use crate::book::{BookName, RecordChange};
use crate::copies::{CopyClaim, RecordsHead, RecordsPage, audit, source_in};
use crate::redis::book::{self, CopySources, CopyStep, STEP_CHANGES};

/// Copies records, and retries whole copies that fail.
#[derive(Debug, Default)]
pub(super) struct RecordsCopier {
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
    records: HashMap<RecordKey, bool>,
}

impl RecordsCopier {
    /// Records in the store that a whole copy of this instance has failed, so that the next one need not wait for its end.
    pub(super) async fn release(&self, control: &Control, region: &str, claim: &mut CopyClaim) {
        let Some(abandoned) = self.abandoned.filter(|copy| copy.has_named(&claim.records.source)) else {
            return;
        };
        let source = claim.records.source.clone();
        let copying = Copying::new(control, region, source, claim.records.revision);
        let failed = abandoned.failed(claim.now_ms);
        // Without success, the next round does it.
        if copying.step(CopyStep::Release, &failed, 0, &[]).await.is_ok() {
            claim.records.source = failed;
        }
    }

    /// Copies the records of a region whose state is `head`. Whether there were changes.
    pub(super) async fn copy(
        &mut self,
        control: &Control,
        regions: &dyn ReadRules,
        region: &str,
        claim: &CopyClaim,
        head: &RecordsHead,
    ) -> Result<bool, String> {
        let source = source_in(head, region);
        let has = &claim.records;
        let is_same = has.source == source && has.revision == head.revision;
        let has_neither = head.lineage.is_empty() && has.revision == 0;
        if is_same || has_neither {
            return Ok(false);
        }
        let failures = match Readiness::of(&has.source, claim.now_ms) {
            Readiness::Ready { failures } => failures,
            Readiness::InProgress => return Ok(false),
            Readiness::Paused { failures } => {
                return Err(format!("the last {failures} copies of all records failed"));
            }
        };
        let revision = if has.source == source { has.revision } else { 0 };
        let lineage = if has.source == source { head.lineage.clone() } else { String::new() };
        let known = RecordsHead { lineage, revision, epoch: head.epoch };
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
    known: &RecordsHead,
    is_continued: bool,
) -> Result<RecordsPage, String> {
    let read = regions.read_records(region, known, is_continued);
    super::in_time(read).await
}

impl<'c> Copying<'c> {
    fn new(control: &'c Control, region: &'c str, source: String, revision: u64) -> Self {
        Self { control, region, source, revision, changes: 0, whole: None }
    }

    /// Begins to replace everything.
    async fn begin(&mut self, copy: WholeCopy) -> Result<(), String> {
        let after = copy.after(0);
        self.step(CopyStep::Begin, &after, 0, &[]).await?;
        (self.source, self.revision) = (after, 0);
        self.whole = Some(Gathered { copy, records: HashMap::new() });
        Ok(())
    }

    /// Stores a page and those that follow it.
    async fn store_all(&mut self, regions: &dyn ReadRules, first: RecordsPage) -> Result<(), String> {
        let mut head = first.head.clone().unwrap_or_default();
        let source = source_in(&head, self.region);
        let (mut page, mut pages) = (first, 0_usize);
        loop {
            self.store(&page).await?;
            if !page.has_more {
                break;
            }
            let known = RecordsHead { revision: self.revision, ..head };
            page = read(regions, self.region, &known, true).await?;
            head = page.head.clone().unwrap_or_default();
            pages += 1;
            // The latter is a page of the first changes, in place of those that follow.
            if source_in(&head, self.region) != source
                || page.is_whole
                || pages > BookName::Operators.max_records()
            {
                return Err("the records of the writing region were restored meanwhile".to_owned());
            }
        }
        self.finish(&source, head.revision).await
    }

    /// Stores a page.
    async fn store(&mut self, page: &RecordsPage) -> Result<(), String> {
        for some in page.changes.chunks(STEP_CHANGES) {
            let read = some.iter().filter_map(|change| {
                // An unreadable one, which a newer release may have written, does not affect the others.
                book::read_change(change).ok()
            });
            let changes: Vec<RecordChange> = read.collect();
            let last = some.last().map_or(self.revision, |change| change.revision);
            let stored = self.changes + some.len();
            let (step, after) = match &self.whole {
                Some(Gathered { copy, .. }) => (CopyStep::More, copy.after(stored)),
                None => (CopyStep::Part { from: self.revision }, self.source.clone()),
            };
            self.step(step, &after, last, &changes).await?;
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
        self.step(step, source, revision, &[]).await
    }

    async fn step(
        &self,
        step: CopyStep,
        after: &str,
        revision: u64,
        changes: &[RecordChange],
    ) -> Result<(), String> {
        let redis = self.control.copied_store().map_err(|error| error.to_string())?;
        let subject = format!("{} changes of records", self.changes + changes.len());
        let audit = audit(self.region, subject);
        let sources = CopySources { before: &self.source, after, revision };
        match book::adopt(&redis.client, step, sources, changes, &audit).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the records of this region were changed meanwhile".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Gathered {
    fn include(&mut self, changes: &[RecordChange]) {
        for change in changes {
            match &change.record {
                Some(record) => self.records.insert(change.key, record.ends_at_ms().is_some_and(|at| at > 0)),
                None => self.records.remove(&change.key),
            };
        }
    }

    /// The last step, at which the store has to have all of it.
    fn end(&self) -> CopyStep {
        let ending = self.records.values().filter(|has_end| **has_end).count();
        CopyStep::End { records: self.records.len(), ending }
    }
}

/// Time after which a copy is begun anew unless its instance has ended it: longer than one takes.
const MAX_COPY_TIME: Duration = Duration::from_secs(60);

/// Longest time between two attempts.
const MAX_RETRY_INTERVAL: Duration = Duration::from_secs(60);

const COPYING: &str = "copying";
const FAILED: &str = "failed";

/// Whether a whole copy may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Yes, after this number of failed ones in a row.
    Ready { failures: u32 },
    /// An instance makes one.
    InProgress,
    /// This number of them has failed, and the next attempt is later.
    Paused { failures: u32 },
}

impl Readiness {
    /// Returns the readiness of a store whose records have this source.
    pub(super) fn of(source: &str, now_ms: u64) -> Self {
        let mut words = source.split(':');
        let state = words.next();
        let at_ms = words.next().and_then(|word| word.parse::<u64>().ok());
        // A time of the future is from before a clock was set back.
        let age = at_ms.and_then(|at| now_ms.checked_sub(at)).map(Duration::from_millis);
        match (state, age) {
            (Some(COPYING), Some(age)) if age < MAX_COPY_TIME => Self::InProgress,
            (Some(FAILED), age) => {
                let failures = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
                match age {
                    Some(age) if age < pause_after(failures) => Self::Paused { failures },
                    _ => Self::Ready { failures },
                }
            }
            _ => Self::Ready { failures: 0 },
        }
    }
}

/// Pause after the last of several failures in a row. Between a failure and its record is about a second.
fn pause_after(failures: u32) -> Duration {
    let doubled = 1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_secs(doubled.saturating_sub(1)).min(MAX_RETRY_INTERVAL)
}

/// A whole copy that this instance has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WholeCopy {
    began_ms: u64,
    /// Distinguishes copies that begin at the same time.
    id: u64,
    /// Failed ones before it.
    failures: u32,
}

impl WholeCopy {
    pub(super) fn new(began_ms: u64, failures: u32) -> Self {
        Self { began_ms, id: fastrand::u64(..), failures }
    }

    /// Name of the source once this number of changes is stored.
    pub(super) fn after(&self, changes: usize) -> String {
        let Self { began_ms, id, .. } = self;
        format!("{COPYING}:{began_ms}:{id:x}:{changes}")
    }

    /// Whether the source names a step of this copy.
    pub(super) fn has_named(&self, source: &str) -> bool {
        let own = self.after(0);
        let stem = |name: &str| name.rsplit_once(':').map(|(stem, _)| stem.to_owned());
        stem(source).is_some() && stem(source) == stem(&own)
    }

    /// Name of the source after its failure.
    pub(super) fn failed(&self, now_ms: u64) -> String {
        format!("{FAILED}:{now_ms}:{}", self.failures.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const NOW_MS: u64 = 1_000_000;

    #[test]
    fn a_copy_that_was_begun_is_left_to_its_instance_for_a_minute() {
        let copy = WholeCopy::new(NOW_MS, 0);
        // The second is that of a former release.
        for began in [copy.after(0), copy.after(2_250), format!("copying:{NOW_MS}:abc")] {
            let at = |now_ms| Readiness::of(&began, now_ms);
            assert_eq!([at(NOW_MS), at(NOW_MS + 59_999)], [Readiness::InProgress; 2]);
            // After it, or by a clock that was set back.
            assert_eq!([at(NOW_MS + 60_000), at(NOW_MS - 1)], [Readiness::Ready { failures: 0 }; 2]);
        }
        for other in ["", "us-east:abc:0", "copying", "copying::"] {
            assert_eq!(Readiness::of(other, NOW_MS), Readiness::Ready { failures: 0 }, "{other}");
        }
    }

    #[test]
    fn each_failure_doubles_the_pause_until_the_next_attempt() {
        for (failures, pause_ms) in (1..).zip([0, 1_000, 3_000, 7_000, 15_000, 31_000, 60_000, 60_000]) {
            let failed = WholeCopy::new(NOW_MS, failures - 1).failed(NOW_MS);
            let at = |after_ms: u64| Readiness::of(&failed, NOW_MS + after_ms);
            assert_eq!(at(pause_ms), Readiness::Ready { failures }, "{pause_ms}");
            if pause_ms > 0 {
                assert_eq!(at(pause_ms - 1), Readiness::Paused { failures }, "{pause_ms}");
            }
        }
        assert_eq!(pause_after(u32::MAX), MAX_RETRY_INTERVAL);
        let of_the_future = Readiness::of("failed:1000001:9", NOW_MS);
        assert_eq!(of_the_future, Readiness::Ready { failures: 9 });
    }

    #[test]
    fn steps_of_a_copy_have_different_names_that_are_its_own() {
        let [one, other] = [0, 0].map(|failures| WholeCopy::new(NOW_MS, failures));
        assert_ne!(one.after(0), one.after(250));
        for changes in [0, 250] {
            assert!(one.has_named(&one.after(changes)) && !one.has_named(&other.after(changes)));
        }
        assert!(!one.has_named("") && !one.has_named("us-east:abc:0") && !one.has_named(&one.failed(NOW_MS)));
    }
}
