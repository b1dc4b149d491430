//! Reconciles lists and switches with the store.

use std::{mem, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};
use tollgate_core::clock::now_ms;
use tollgate_rules::OverrideTarget;
use tollgate_runtime::task_slot::TaskSlot;
use tollgate_store::local::recheck_bans;

use crate::stored::{Connectivity, Restore, StoreHead, StoredRuntime};
use crate::{
    Action, AuditEntry, Control, ControlError, ControlResult, RulesStatus, Runtime, compile_lists,
    handle::Backend, metrics, redis::Redis,
};

/// Longest wait for an expiry; a later one is checked again then.
const MAX_EXPIRY_WAIT_MS: u64 = 3_600_000;
/// Shortest time between two fetches.
const FETCH_INTERVAL: Duration = Duration::from_millis(200);
/// Number of active entries for each millisecond over which instances spread their fetches, and the longest spread.
const ENTRIES_PER_SPREAD_MS: usize = 10;
const MAX_SPREAD_MS: u64 = 500;
/// Pause before a failed expiry is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Reconciles lists and switches.
pub(super) struct ListsReconciler {
    control: Control,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
    active: Activated,
    task: TaskSlot<ControlResult<Activated>>,
    /// Time of the next expiry.
    pub(super) next_expiry: Option<Instant>,
    fetched: Option<Instant>,
}

/// Lists and switches that were activated.
#[derive(Clone, Debug, Default)]
pub(super) struct Activated {
    stored: Arc<StoredRuntime>,
    /// When they were compiled, without those that had expired by then.
    at_ms: u64,
    /// Entries and switches that were omitted, with the reasons.
    omitted: Option<String>,
}

impl ListsReconciler {
    pub(super) fn new(control: Control, status: RulesStatus, snapshot: Arc<dyn OverrideTarget>) -> Self {
        let (active, task, next_expiry, fetched) = Default::default();
        Self { control, status, snapshot, active, task, next_expiry, fetched }
    }

    /// Fetches lists and switches that differ from the active ones, and restores those that the store has lost.
    pub(super) fn reconcile(&mut self, head: &StoreHead, connectivity: Connectivity) {
        let before = Arc::clone(&self.active.stored);
        let active = &before.runtime;
        let is_active = head.generation == active.generation
            && head.runtime_token == before.token
            && head.automatic_token == before.automatic_token;
        if !self.task.is_idle() {
            return;
        }
        if is_active {
            // An earlier failure concerned a state that no longer exists.
            self.report(self.active.omitted.clone());
            return;
        }
        let (control, status, snapshot) = (self.control.clone(), self.status.clone(), self.snapshot.clone());
        // A copy of another region's lists may have an earlier generation.
        let is_copy = control.require_writable().is_err() && !head.runtime_token.is_empty();
        let is_lost = head.generation < active.generation && !is_copy;
        let now_ms = now_ms();
        let has_automatic = active.automatic.iter().any(|entry| entry.expires_at_ms > now_ms);
        let is_automatic_lost = head.automatic_token.is_empty() && has_automatic;
        let spread = Instant::now() + fetch_delay(active, fastrand::u64);
        let begin = self.fetched.map_or(spread, |at| spread.max(at + FETCH_INTERVAL));
        self.fetched = Some(begin);
        self.task.start(async move {
            sleep_until(begin).await;
            // A store in this process loses nothing.
            if let Backend::Redis(redis) = &control.0.backend {
                if is_lost {
                    restore(redis, &before, connectivity).await?;
                }
                if is_automatic_lost {
                    restore_automatic(redis, &before).await?;
                }
            }
            let stored = Arc::new(control.0.backend.runtime().await?);
            let activated = activate(stored, status, snapshot).await?;
            let StoredRuntime { runtime, token, .. } = &*activated.stored;
            // A lifted ban counts as a change of the lists; automatic entries come with bans.
            if *token != before.token || runtime.generation != before.runtime.generation {
                recheck_bans();
            }
            Ok(activated)
        });
    }

    /// Compiles the active lists and switches again, without the expired ones.
    pub(super) fn recompile(&mut self) {
        self.next_expiry = None;
        if self.task.is_idle() {
            let (active, status) = (Arc::clone(&self.active.stored), self.status.clone());
            let snapshot = Arc::clone(&self.snapshot);
            self.task.start(async move {
                let activated = activate(active, status, snapshot).await?;
                recheck_bans();
                Ok(activated)
            });
        }
    }

