//! Figures of the fleet, events and leases in Redis. `lua/fleet.lua` has the operations.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use tollgate_store::redis::Reply;

use super::{
    Cursor, Redis,
    reply::{Parts, argument, bytes, items, list, malformed, number, parse, read_json, text, to_json},
};
use crate::events::{EVENT_LIFETIME, LoggedEvent, MAX_EVENTS};
use crate::model::ControlResult;

/// Sums by name.
pub type Totals = BTreeMap<String, u64>;

/// Content of the reports of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportTopic {
    Traffic,
    Rollouts,
}

/// Report of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// Id of the instance.
    pub instance: String,
    /// The report and its age in milliseconds; `None` for an instance without one, such as one of an older release.
    pub report: Option<(u64, String)>,
}

/// Names of the keys of the log of events, and of the position of their delivery in it.
const EVENTS: &str = "events";
const POSITION: &str = "delivered";

/// Lifetime of a report after it was stored.
const REPORT_LIFETIME: Duration = Duration::from_secs(30);

/// Maximum number of instances whose reports are read.
const MAX_REPORTS: usize = 500;

/// Reports that are read at once, up to 64 KiB each, which bounds the time that one read takes in Redis.
const REPORTS_OF_CALL: usize = 32;

/// Lifetime of the position of the delivery.
const POSITION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Age of the oldest event that is delivered when no event ever was.
const FIRST_DELIVERY_AGE: Duration = Duration::from_secs(60);

fn report_key(redis: &Redis, topic: ReportTopic, instance: &str) -> Vec<u8> {
    let name = match topic {
        ReportTopic::Traffic => "report",
        ReportTopic::Rollouts => "rollout-report",
    };
    redis.client.keys.named(&format!("{name}:{instance}"))
}

fn totals_key(redis: &Redis, interval: u64) -> Vec<u8> {
    redis.client.keys.named(&format!("totals:{interval}"))
}

pub(crate) async fn store_report(
    redis: &Redis,
    topic: ReportTopic,
    instance: &str,
    report: String,
) -> ControlResult<u64> {
    let arguments = [report.into(), millis(REPORT_LIFETIME)];
    number(redis.client.run_shared("report", &[report_key(redis, topic, instance)], &arguments).await?)
}

pub(crate) async fn reports(
    redis: &Redis,
    topic: ReportTopic,
    mut instances: Vec<String>,
) -> ControlResult<Vec<InstanceReport>> {
    instances.truncate(MAX_REPORTS);
    let mut found = Vec::with_capacity(instances.len());
    for some in instances.chunks(REPORTS_OF_CALL) {
        found.extend(some_reports(redis, topic, some).await?);
    }
    Ok(found)
}

async fn some_reports(
    redis: &Redis,
    topic: ReportTopic,
    instances: &[String],
) -> ControlResult<Vec<InstanceReport>> {
    let keys: Vec<_> = instances.iter().map(|instance| report_key(redis, topic, instance)).collect();
    let [now, reports] = list(redis.client.run_shared("reports", &keys, &[]).await?)?;
    let now = number(now)?;
    let read = |reply| -> ControlResult<Option<(u64, String)>> {
        if !matches!(reply, Reply::Bytes(_)) {
            return Ok(None);
        }
        let stored = text(reply)?;
        let (at, report) = stored.split_once('\n').ok_or_else(|| malformed("no time of a report"))?;
        Ok(Some((now.saturating_sub(parse(at.as_bytes())?), report.to_owned())))
    };
    let pairs = instances.iter().cloned().zip(items(reports)?);
    pairs.map(|(instance, reply)| Ok(InstanceReport { instance, report: read(reply)? })).collect()
}

pub(crate) async fn add_totals(
    redis: &Redis,
    interval: u64,
    totals: &Totals,
    lifetime: Duration,
) -> ControlResult<()> {
    let mut arguments = vec![millis(lifetime)];
    for (name, amount) in totals {
        arguments.extend([name.as_str().into(), argument(amount)]);
    }
    // Not repeated: an attempt whose outcome is unknown may have added.
    redis.client.run_shared("add_totals", &[totals_key(redis, interval)], &arguments).await.map(drop)
}

