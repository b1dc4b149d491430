//! Log of the events of all instances, and its delivery.

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::clock::now_ms;
use tollgate_store::redis::Reply;

use crate::events::{EVENT_LIFETIME, EVENTS, EVENTS_DROPPED, MAX_EVENTS, MAX_WAIT, QueuedEvent};
use crate::redis::latest;
use crate::redis::reply::{argument, bytes, items, list, millis, read_json, text, to_json};
use crate::{
    Control, ControlError, ControlResult, LoggedEvent, OperatorEvent, handle::Backend, stored::token,
};

/// Time between two attempts to log an event.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which an event that cannot be logged is dropped.
const RETRY_PERIOD: Duration = Duration::from_secs(600);

/// Names of the keys of the log of events, and of the position of their delivery in it.
const EVENTS_KEY: &str = "events";
const POSITION_KEY: &str = "delivered";

/// Lifetime of the position of the delivery.
const POSITION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Age of the oldest event that is delivered when no event ever was, in milliseconds.
const FIRST_DELIVERY_AGE_MS: u64 = 60_000;

impl Control {
    /// Queues an event, which is logged in the background, unless an equal one was logged recently, or for its occasion by any
    /// instance. Never waits.
    pub fn raise_event(&self, event: OperatorEvent) {
        self.0.events.push(QueuedEvent { event, at_ms: now_ms(), token: token() });
    }

    /// Number of events that can be raised before the oldest is dropped.
    pub fn event_room(&self) -> usize {
        self.0.events.room()
    }

    /// Returns the latest events before the event `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn events(&self, before: Option<&str>, limit: usize) -> ControlResult<Vec<LoggedEvent>> {
        let redis = match &self.0.backend {
            Backend::Memory(memory) => return Ok(memory.events.events(before, limit)),
            Backend::Redis(redis) => redis,
        };
        let key = &redis.client.keys.named(EVENTS_KEY);
        latest(before, limit, |start, most| async move {
            let arguments: [&[u8]; 5] = [key, &start, b"-", b"COUNT", &argument(most)];
            read_events(redis.client.run_command("XREVRANGE", &arguments).await?)
        })
        .await
    }

    /// Returns the oldest events that no instance has delivered yet, oldest first. For the instance that leads, at
    /// `store_ms` by the clock of the store.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn undelivered_events(&self, limit: usize, store_ms: u64) -> ControlResult<Vec<LoggedEvent>> {
        let redis = match &self.0.backend {
            Backend::Memory(memory) => return Ok(memory.events.undelivered(limit)),
            Backend::Redis(redis) => redis,
        };
        let keys = [EVENTS_KEY, POSITION_KEY].map(|name| redis.client.keys.named(name));
        let position = match redis.client.run_command("GET", &[&keys[1]]).await? {
            Reply::Nil => {
                let first = format!("{}-0", store_ms.saturating_sub(FIRST_DELIVERY_AGE_MS));
                self.event_delivered(&first).await?;
                first
            }
            position => text(position)?,
        };
        let after = format!("({position}");
        let later = redis.client.run_command("XREVRANGE", &[&keys[0], b"+", after.as_bytes()]).await?;
        let later = read_events(later)?.into_iter().rev();
        Ok(later.filter_map(|(_, event)| event).take(limit).collect())
    }

    /// Records that all events up to this one were delivered.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn event_delivered(&self, id: &str) -> ControlResult<()> {
        match &self.0.backend {
            Backend::Memory(memory) => {
                memory.events.delivered(id);
                Ok(())
            }
            Backend::Redis(redis) => {
                let key = redis.client.keys.named(POSITION_KEY);
                let arguments: [&[u8]; 4] = [&key, id.as_bytes(), b"PX", &millis(POSITION_LIFETIME)];
                redis.client.run_command("SET", &arguments).await.map(drop)
            }
        }
    }
}

/// Logs queued events, oldest first; never returns.
pub async fn log_events(control: Control) -> Infallible {
    // Exported at zero, so that a first loss is seen as a change.
    EVENTS_DROPPED.export();
    loop {
        let queued = control.0.events.oldest().await;
        let (token, kind) = (queued.token.clone(), queued.event.kind);
        let begun = Instant::now();
        let logged = loop {
            match log(&control, queued.clone()).await {
                Err(ControlError::Unavailable(_)) if begun.elapsed() < RETRY_PERIOD => {
                    sleep(RETRY_INTERVAL).await;
                }
                logged => break logged,
            }
        };
        match logged {
            Ok(true) => EVENTS.increment([kind.name()]),
            Ok(false) => {}
            Err(error) => {
                EVENTS_DROPPED.add(1);
                tracing::warn!(%error, kind = kind.name(), "event dropped: the log is unavailable");
            }
        }
        control.0.events.remove(&token);
    }
}

/// Appends a queued event to the log; whether no equal one was there.
async fn log(control: &Control, queued: QueuedEvent) -> ControlResult<bool> {
    let QueuedEvent { event, at_ms, token } = queued;
    let (digest, interval) = (event.digest(), event.repeat_interval(MAX_WAIT));
    let logged = event.logged(control.instance(), at_ms);
    let redis = match &control.0.backend {
        Backend::Memory(memory) => {
            let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            return Ok(memory.events.append(logged, digest, interval_ms));
        }
        Backend::Redis(redis) => redis,
    };
    let keys = [EVENTS_KEY, &format!("event:{digest}")].map(|name| redis.client.keys.named(name));
    let (lifetime, interval) = (millis(EVENT_LIFETIME), millis(interval));
    let arguments = [token.into(), to_json(&logged)?, argument(MAX_EVENTS), lifetime, interval];
    let reply = redis.client.run_shared("log", &keys, &arguments).await?;
    Ok(reply == Reply::Integer(1))
}

/// Reads events with their ids. An unreadable one of another release does not hide the others.
fn read_events(reply: Reply) -> ControlResult<Vec<(String, Option<LoggedEvent>)>> {
    let read = |item| {
        let [id, fields] = list(item)?;
        let event = items(fields)?.into_iter().nth(1).and_then(|event| read_json(&bytes(event).ok()?).ok());
        let id = text(id)?;
        Ok((id.clone(), event.map(|event: LoggedEvent| LoggedEvent { id, ..event })))
    };
    items(reply)?.into_iter().map(read).collect()
}
