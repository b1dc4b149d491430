//! Figures of traffic that the instances of a fleet share: a report of each, totals by time, and a lease.
//!
//! - A *report* is a text that an instance stores every few seconds; it expires soon after the instance stops.
//! - *Totals* are sums over all instances, by intervals of the server's clock.
//! - The *lease* lets one instance lead: it does what must be done once.
//!
//! [`event_log`] is the log of events that the instances share. `lua/fleet.lua` has the operations.

mod event_log;

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tollgate_core::clock::now_ms;
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

/// Round of an instance, as it sends it to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRound<'r> {
    pub report: String,
    /// Totals of this instance that it has not added yet, by interval.
    pub totals: &'r [(u64, Totals)],
    pub totals_lifetime: Duration,
    pub lease_lifetime: Duration,
}

/// Reply of the store to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetReply {
    /// Time of the store in milliseconds since 1970.
    pub store_ms: u64,
    /// Whether this instance holds the lease.
    pub is_leader: bool,
}

/// Report of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// Id of the instance.
    pub instance: String,
    /// The time of its storage by the store, in milliseconds since 1970, and the report; `None` for an instance without
    /// one, such as one of an older release.
    pub report: Option<(u64, String)>,
}

impl Control {
    /// Whether other instances may share the store.
    pub fn is_shared(&self) -> bool {
        self.shared_store().is_some()
    }

    /// Stores the report of this instance, adds to the totals of intervals, once, and takes or renews the lease, all in one
    /// step; after an error it is unknown whether it did. Alone with a store in this process, the instance leads.
    ///
    /// # Errors
    /// When the report is too large, there are too many totals, or the store does not respond; then the lease is not held.
    pub async fn fleet_round(&self, round: FleetRound<'_>) -> ControlResult<FleetReply> {
        check_size("a report", round.report.len(), MAX_REPORT_BYTES)?;
        let Some(redis) = self.shared_store() else {
            return Ok(FleetReply { store_ms: now_ms(), is_leader: true });
        };
        let mut keys = vec![report_key(redis, self.instance()), redis.client.keys.named("lease")];
        let lifetimes = [REPORT_LIFETIME, round.lease_lifetime, round.totals_lifetime].map(millis);
        let mut arguments = vec![self.instance().into(), round.report.into()];
        arguments.extend(lifetimes);
        for (interval, totals) in round.totals {
            check_count("totals", totals.len(), MAX_TOTALS)?;
            keys.push(totals_key(redis, *interval));
            for (name, amount) in totals {
                arguments.extend([argument(keys.len()), name.as_str().into(), argument(amount)]);
            }
        }
        // Not repeated: an attempt whose outcome is unknown may have added.
        let [store_ms, leads] = list(redis.client.run_shared("round", &keys, &arguments).await?)?;
        Ok(FleetReply { store_ms: number(store_ms)?, is_leader: leads == Reply::Integer(1) })
    }

    /// Returns the reports of all instances with a recent heartbeat, this one included; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn reports(&self) -> ControlResult<Vec<InstanceReport>> {
        let Some(redis) = self.shared_store() else { return Ok(Vec::new()) };
        let mut instances = self.instances().await?;
        instances.truncate(MAX_REPORTS);
        let mut found = Vec::with_capacity(instances.len());
        for some in instances.chunks(REPORTS_OF_CALL) {
            let keys: Vec<_> = some.iter().map(|instance| report_key(redis, &instance.id)).collect();
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            let replies = items(redis.client.run_command("MGET", &keys).await?)?;
            for (instance, reply) in some.iter().zip(replies) {
                found.push(InstanceReport { instance: instance.id.clone(), report: read_report(reply)? });
            }
        }
        Ok(found)
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
}

fn report_key(redis: &Redis, instance: &str) -> Vec<u8> {
    redis.client.keys.named(&format!("report:{instance}"))
}

fn totals_key(redis: &Redis, interval: u64) -> Vec<u8> {
    redis.client.keys.named(&format!("totals:{interval}"))
}

/// Reads a report with the time of its storage.
fn read_report(reply: Reply) -> ControlResult<Option<(u64, String)>> {
    if reply == Reply::Nil {
        return Ok(None);
    }
    let stored = text(reply)?;
    let (at, report) = stored.split_once('\n').ok_or_else(|| malformed("no time of a report"))?;
    Ok(Some((parse(at.as_bytes())?, report.to_owned())))
}

fn read_totals(reply: Reply) -> ControlResult<Totals> {
    let (mut parts, mut totals) = (Parts::of(reply)?, Totals::new());
    while !parts.is_empty() {
        totals.insert(parts.text()?, parts.number()?);
    }
    Ok(totals)
}