pub(crate) async fn totals(redis: &Redis, intervals: Range<u64>) -> ControlResult<Vec<Totals>> {
    let keys: Vec<_> = intervals.map(|interval| totals_key(redis, interval)).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    items(redis.client.run_shared("totals", &keys, &[]).await?)?.into_iter().map(read_totals).collect()
}

pub(crate) async fn hold_lease(
    redis: &Redis,
    name: &str,
    holder: &str,
    lifetime: Duration,
) -> ControlResult<bool> {
    let key = redis.client.keys.named(&format!("lease:{name}"));
    let arguments = [holder.into(), millis(lifetime)];
    Ok(redis.client.run_shared("lease", &[key], &arguments).await? == Reply::Integer(1))
}

pub(crate) async fn log_event(
    redis: &Redis,
    event: &LoggedEvent,
    digest: &str,
    token: &str,
    interval: Duration,
) -> ControlResult<bool> {
    let keys = [redis.client.keys.named(EVENTS), redis.client.keys.named(&format!("event:{digest}"))];
    let arguments =
        [token.into(), to_json(event)?, argument(MAX_EVENTS), millis(EVENT_LIFETIME), millis(interval)];
    Ok(redis.client.run_shared("log", &keys, &arguments).await? == Reply::Integer(1))
}

pub(crate) async fn events(
    redis: &Redis,
    before: Option<&str>,
    limit: usize,
) -> ControlResult<Vec<LoggedEvent>> {
    let (mut all, mut cursor) = (Vec::new(), Cursor::before(before));
    while let Some((start, most)) = cursor.next(limit.saturating_sub(all.len())) {
        let arguments = [start, argument(most)];
        let part = read_events(
            redis.client.run_shared("events", &[redis.client.keys.named(EVENTS)], &arguments).await?,
        )?;
        cursor.passed(part.len(), part.last().map(|(id, _)| id.as_str()));
        all.extend(part.into_iter().filter_map(|(_, event)| event));
    }
    Ok(all)
}

pub(crate) async fn undelivered(redis: &Redis, limit: usize) -> ControlResult<Vec<LoggedEvent>> {
    let arguments = [argument(limit), millis(POSITION_LIFETIME), millis(FIRST_DELIVERY_AGE)];
    let keys = [redis.client.keys.named(EVENTS), redis.client.keys.named(POSITION)];
    loop {
        let page = read_events(redis.client.run_shared("undelivered", &keys, &arguments).await?)?;
        let last = page.last().filter(|_| page.len() >= limit).map(|(id, _)| id.clone());
        let events: Vec<_> = page.into_iter().filter_map(|(_, event)| event).collect();
        match last {
            // A page of nothing but unreadable ones, of another release, must not keep later ones back.
            Some(last) if events.is_empty() => delivered(redis, &last).await?,
            _ => return Ok(events),
        }
    }
}

pub(crate) async fn delivered(redis: &Redis, id: &str) -> ControlResult<()> {
    let arguments = [id.into(), millis(POSITION_LIFETIME)];
    redis.client.run_shared("delivered", &[redis.client.keys.named(POSITION)], &arguments).await.map(drop)
}

/// Whole milliseconds, at least one, as an expiry has to be.
fn millis(time: Duration) -> Vec<u8> {
    argument(time.as_millis().max(1))
}

fn read_totals(reply: Reply) -> ControlResult<Totals> {
    let (mut parts, mut totals) = (Parts::of(reply)?, Totals::new());
    while !parts.is_empty() {
        totals.insert(parts.text()?, parts.number()?);
    }
    Ok(totals)
}

/// Reads events with their ids. An unreadable one of another release does not hide the others.
fn read_events(reply: Reply) -> ControlResult<Vec<(String, Option<LoggedEvent>)>> {
    let read = |item| {
        let [id, event] = list(item)?;
        let (id, event) = (text(id)?, read_json(&bytes(event)?).ok());
        Ok((id.clone(), event.map(|event| LoggedEvent { id, ..event })))
    };
    items(reply)?.into_iter().map(read).collect()
}
