//! Outages of the control store.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_runtime::outage::OutageLog;

use crate::{ControlError, metrics, stored::Connectivity};

/// Length of an outage after which other instances may have continued without this one.
const LONG_OUTAGE: Duration = Duration::from_secs(60);

/// Availability of the store, logged when it changes.
#[derive(Debug, Default)]
pub(super) struct StoreOutage {
    log: OutageLog,
    problem: Option<String>,
    /// Time of the last response.
    responded: Option<Instant>,
    /// Time of the first response after a long outage.
    reconnected: Option<Instant>,
}

impl StoreOutage {
    pub(super) fn failed(&mut self, error: &ControlError) {
        metrics::store_up(false);
        if self.log.failed() {
            tracing::error!(%error, "control store unreachable; keeping the active rules");
        }
        self.problem = Some(error.to_string());
    }

    pub(super) fn recovered(&mut self) {
        metrics::store_up(true);
        self.problem = None;
        if self.log.recovered() {
            tracing::info!("control store recovered");
        }
        let before = self.responded.replace(Instant::now());
        if before.is_some_and(|at| at.elapsed() > LONG_OUTAGE) {
            self.reconnected = self.responded;
        }
    }

    /// Connectivity before the last response. A long outage counts until state that was lost in it has been restored.
    pub(super) fn connectivity(&self) -> Connectivity {
        match self.reconnected.is_some_and(|at| at.elapsed() < LONG_OUTAGE) {
            true => Connectivity::Interrupted,
            false => Connectivity::Steady,
        }
    }

    /// The error of the present outage, if there is one.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
