//! Task that copies the rules of the writing region.

mod records;
mod store;

use std::{convert::Infallible, fmt, pin::Pin, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval, timeout};
use tollgate_runtime::outage::OutageLog;

use self::records::RecordsCopier;
use crate::copies::{Adopted, CopyClaim, CopyResult, CopyState, RecordsHead, RecordsPage, RulesCopy};
use crate::{Control, ControlError, RulesStatus, bounds::truncated, metrics};

/// Time between two comparisons of a region with the writing region.
const INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a comparison, for the largest version over a slow network.
const TIMEOUT: Duration = Duration::from_secs(8);
/// Part of the interval after which a claim is due, so that one instance alone is not late for each second one.
const CLAIM_INTERVAL: Duration = Duration::from_millis(900);

/// A reply of the writing region, or the reason for its absence.
pub type Reading<'r, T = RulesCopy> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'r>>;

/// Access to the regions.
pub trait ReadRules: Send + Sync + fmt::Debug {
    /// Returns the region that writes the rules, unless it is this one or each region has its own.
    fn writing_region(&self) -> Option<String>;

    /// Requests the version, if it is not the one with this token, and the state of the records.
    fn read<'r>(&'r self, region: &'r str, known_version: &'r str) -> Reading<'r>;

    /// Requests the changes of records that a copy of the state `known` lacks; `is_continued` for a further page.
    fn read_records<'r>(
        &'r self,
        region: &'r str,
        known: &'r RecordsHead,
        is_continued: bool,
    ) -> Reading<'r, RecordsPage>;
}

/// Compares the rules and records of this region with those of the writing region, and copies what differs.
#[derive(Debug)]
pub struct RulesCopier {
    control: Control,
    status: RulesStatus,
    regions: Arc<dyn ReadRules>,
    records: RecordsCopier,
    log: OutageLog,
}

impl RulesCopier {
    /// Refuses changes of the rules from now on if another region writes them; copies nothing before [`Self::run`].
    pub fn new(control: Control, status: RulesStatus, regions: Arc<dyn ReadRules>) -> Self {
        control.set_writing_region(regions.writing_region().as_deref());
        Self { control, status, regions, records: RecordsCopier::default(), log: OutageLog::default() }
    }

    /// Compares once a second; never returns.
    pub async fn run(mut self) -> Infallible {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.round().await;
        }
    }

    /// Compares if another region writes the rules, and no other instance of this region did so within the interval.
    async fn round(&mut self) {
        let region = self.regions.writing_region();
        self.control.set_writing_region(region.as_deref());
        let Some(region) = region else {
            self.show(None);
            return;
        };
        // A failure of this region's store has its own metric and alert; until it is over, nothing can be copied.
        let Ok(mut claim) = self.control.claim_copy(CLAIM_INTERVAL).await else { return };
        self.records.release(&self.control, &region, &mut claim).await;
        let mut state = CopyState { region, compared_ms: claim.compared_ms, problem: None };
        if claim.is_claimed {
            match self.compare(&state.region, &claim).await {
                Ok(adopted) => self.compared(&mut state, &claim, adopted),
                Err(reason) => self.failed(&mut state, reason),
            }
        } else {
            // As long as no instance has succeeded since.
            let before = self.status.now();
            let before = before
                .copy
                .as_ref()
                .filter(|before| before.region == state.region && before.compared_ms == state.compared_ms);
            state.problem = before.and_then(|before| before.problem.clone());
        }
        self.show(Some(&state));
    }

    async fn compare(&mut self, region: &str, claim: &CopyClaim) -> Result<Adopted, String> {
        let text = |error: ControlError| error.to_string();
        let copy = in_time(self.regions.read(region, &claim.version)).await?;
        let version = self.control.adopt_version(region, claim, copy.version).await.map_err(text)?;
        let mut adopted = Adopted { version, records: false };
        if let Some(head) = copy.records {
            let (control, regions) = (&self.control, &*self.regions);
            adopted.records = self.records.copy(control, regions, region, claim, &head).await?;
            if adopted.records {
                self.control.0.changed.notify_one();
            }
        }
        self.control.compared(claim).await.map_err(text)?;
        Ok(adopted)
    }

    fn compared(&mut self, state: &mut CopyState, claim: &CopyClaim, adopted: Adopted) {
        state.compared_ms = Some(claim.now_ms);
        if self.log.recovered() {
            tracing::info!(region = state.region, "rules are compared with the writing region again");
        }
        let is_copied = adopted != Adopted::default();
        if is_copied {
            let Adopted { version, records } = adopted;
            tracing::info!(region = state.region, version, records, "copied rules of the writing region");
        }
        let result = if is_copied { CopyResult::Copied } else { CopyResult::Unchanged };
        metrics::RULES_COPIES.increment([result.name()]);
    }

    fn failed(&mut self, state: &mut CopyState, reason: String) {
        metrics::RULES_COPIES.increment([CopyResult::Failed.name()]);
        let reason = truncated(reason);
        if self.log.failed() {
            tracing::warn!(region = state.region, %reason, "cannot compare rules; the last copy stays active");
        }
        state.problem = Some(reason);
    }

    fn show(&self, state: Option<&CopyState>) {
        metrics::rules_compared(state);
        if self.status.now().copy.as_ref() != state {
            self.status.update(|status| status.copy = state.cloned());
        }
    }
}

/// A reply of the writing region that arrives in time.
async fn in_time<T>(reading: Reading<'_, T>) -> Result<T, String> {
    timeout(TIMEOUT, reading).await.map_err(|_| format!("no reply within {TIMEOUT:?}"))?
}
