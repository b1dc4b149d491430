//! Outages of the control store, and lists and switches that the Redis user is not permitted to read.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_runtime::outage::OutageLog;

use crate::{ControlError, RulesSource, metrics, stored::Connectivity};

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
        metrics::STORE_UP.set(0.0);
        if self.log.failed() {
            tracing::error!(%error, "control store unreachable; keeping the active rules");
        }
        self.problem = Some(error.to_string());
    }

    pub(super) fn recovered(&mut self) {
        metrics::STORE_UP.set(1.0);
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

/// Time between two checks whether the user is permitted by now.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Whether the ACL denies lists and switches. Then there are none, which is logged once: limits do not need them, and a
/// user that is permitted limits alone is no failure.
#[derive(Debug, Default)]
pub(super) struct AclDenial {
    log: OutageLog,
    denied_at: Option<Instant>,
}

impl AclDenial {
    /// Records an error; whether it is a denial.
    pub(super) fn failed(&mut self, source: RulesSource, error: &ControlError) -> bool {
        let ControlError::Unavailable(reason) = error else { return false };
        if source.has_versions() || !error.is_acl_denial() {
            return false;
        }
        if self.log.failed() {
            tracing::warn!(
                %reason,
                rights = "docs/guides/redis.md",
                "Redis ACL denies lists and switches; continuing without"
            );
        }
        self.denied_at = Some(Instant::now());
        true
    }

    /// Records that access is permitted.
    pub(super) fn recovered(&mut self) {
        self.denied_at = None;
        if self.log.recovered() {
            tracing::info!("lists and switches are available");
        }
    }

    /// Whether it is too early for another attempt.
    pub(super) fn is_waiting(&self) -> bool {
        self.denied_at.is_some_and(|at| at.elapsed() < RETRY_INTERVAL)
    }
}
