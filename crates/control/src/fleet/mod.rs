//! Figures of traffic that the instances of a fleet share: a report of each, totals by time, and leases.
//!
//! - A *report* is a text that an instance stores every few seconds; it expires soon after the instance stops.
//! - *Totals* are sums over all instances, by intervals of the server's clock.
//! - A *lease* lets one instance do what must be done once.
//!
//! [`event_log`] is the log of events that the instances share. `lua/fleet.lua` has the operations.

mod event_log;

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tollgate_store::redis::Reply;

pub use self::event_log::log_events;
use crate::handle::Control;
use crate::model::{ControlResult, check_count, check_size};
use crate::redis::Redis;
use crate::redis::reply::{Parts, argument, items, list, malformed, millis, number, parse, text};

/// Maximum size of a report.
pub const MAX_REPORT_BYTES: usize = 64 << 10;

/// Lifetime of a report after it was stored.
const REPORT_LIFETIME: Duration = Duration::from_secs(30);

/// Maximum number of instances whose reports are read.
const MAX_REPORTS: usize = 500;

/// Reports that are read at once, up to 64 KiB each, which bounds the time that one read takes in Redis.
const REPORTS_OF_CALL: usize = 32;

/// Maximum number of totals of an interval that are written at once.
const MAX_TOTALS: usize = 64;

/// Sums by name.
pub type Totals = BTreeMap<String, u64>;

tollgate_core::named! {
    /// Content of the reports of instances, by the name of their keys.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReportTopic {
        Traffic = "report",
        Rollouts = "rollout-report",
    }
}

/// Report of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// Id of the instance.
    pub instance: String,
    /// The report and its age in milliseconds; `None` for an instance without one, such as one of an older release.
    pub report: Option<(u64, String)>,
}

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
        let Some(redis) = self.shared_store() else { return Ok(None) };
        let keys = [report_key(redis, topic, self.instance())];
        let arguments = [report.into(), millis(REPORT_LIFETIME)];
        number(redis.client.run_shared("report", &keys, &arguments).await?).map(Some)
    }

    /// Returns the reports of all instances with a recent heartbeat, this one included; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn reports(&self, topic: ReportTopic) -> ControlResult<Vec<InstanceReport>> {
        let Some(redis) = self.shared_store() else { return Ok(Vec::new()) };
        let mut instances = self.instances().await?;
        instances.truncate(MAX_REPORTS);
        let mut found = Vec::with_capacity(instances.len());
        for some in instances.chunks(REPORTS_OF_CALL) {
            let keys: Vec<_> = some.iter().map(|instance| report_key(redis, topic, &instance.id)).collect();
            let [now, reports] = list(redis.client.run_shared("reports", &keys, &[]).await?)?;
            let now = number(now)?;
            for (instance, reply) in some.iter().zip(items(reports)?) {
                found
                    .push(InstanceReport { instance: instance.id.clone(), report: read_report(reply, now)? });
            }
        }
        Ok(found)
    }

    /// Adds to the totals of an interval, once; after an error it is unknown whether it did.
    ///
    /// # Errors
    /// When there are too many totals, or the store does not respond.
    pub async fn add_totals(&self, interval: u64, totals: &Totals, lifetime: Duration) -> ControlResult<()> {
        check_count("totals", totals.len(), MAX_TOTALS)?;
        let Some(redis) = self.shared_store() else { return Ok(()) };
        let mut arguments = vec![millis(lifetime)];
        for (name, amount) in totals {
            arguments.extend([name.as_str().into(), argument(amount)]);
        }
        // Not repeated: an attempt whose outcome is unknown may have added.
        redis.client.run_shared("add_totals", &[totals_key(redis, interval)], &arguments).await.map(drop)
    }

    /// Returns the totals of intervals, oldest first; an interval without any is empty.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn totals(&self, intervals: Range<u64>) -> ControlResult<Vec<Totals>> {
        let Some(redis) = self.shared_store().filter(|_| !intervals.is_empty()) else {
            return Ok(Vec::new());
        };
        let keys: Vec<_> = intervals.map(|interval| totals_key(redis, interval)).collect();
        items(redis.client.run_shared("totals", &keys, &[]).await?)?.into_iter().map(read_totals).collect()
    }

    /// Takes or renews a lease, which ends after `lifetime`; whether this instance holds it.
    ///
    /// # Errors
    /// When the store does not respond; then the lease is not held.
    pub async fn hold_lease(&self, name: &str, lifetime: Duration) -> ControlResult<bool> {
        let Some(redis) = self.shared_store() else { return Ok(true) };
        let key = redis.client.keys.named(&format!("lease:{name}"));
        let arguments = [self.instance().into(), millis(lifetime)];
        Ok(redis.client.run_shared("lease", &[key], &arguments).await? == Reply::Integer(1))
    }
}

fn report_key(redis: &Redis, topic: ReportTopic, instance: &str) -> Vec<u8> {
    redis.client.keys.named(&format!("{}:{instance}", topic.name()))
}

fn totals_key(redis: &Redis, interval: u64) -> Vec<u8> {
    redis.client.keys.named(&format!("totals:{interval}"))
}

/// Reads a report with its age at `now`, the server's time.
fn read_report(reply: Reply, now: u64) -> ControlResult<Option<(u64, String)>> {
    if !matches!(reply, Reply::Bytes(_)) {
        return Ok(None);
    }
    let stored = text(reply)?;
    let (at, report) = stored.split_once('\n').ok_or_else(|| malformed("no time of a report"))?;
    Ok(Some((now.saturating_sub(parse(at.as_bytes())?), report.to_owned())))
}

fn read_totals(reply: Reply) -> ControlResult<Totals> {
    let (mut parts, mut totals) = (Parts::of(reply)?, Totals::new());
    while !parts.is_empty() {
        totals.insert(parts.text()?, parts.number()?);
    }
    Ok(totals)
}
