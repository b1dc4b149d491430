//! The thread that exports metrics.

use std::{thread, time::Duration};

use bytes::Bytes;
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::{
    runtime::Builder,
    select,
    sync::oneshot,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_metrics::Exporter;
use tollgate_runtime::outage::OutageLog;

use super::{
    collector::{Collector, CollectorError, OwnedRuntime, Rejected, Signal},
    messages::Messages,
    metrics::{self, ExportResult},
    resource::resource,
    settings::MetricExportSettings,
};

/// Time limit for all messages of an interval, with further attempts.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for the last export, at shutdown.
const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_millis(900);

/// Exports metrics every interval. After a drop, its thread ends and is not awaited.
#[derive(Debug)]
pub struct MetricExporter {
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl MetricExporter {
    /// Starts to export the metrics. The collector may be unreachable.
    ///
    /// # Errors
    /// [`CollectorError`].
    pub fn start(settings: &MetricExportSettings, exporter: Exporter) -> Result<Self, CollectorError> {
        metrics::export();
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        let runtime = OwnedRuntime::new(Builder::new_current_thread().enable_all().build()?);
        let make = || Collector::new(&settings.collector, Signal::Metrics, EXPORT_TIMEOUT);
        let export = ExportLoop {
            collector: runtime.within(make)?,
            exporter,
            resource: resource(&settings.collector),
            start: Clock::System.now(),
            interval: settings.interval,
            outage: OutageLog::default(),
            has_logged_rejected: false,
        };
        let stopped = stop.clone();
        // A panic in the thread is logged and ends the exporter only.
        thread::Builder::new().name("otlp-metrics".to_owned()).spawn(move || {
            runtime.block_on(export.run(&stopped));
            drop(runtime);
            drop(end);
        })?;
        Ok(Self { stop: stop.drop_guard(), ended })
    }

    /// Exports the last values, for at most a second.
    pub async fn stop(self) {
        drop(self.stop);
        let limit = FINAL_EXPORT_TIMEOUT.saturating_add(Duration::from_millis(100));
        if timeout(limit, self.ended).await.is_err() {
            tracing::warn!("shutdown: timed out exporting the last metrics");
        }
    }
}

struct ExportLoop {
    collector: Collector,
    exporter: Exporter,
    resource: Resource,
    /// Start of the counts.
    start: Timestamp,
    interval: Duration,
    outage: OutageLog,
    /// Whether refused points were logged.
    has_logged_rejected: bool,
}

impl ExportLoop {
    /// Exports at the end of each interval, and once more at the stop.
    async fn run(mut self, stop: &CancellationToken) {
        let first = Instant::now().checked_add(self.interval).unwrap_or_else(Instant::now);
        let mut ends = interval_at(first, self.interval);
        // After an export longer than an interval, the next one starts a full interval later.
        ends.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let export = async {
                ends.tick().await;
                self.export(EXPORT_TIMEOUT).await;
            };
            select! {
                biased;
                () = stop.cancelled() => break,
                () = export => {}
            }
        }
        self.export(FINAL_EXPORT_TIMEOUT).await;
    }

    /// Exports all metrics as they are now. They are cumulative, so that a failed export loses only their values at this
    /// time. Logs the start and the end of an outage.
    async fn export(&mut self, limit: Duration) {
        let now = Instant::now();
        let sent = self.send(now.checked_add(limit).unwrap_or(now)).await;
        metrics::exported(match &sent {
            Ok(Rejected { count: 0, .. }) => ExportResult::Success,
            Ok(_) => ExportResult::Partial,
            Err(_) => ExportResult::Failed,
        });
        match &sent {
            Err(error) if self.outage.failed() => tracing::warn!(%error, "metric export failed; retrying"),
            Ok(_) if self.outage.recovered() => tracing::info!("metric export recovered"),
            Ok(_) | Err(_) => {}
        }
        if let Ok(Rejected { count: points @ 1.., reason }) = sent
            && !self.has_logged_rejected
        {
            self.has_logged_rejected = true;
            tracing::warn!(points, %reason, "collector rejected data points of metrics");
        }
    }

    /// Sends all metrics, and returns what was refused of them. A message that fails does not hold back the others.
    async fn send(&self, until: Instant) -> Result<Rejected, String> {
        let mut all = Ok(Rejected::default());
        for message in self.messages() {
            let sent = self.collector.export(&message, until).await;
            all = all.and_then(|all: Rejected| Ok(all.and(sent?)));
        }
        all
    }

    fn messages(&self) -> Vec<Bytes> {
        let mut messages = Messages::new(&self.resource, self.start, Clock::System.now());
        self.exporter.read(|metric| messages.add(metric));
        messages.finish()
    }
}
