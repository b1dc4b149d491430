//! Operations of operators, and of the tasks of an instance, on the records of the store: bans, automatic entries and events
//! here, overrides and copies in a file of their own.

mod overrides;

use std::{convert::Infallible, time::Duration};

use tokio::time::{Instant, sleep};
use tollgate_core::clock::now_ms;
use tollgate_store::redis::Reply;

use crate::bounds::{MAX_BAN_BATCH, truncated};
use crate::events::{EVENT_LIFETIME, EVENTS, EVENTS_DROPPED, MAX_EVENTS, MAX_WAIT, QueuedEvent};
use crate::redis::reply::{argument, bytes, items, list, millis, read_json, text, to_json};
use crate::redis::{latest, runtime};
use crate::{
    Action, Added, AuditEntry, AutomaticEntry, AutomaticMode, BanCounts, BanFilter, BanPage, BanPosition,
    BanRemoval, Control, ControlError, ControlResult, ListedBan, LoggedEvent, OperatorEvent,
    automatic::id_of, handle::Backend, lists::Change, metrics, stored::token,
};

/// Time between two attempts to log an event.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time after which an event that cannot be logged is dropped.
const RETRY_PERIOD: Duration = Duration::from_secs(600);

/// Names of the keys of the log of events, and of the position of their delivery in it, for the operations of
/// `lua/fleet.lua`.
const EVENTS_KEY: &str = "events";
const POSITION_KEY: &str = "delivered";

/// Lifetime of the position of the delivery.
const POSITION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Age of the oldest event that is delivered when no event ever was.
const FIRST_DELIVERY_AGE: Duration = Duration::from_secs(60);

/// Bans.
impl Control {
    /// Adds bans that began to the list of active bans, and returns the number of those. Each replaces an earlier ban of
    /// its counter. At most [`MAX_BAN_BATCH`] are added.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_bans(&self, bans: Vec<ListedBan>) -> ControlResult<BanCounts> {
        let listed = |ban: ListedBan| ListedBan { instance: self.instance().to_owned(), ..ban.bounded() };
        let bans: Vec<ListedBan> = bans.into_iter().take(MAX_BAN_BATCH).map(listed).collect();
        let counts = match &self.0.backend {
            Backend::Memory(memory) => memory.bans.record(&bans, now_ms()),
            Backend::Redis(redis) => runtime::record_bans(redis, &bans).await?,
        };
        metrics::active_bans(counts);
        Ok(counts)
    }

    /// Returns at most `limit` active bans that pass the filter, from behind a position.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn bans(
        &self,
        filter: BanFilter<'_>,
        after: Option<BanPosition>,
        limit: usize,
    ) -> ControlResult<BanPage> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.page(filter, after, limit, now_ms())),
            Backend::Redis(redis) => runtime::bans(redis, filter, after, limit).await,
        }
    }

    /// Returns the active ban with this id, if it is listed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn ban(&self, id: &str) -> ControlResult<Option<ListedBan>> {
        match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.get(id, now_ms())),
            Backend::Redis(redis) => runtime::ban(redis, id).await,
        }
    }

    /// Removes a ban that was lifted from the list; whether it was listed. All instances read the bans of their counters
    /// again.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn remove_ban(&self, id: &str) -> ControlResult<bool> {
        let removed = match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.bans.remove(id)),
            Backend::Redis(redis) => runtime::remove_ban(redis, id).await,
        };
        self.0.changed.notify_one();
        removed
    }

    /// Records in the audit log that an operator removes a ban.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn record_ban_removal(
        &self,
        author: &str,
        ban: &ListedBan,
        removal: BanRemoval,
        comment: &str,
    ) -> ControlResult<()> {
        let subject = format!("ban {} {} {}", ban.domain, ban.rule, ban.key_text());
        let audit = AuditEntry::new(author, Action::ResetCounter, subject, comment.to_owned());
        self.change(Change::AuditOnly, AuditEntry { ban: Some(removal), ..audit }).await.map(drop)
    }
}

/// Automatic entries of the deny list.
impl Control {
    /// Adds automatic entries, each unless its counter has one; returns the result for each.
    ///
    /// # Errors
    /// When the store does not respond; then some may have been added.
    pub async fn add_automatic(&self, new: Vec<AutomaticEntry>) -> ControlResult<Vec<Added>> {
        let audited = new.into_iter().map(|entry| {
            let comment = format!("rule {}: {}", entry.rule, entry.reason);
            let audit = entry.audit(&entry.author, Action::AddEntry, comment);
            (entry, audit)
        });
        let audited = audited.collect();
        let results = match &self.0.backend {
            Backend::Memory(memory) => memory.state.lock().add_automatic(audited),
            Backend::Redis(redis) => redis.add_automatic(audited).await?,
        };
        if results.contains(&Added::Listed) {
            self.0.changed.notify_one();
        }
        Ok(results)
    }

