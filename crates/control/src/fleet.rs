//! Figures of traffic that the instances of a fleet share: a report of each, totals by time, and leases.
//!
//! - A *report* is a text that an instance stores every few seconds; it expires soon after the instance stops.
//! - *Totals* are sums over all instances, by intervals of the server's clock.
//! - A *lease* lets one instance do what must be done once.

use std::{ops::Range, time::Duration};

use crate::handle::{Backend, Control};
use crate::model::{ControlResult, check_count, check_size};
use crate::redis::Redis;
use crate::redis::figures::{self, InstanceReport, ReportTopic, Totals};

/// Maximum size of a report.
pub const MAX_REPORT_BYTES: usize = 64 << 10;

/// Maximum number of totals of an interval that are written at once.
const MAX_TOTALS: usize = 64;

impl Control {
    /// Whether other instances may share the store.
    pub fn is_shared(&self) -> bool {
        self.shared_store().is_some()
    }

    /// Stores the report of this instance, and returns the server's time in milliseconds since 1970; `None` for a store
    /// in this process, which has no other instances.
    ///
    /// # Errors
    /// When the report is too large, or the store does not respond.
    pub async fn store_report(&self, topic: ReportTopic, report: String) -> ControlResult<Option<u64>> {
        check_size("a report", report.len(), MAX_REPORT_BYTES)?;
        match self.shared_store() {
            Some(redis) => figures::store_report(redis, topic, self.instance(), report).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the reports of all instances with a recent heartbeat, this one included; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn reports(&self, topic: ReportTopic) -> ControlResult<Vec<InstanceReport>> {
        match self.shared_store() {
            Some(redis) => {
                let instances = self.instances().await?;
                figures::reports(redis, topic, instances.into_iter().map(|instance| instance.id).collect())
                    .await
            }
            None => Ok(Vec::new()),
        }
    }

    /// Adds to the totals of an interval, once; after an error it is unknown whether it did.
    ///
    /// # Errors
    /// When there are too many totals, or the store does not respond.
    pub async fn add_totals(&self, interval: u64, totals: &Totals, lifetime: Duration) -> ControlResult<()> {
        check_count("totals", totals.len(), MAX_TOTALS)?;
        match self.shared_store() {
            Some(redis) => figures::add_totals(redis, interval, totals, lifetime).await,
            None => Ok(()),
        }
    }

    /// Returns the totals of intervals, oldest first; an interval without any is empty.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn totals(&self, intervals: Range<u64>) -> ControlResult<Vec<Totals>> {
        match self.shared_store() {
            Some(redis) => figures::totals(redis, intervals).await,
            None => Ok(Vec::new()),
        }
    }

    /// Takes or renews a lease, which ends after `lifetime`; whether this instance holds it.
    ///
    /// # Errors
    /// When the store does not respond; then the lease is not held.
    pub async fn hold_lease(&self, name: &str, lifetime: Duration) -> ControlResult<bool> {
        match self.shared_store() {
            Some(redis) => figures::hold_lease(redis, name, self.instance(), lifetime).await,
            None => Ok(true),
        }
    }

    fn shared_store(&self) -> Option<&Redis> {
        match &self.0.backend {
            Backend::Memory(_) => None,
            Backend::Redis(redis) => Some(redis),
        }
    }
}