    /// Waits for the task in progress; whether newer lists or switches are active.
    pub(super) async fn finished(&mut self) -> bool {
        let panicked = || Err(ControlError::Unavailable("a task panicked".to_owned()));
        let activated = self.task.finished().await.unwrap_or_else(panicked);
        match activated {
            Ok(activated) => {
                let before = mem::replace(&mut self.active, activated).stored;
                self.next_expiry = self.next_expiry_after(Duration::ZERO);
                self.report(self.active.omitted.clone());
                let stored = &self.active.stored;
                stored.token != before.token
                    || stored.automatic_token != before.automatic_token
                    || stored.runtime.generation != before.runtime.generation
            }
            Err(error) => {
                self.next_expiry = self.next_expiry_after(RETRY_INTERVAL);
                let reason = format!("the current lists and switches are not active: {error}");
                self.report(Some(reason));
                false
            }
        }
    }

    /// Time of the next expiry; `overdue` from now if it has already passed.
    fn next_expiry_after(&self, overdue: Duration) -> Option<Instant> {
        let end = self.active.stored.runtime.next_expiry(self.active.at_ms)?;
        let wait = match end.saturating_sub(now_ms()) {
            0 => overdue,
            wait => Duration::from_millis(wait.min(MAX_EXPIRY_WAIT_MS)),
        };
        Some(Instant::now() + wait)
    }

    /// Reports why lists or switches are not active, if so.
    fn report(&self, problem: Option<String>) {
        if let Some(problem) = self.status.set_problem(|state| &mut state.lists_problem, problem) {
            tracing::error!(%problem, "lists or switches are not active");
        }
    }

    /// Token of the last active change.
    pub(super) fn token(&self) -> &str {
        &self.active.stored.token
    }
}

/// Delay before a fetch over these lists, which grows with them: all instances fetch the same change. `random` returns a
/// number in a range.
fn fetch_delay(active: &Runtime, random: impl FnOnce(RangeInclusive<u64>) -> u64) -> Duration {
    let Runtime { entries, automatic, switches, .. } = active;
    let spread = (entries.len() + automatic.len() + switches.len()) / ENTRIES_PER_SPREAD_MS;
    Duration::from_millis(random(0..=MAX_SPREAD_MS.min(spread as u64)))
}

/// Restores lists and switches that the store has lost, unless an operator continued without them: then the present
/// ones are adopted.
async fn restore(redis: &Redis, lost: &StoredRuntime, connectivity: Connectivity) -> ControlResult<()> {
    metrics::STORE_ERRORS.increment(["lost"]);
    let subject = format!("lists and switches after {} changes", lost.runtime.generation);
    let audit = AuditEntry::restored(Action::AddEntry, subject);
    match redis.restore_runtime(lost, audit, connectivity).await? {
        Restore::Restored => tracing::error!("restored lists and switches that the store lost"),
        Restore::Present | Restore::Superseded => {
            tracing::error!("control store was reset; adopting its lists");
        }
    }
    Ok(())
}

/// Restores automatic entries that the store has lost, unless another instance did.
async fn restore_automatic(redis: &Redis, lost: &StoredRuntime) -> ControlResult<()> {
    metrics::STORE_ERRORS.increment(["lost"]);
    let now_ms = now_ms();
    let entries = lost.runtime.automatic.iter().filter(|entry| entry.expires_at_ms > now_ms);
    let entries: Vec<_> = entries.cloned().collect();
    redis.restore_automatic(&lost.automatic_token, &entries).await?;
    tracing::error!(entries = entries.len(), "restored automatic entries that the store lost");
    Ok(())
}

async fn activate(
    stored: Arc<StoredRuntime>,
    status: RulesStatus,
    snapshot: Arc<dyn OverrideTarget>,
) -> ControlResult<Activated> {
    let at_ms = now_ms();
    let compiled = spawn_blocking(move || {
        let (lists, mut problems) = compile_lists(&stored.runtime, at_ms);
        problems.extend(stored.problems.iter().cloned());
        snapshot.set_lists(Arc::new(lists));
        let generation = stored.runtime.generation;
        status.update(|state| state.generation = generation);
        metrics::lists(&stored.runtime, at_ms);
        let omitted = (!problems.is_empty()).then(|| problems.join("; "));
        Activated { stored, at_ms, omitted }
    });
    Ok(compiled.await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::tests::switch;

    #[test]
    fn the_fetches_of_long_lists_are_spread_and_those_of_short_ones_are_not() {
        let longest = |count| {
            let runtime = Runtime { switches: vec![switch("*", None); count], ..Runtime::default() };
            fetch_delay(&runtime, |range| *range.end()).as_millis()
        };
        assert_eq!([0, 9, 1_000, 100_000].map(longest), [0, 0, 100, 500]);
    }
}
