//! Delivery of events to a webhook.
//!
//! The log of events is the queue, so a receiver that is down delays events and loses none until they are an hour old. The
//! lease of the fleet makes one instance deliver, in order. Where that instance stops between a delivery and its
//! record, the event is delivered again: receivers recognize it by its id.

mod request;

use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tollgate_control::{Control, ControlError, LoggedEvent};
use tollgate_core::clock::now_ms;
use tollgate_runtime::{backoff::Backoff, outage::OutageLog};

use self::request::{Attempt, Receiver};
use super::{FleetView, metrics, reachable, round::Lease};

pub use self::request::WebhookUrl;

/// Receiver of events.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Events")]
pub struct WebhookSettings {
    /// Receiver of events, to which each is sent as JSON at least once: http://HOST:PORT/PATH, or https:// for TLS. Its path
    /// and query are treated as a secret.
    #[arg(id = "webhook-url", long, value_name = "URL", required = false)]
    pub url: WebhookUrl,
    /// File with the secret, of 16 bytes or more, that signs events (HMAC-SHA256). Read again for each event.
    #[arg(id = "webhook-secret-file", long, value_name = "FILE", requires = "webhook-url")]
    pub secret_file: Option<PathBuf>,
    /// PEM file of the CAs for the certificate of the receiver. Default: the Mozilla root CAs.
    #[arg(id = "webhook-ca", long, value_name = "FILE", requires = "webhook-url")]
    pub ca_certificate: Option<PathBuf>,
}

/// Time that an attempt and its record may take; with less of the lease, none is made.
const MAX_DELIVERY: Duration = Duration::from_secs(8);

/// Time between two polls of the log.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two polls: after an error of the store, or while the receiver fails.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Events that are read at once.
const BATCH_EVENTS: usize = 64;

/// Pauses after failed attempts.
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Age above which an event that cannot be delivered is dropped, in milliseconds.
const MAX_AGE_MS: u64 = 3_600_000;

/// Task that delivers events while this instance leads. Apart from the rounds, which a slow receiver must not delay.
#[derive(Debug)]
pub(super) struct Delivery {
    control: Control,
    view: FleetView,
    lease: Lease,
    receiver: Receiver,
    backoff: Backoff,
    /// Time before which no attempt is made.
    resume_at: Option<Instant>,
    /// Event that was delivered and not recorded yet.
    unrecorded: Option<String>,
    outage: OutageLog,
}

impl Delivery {
    pub(super) fn new(control: Control, settings: WebhookSettings, view: FleetView, lease: Lease) -> Self {
        Self {
            control,
            view,
            lease,
            receiver: Receiver(Arc::new(settings)),
            backoff: Backoff::new(MIN_PAUSE, MAX_PAUSE),
            resume_at: None,
            unrecorded: None,
            outage: OutageLog::default(),
        }
    }

    /// Delivers events; never returns.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            reachable(&self.control).await;
            // An error of the control store is logged and counted by the reconciler.
            let pause = self.round().await.unwrap_or(MAX_POLL_INTERVAL);
            sleep(pause).await;
        }
    }

    /// Delivers the waiting events, if this instance leads; returns the time until the next round.
    async fn round(&mut self) -> Result<Duration, ControlError> {
        if self.lease.remaining().is_none() {
            // Another instance delivers, and records what it delivered.
            (self.unrecorded, self.resume_at) = (None, None);
            self.backoff.reset();
        }
        if !self.may_deliver() {
            return Ok(POLL_INTERVAL);
        }
        if let Some(id) = &self.unrecorded {
            self.control.event_delivered(id).await?;
            self.unrecorded = None;
        }
        let rest = self.resume_at.map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(rest) = rest.filter(|rest| !rest.is_zero()) {
            return Ok(rest.min(MAX_POLL_INTERVAL));
        }
        self.resume_at = None;
        let store_ms = self.view.store_time(now_ms());
        for event in self.control.undelivered_events(BATCH_EVENTS, store_ms).await? {
            if !self.may_deliver() {
                break;
            }
            if !self.deliver(event).await? {
                let pause = self.backoff.pause();
                self.resume_at = Instant::now().checked_add(pause);
                return Ok(pause.min(MAX_POLL_INTERVAL));
            }
        }
        Ok(POLL_INTERVAL)
    }

    /// Whether this instance leads until an attempt has ended.
    fn may_deliver(&self) -> bool {
        self.lease.remaining().is_some_and(|rest| rest > MAX_DELIVERY)
    }

    /// Attempts to deliver an event; whether no other attempt is needed.
    async fn deliver(&mut self, event: LoggedEvent) -> Result<bool, ControlError> {
        let (id, kind) = (event.id.clone(), event.kind.clone());
        let now_ms = now_ms();
        let is_expired = now_ms.saturating_sub(event.at_ms) > MAX_AGE_MS;
        let receiver = self.receiver.clone();
        let attempt = spawn_blocking(move || receiver.send(&event, now_ms / 1_000)).await;
        let attempt = attempt.unwrap_or_else(|_| Attempt::Refused("panicked".to_owned()));
        let address = self.receiver.address();
        match attempt {
            Attempt::Delivered => {
                metrics::DELIVERIES.increment(["delivered"]);
                self.backoff.reset();
                if self.outage.recovered() {
                    tracing::info!(%address, "webhook receiver recovered");
                }
            }
            Attempt::Refused(reason) => {
                metrics::DELIVERIES.increment(["refused"]);
                tracing::error!(%address, %reason, %kind, "webhook receiver refused an event");
            }
            Attempt::Failed(reason) => {
                metrics::DELIVERIES.increment([if is_expired { "expired" } else { "failed" }]);
                if self.outage.failed() {
                    tracing::warn!(%address, %reason, "webhook receiver failed; events wait");
                }
                if !is_expired {
                    return Ok(false);
                }
            }
        }
        self.unrecorded = Some(id.clone());
        self.control.event_delivered(&id).await?;
        self.unrecorded = None;
        Ok(true)
    }
}
