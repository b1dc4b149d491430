//! Readiness of the process, shared by the gRPC health service, the HTTP port and the admin API.

use std::time::{Duration, Instant};
use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;
use tollgate_store::redis::Undecided;

/// Time between two log lines on one cause.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Causes that are logged in that time: a server may give any number of them.
const MAX_LOGGED_CAUSES: usize = 4;

tollgate_core::named! {
    /// Stage of a process's life.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Phase {
        /// Waiting for the first rules, or for the first decision of the store.
        Starting = "starting",
        /// Rules are active, and the store has decided at least once, or fails while the rules are those of an earlier run.
        Ready = "ready",
        /// Shutdown was requested. Final.
        Stopping = "stopping",
    }
}

/// Shared, observable [`Phase`]; clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Readiness {
    phase: Arc<watch::Sender<Phase>>,
    missing: Arc<Mutex<Preconditions>>,
}

/// Preconditions of readiness that are not met yet. Each has to be met only once: a later outage of the store is
/// handled per response, and must not take every instance out of service at the same time.
#[derive(Debug)]
struct Preconditions {
    rules: bool,
    /// Store handles that have not decided yet; each worker has its own, and so has the HTTP port.
    stores: usize,
    /// Whether the rules are those of an earlier run, so that an outage of the store does not matter.
    tolerates_outage: bool,
    /// The last reason why a handle has not decided.
    undecided: Option<Undecided>,
    /// Logged causes, without their numbers, and the times of these lines.
    logged: Vec<(String, Instant)>,
}

impl Preconditions {
    /// Whether a cause is to be logged now.
    fn is_due(&mut self, cause: &str) -> bool {
        self.logged.retain(|(_, at)| at.elapsed() < LOG_INTERVAL);
        // The nodes of a cluster differ in their addresses.
        let cause: String = cause.chars().filter(|character| !character.is_ascii_digit()).collect();
        let is_due =
            self.logged.len() < MAX_LOGGED_CAUSES && self.logged.iter().all(|(logged, _)| *logged != cause);
        if is_due {
            self.logged.push((cause, Instant::now()));
        }
        is_due
    }
}

impl fmt::Display for Preconditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not ready")?;
        if self.rules {
            f.write_str(": no rules are active")?;
        }
        if self.stores > 0 {
            f.write_str(": Redis has not decided yet")?;
        }
        match &self.undecided {
            Some(undecided) if self.stores > 0 => write!(f, ": {undecided}"),
            _ => Ok(()),
        }
    }
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Readiness {
    /// Ready once rules are active and `stores` store handles have decided.
    pub fn new(stores: usize) -> Self {
        let phase = Arc::new(watch::Sender::new(Phase::Starting));
        let missing = Preconditions {
            rules: true,
            stores,
            tolerates_outage: false,
            undecided: None,
            logged: Vec::new(),
        };
        Self { phase, missing: Arc::new(Mutex::new(missing)) }
    }

    /// Records that rules are active.
    pub fn rules_loaded(&self) {
        self.satisfy(|missing| missing.rules = false);
    }

    /// Records that one store handle decided for the first time.
    pub fn store_decided(&self) {
        self.satisfy(|missing| missing.stores = missing.stores.saturating_sub(1));
    }

    /// Records that the rules are those of an earlier run: an outage of the store, but not a mistake of its set-up, is no
    /// reason to wait.
    pub fn tolerate_outage(&self) {
        self.satisfy(|missing| missing.tolerates_outage = true);
    }

    /// Records and logs the reason why a store handle has not decided yet.
    pub fn store_failed(&self, undecided: Undecided) {
        let mut missing = self.missing.lock();
        if missing.is_due(&undecided.cause) {
            let Undecided { cause, remedy, is_outage: _ } = &undecided;
            tracing::warn!(%cause, remedy, "Redis has not decided yet");
        }
        drop(missing);
        self.satisfy(|missing| missing.undecided = Some(undecided));
    }

    /// The reason why the process is not ready, for operators; `None` if it is.
    pub fn problem(&self) -> Option<String> {
        match self.phase() {
            Phase::Starting => Some(self.missing.lock().to_string()),
            Phase::Ready => None,
            Phase::Stopping => Some(Phase::Stopping.name().to_owned()),
        }
    }

    fn satisfy(&self, update: impl FnOnce(&mut Preconditions)) {
        let mut missing = self.missing.lock();
        update(&mut missing);
        let is_outage = missing.undecided.as_ref().is_some_and(|undecided| undecided.is_outage);
        if !missing.rules && (missing.stores == 0 || missing.tolerates_outage && is_outage) {
            self.advance(|phase| phase == Phase::Starting, Phase::Ready);
        }
    }

    /// Records that shutdown was requested.
    pub fn stop(&self) {
        self.advance(|_| true, Phase::Stopping);
    }

    fn advance(&self, applies: impl Fn(Phase) -> bool, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let changes = applies(*phase) && *phase != next;
            if changes {
                *phase = next;
            }
            changes
        });
    }

    /// Current phase.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Receiver of phase changes.
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undecided(is_outage: bool) -> Undecided {
        Undecided { cause: "refused".to_owned(), remedy: "mend it", is_outage }
    }

    #[test]
    fn an_outage_is_tolerated_by_rules_of_an_earlier_run_alone_and_a_wrong_set_up_never() {
        for (is_earlier_run, is_outage) in [(true, true), (true, false), (false, true), (false, false)] {
            let readiness = Readiness::new(2);
            readiness.store_failed(undecided(is_outage));
            if is_earlier_run {
                readiness.tolerate_outage();
            }
            readiness.rules_loaded();
            let expected = if is_earlier_run && is_outage { Phase::Ready } else { Phase::Starting };
            assert_eq!(readiness.phase(), expected, "{is_earlier_run} {is_outage}");
            readiness.store_failed(undecided(is_outage));
            assert_eq!(readiness.phase(), expected);
            [(); 2].into_iter().for_each(|()| readiness.store_decided());
            assert_eq!(readiness.phase(), Phase::Ready);
        }
    }
}
