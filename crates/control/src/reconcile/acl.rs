//! Lists and switches that the Redis user is not permitted to read, where rules come from a directory.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_runtime::outage::OutageLog;

use crate::{ControlError, RulesSource};

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