    /// Returns the automatic entry with this id.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn automatic(&self, id: &str) -> ControlResult<Option<AutomaticEntry>> {
        let runtime = self.runtime().await?;
        Ok(runtime.automatic.into_iter().find(|entry| entry.id == id))
    }

    /// Removes an automatic entry; whether it existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn lift_automatic(&self, entry: &AutomaticEntry, author: &str) -> ControlResult<bool> {
        let audit = entry.audit(author, Action::RemoveEntry, String::new());
        self.lift(&entry.id, None, audit).await
    }

    /// Removes the automatic entry for the client of a ban that an operator has ended, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn lift_automatic_of(&self, ban: &str, author: &str) -> ControlResult<()> {
        match self.automatic(&id_of(ban)).await? {
            Some(entry) if entry.mode == AutomaticMode::Enforce => {
                self.lift_automatic(&entry, author).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Replaces an automatic entry by an exemption: the client is not listed again before its end. Returns the exemption, if
    /// the entry existed.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn exempt_automatic(
        &self,
        entry: AutomaticEntry,
        author: &str,
        reason: &str,
        expires_at_ms: u64,
    ) -> ControlResult<Option<AutomaticEntry>> {
        let audit = entry.audit(author, Action::RemoveEntry, format!("lifted and exempt: {reason}"));
        let exemption = AutomaticEntry {
            mode: AutomaticMode::Exempt,
            reason: truncated(reason.to_owned()),
            author: truncated(author.to_owned()),
            created_at_ms: audit.at_ms,
            expires_at_ms,
            ..entry
        };
        let is_made = self.lift(&exemption.id, Some(&exemption), audit).await?;
        Ok(is_made.then_some(exemption))
    }

    /// Removes an automatic entry, or replaces it by an exemption; whether there was one.
    async fn lift(
        &self,
        id: &str,
        exemption: Option<&AutomaticEntry>,
        audit: AuditEntry,
    ) -> ControlResult<bool> {
        let lifted = match &self.0.backend {
            Backend::Memory(memory) => Ok(memory.state.lock().lift_automatic(id, exemption, audit)),
            Backend::Redis(redis) => redis.lift_automatic(id, exemption, audit).await,
        };
        self.0.changed.notify_one();
        lifted
    }
}

/// Events.
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
        let keys = &[redis.client.keys.named(EVENTS_KEY)];
        latest(before, limit, |start, most| async move {
            read_events(redis.client.run_shared("events", keys, &[start, argument(most)]).await?)
        })
        .await
    }

    /// Returns the oldest events that no instance has delivered yet, oldest first. For the holder of a lease.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn undelivered_events(&self, limit: usize) -> ControlResult<Vec<LoggedEvent>> {
        let redis = match &self.0.backend {
            Backend::Memory(memory) => return Ok(memory.events.undelivered(limit)),
            Backend::Redis(redis) => redis,
        };
        let arguments = [argument(limit), millis(POSITION_LIFETIME), millis(FIRST_DELIVERY_AGE)];
        let keys = [EVENTS_KEY, POSITION_KEY].map(|name| redis.client.keys.named(name));
        loop {
            let page = read_events(redis.client.run_shared("undelivered", &keys, &arguments).await?)?;
            let last = page.last().filter(|_| page.len() >= limit).map(|(id, _)| id.clone());
            let events: Vec<_> = page.into_iter().filter_map(|(_, event)| event).collect();
            match last {
                // A page of nothing but unreadable ones, of another release, must not keep later ones back.
                Some(last) if events.is_empty() => self.event_delivered(&last).await?,
                _ => return Ok(events),
            }
        }
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
                let arguments = [id.into(), millis(POSITION_LIFETIME)];
                redis.client.run_shared("delivered", &[key], &arguments).await.map(drop)
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
        let [id, event] = list(item)?;
        let (id, event) = (text(id)?, read_json(&bytes(event)?).ok());
        Ok((id.clone(), event.map(|event| LoggedEvent { id, ..event })))
    };
    items(reply)?.into_iter().map(read).collect()
}
