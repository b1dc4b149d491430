//! Events in Redis. `lua/fleet.lua` has the operations.

use std::time::Duration;

use tollgate_store::redis::Reply;

use super::reply::{argument, bytes, items, list, millis, read_json, text, to_json};
use super::{Redis, latest};
use crate::events::{EVENT_LIFETIME, LoggedEvent, MAX_EVENTS};
use crate::model::ControlResult;

/// Names of the keys of the log of events, and of the position of their delivery in it.
const EVENTS: &str = "events";
const POSITION: &str = "delivered";

/// Lifetime of the position of the delivery.
const POSITION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Age of the oldest event that is delivered when no event ever was.
const FIRST_DELIVERY_AGE: Duration = Duration::from_secs(60);

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
    let keys = &[redis.client.keys.named(EVENTS)];
    latest(before, limit, |start, most| async move {
        read_events(redis.client.run_shared("events", keys, &[start, argument(most)]).await?)
    })
    .await
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

/// Reads events with their ids. An unreadable one of another release does not hide the others.
fn read_events(reply: Reply) -> ControlResult<Vec<(String, Option<LoggedEvent>)>> {
    let read = |item| {
        let [id, event] = list(item)?;
        let (id, event) = (text(id)?, read_json(&bytes(event)?).ok());
        Ok((id.clone(), event.map(|event| LoggedEvent { id, ..event })))
    };
    items(reply)?.into_iter().map(read).collect()
}
