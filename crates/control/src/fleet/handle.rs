//! Operations of the fleet on the control store.

use std::time::Duration;

use super::{InstanceReport, MAX_REPORT_BYTES, MAX_TOTALS, Totals};
use crate::{
    Control, ControlError, LoggedEvent, OperatorEvent,
    backend::Backend,
    events::{Occasion, QueuedEvent},
    redis::{ReportTopic, SharedFigures},
    stored,
};

impl Control {
    /// Whether other instances may share the store.
    pub fn is_shared(&self) -> bool {
        matches!(self.backend(), Backend::Redis(_))
    }

    /// Stores the report of this instance, and returns the server's time in milliseconds since 1970; `None` for a store
    /// in this process, which has no other instances.
    ///
    /// # Errors
    /// When the report is too large, or the store does not respond.
    pub async fn store_report(&self, report: String) -> Result<Option<u64>, ControlError> {
        if report.len() > MAX_REPORT_BYTES {
            return Err(ControlError::TooLarge { what: "a report", most: MAX_REPORT_BYTES });
        }
        match self.figures() {
            Some(figures) => {
                figures.store_report(ReportTopic::Traffic, self.instance(), report).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Returns the reports of all instances with a recent heartbeat, this one included; none for a store in this process.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn reports(&self) -> Result<Vec<InstanceReport>, ControlError> {
        self.reports_about(ReportTopic::Traffic).await
    }

    /// Stores the report of this instance about its rollouts; nowhere without a shared store.
    ///
    /// # Errors
    /// When the report is too large, or the store does not respond.
    pub async fn store_rollout_report(&self, report: String) -> Result<(), ControlError> {
        if report.len() > MAX_REPORT_BYTES {
            return Err(ControlError::TooLarge { what: "a report", most: MAX_REPORT_BYTES });
        }
        match self.figures() {
            Some(figures) => {
                figures.store_report(ReportTopic::Rollouts, self.instance(), report).await.map(drop)
            }
            None => Ok(()),
        }
    }

    /// Returns the reports of all instances with a recent heartbeat about their rollouts.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn rollout_reports(&self) -> Result<Vec<InstanceReport>, ControlError> {
        self.reports_about(ReportTopic::Rollouts).await
    }

    async fn reports_about(&self, topic: ReportTopic) -> Result<Vec<InstanceReport>, ControlError> {
        match self.figures() {
            Some(figures) => {
                let instances = self.instances().await?;
                figures.reports(topic, instances.into_iter().map(|instance| instance.id).collect()).await
            }
            None => Ok(Vec::new()),
        }
    }

    /// Adds to the totals of an interval, once; after an error it is unknown whether it did.
    ///
    /// # Errors
    /// When there are too many totals, or the store does not respond.
    pub async fn add_totals(
        &self,
        interval: u64,
        totals: &Totals,
        lifetime: Duration,
    ) -> Result<(), ControlError> {
        if totals.len() > MAX_TOTALS {
            return Err(ControlError::TooMany { what: "totals", most: MAX_TOTALS });
        }
        match self.figures() {
            Some(figures) => figures.add_totals(interval, totals, lifetime).await,
            None => Ok(()),
        }
    }

    /// Returns the totals of intervals, oldest first; an interval without any is empty.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn totals(&self, intervals: std::ops::Range<u64>) -> Result<Vec<Totals>, ControlError> {
        match self.figures() {
            Some(figures) => figures.totals(intervals).await,
            None => Ok(Vec::new()),
        }
    }

    /// Takes or renews a lease, which ends after `lifetime`; whether this instance holds it.
    ///
    /// # Errors
    /// When the store does not respond; then the lease is not held.
    pub async fn hold_lease(&self, name: &str, lifetime: Duration) -> Result<bool, ControlError> {
        match self.figures() {
            Some(figures) => figures.hold_lease(name, self.instance(), lifetime).await,
            None => Ok(true),
        }
    }

    /// Queues an event, which is logged in the background, unless an equal one was logged recently. Never waits.
    pub fn raise_event(&self, event: OperatorEvent) {
        let token = stored::token();
        self.event_queue().push(QueuedEvent { event, at_ms: stored::now_ms(), occasion: None, token });
    }

    /// Queues an event that all instances together log once for an occasion. Never waits.
    pub fn raise_event_once(&self, event: OperatorEvent, occasion: Occasion) {
        let token = stored::token();
        let occasion = Some(occasion);
        self.event_queue().push(QueuedEvent { event, at_ms: stored::now_ms(), occasion, token });
    }

    /// Number of events that can be raised before the oldest is dropped.
    pub fn event_room(&self) -> usize {
        self.event_queue().room()
    }

    /// Returns the latest events before the event `before`, or of all, newest first.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn events(&self, before: Option<&str>, limit: usize) -> Result<Vec<LoggedEvent>, ControlError> {
        match self.backend() {
            Backend::Memory(memory) => Ok(memory.events().events(before, limit)),
            Backend::Redis(redis) => redis.figures().events(before, limit).await,
        }
    }

    /// Returns the oldest events that no instance has delivered yet, oldest first. For the holder of a lease.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn undelivered_events(&self, limit: usize) -> Result<Vec<LoggedEvent>, ControlError> {
        match self.backend() {
            Backend::Memory(memory) => Ok(memory.events().undelivered(limit)),
            Backend::Redis(redis) => redis.figures().undelivered(limit).await,
        }
    }

    /// Records that all events up to this one were delivered.
    ///
    /// # Errors
    /// When the store does not respond.
    pub async fn event_delivered(&self, id: &str) -> Result<(), ControlError> {
        match self.backend() {
            Backend::Memory(memory) => {
                memory.events().delivered(id);
                Ok(())
            }
            Backend::Redis(redis) => redis.figures().delivered(id).await,
        }
    }

    /// Appends a queued event to the log; whether no equal one was there.
    pub(crate) async fn log_event(&self, queued: QueuedEvent) -> Result<bool, ControlError> {
        let (digest, interval) = (queued.digest(), queued.repeat_interval());
        let QueuedEvent { event, at_ms, occasion: _, token } = queued;
        let logged = event.logged(self.instance(), at_ms);
        match self.backend() {
            Backend::Memory(memory) => {
                let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                Ok(memory.events().append(logged, digest, interval_ms))
            }
            Backend::Redis(redis) => redis.figures().log(&logged, &digest, &token, interval).await,
        }
    }

    fn figures(&self) -> Option<SharedFigures<'_>> {
        match self.backend() {
            Backend::Memory(_) => None,
            Backend::Redis(redis) => Some(redis.figures()),
        }
    }
}
