//! Exports spans in batches to an OTLP collector, on a thread of its own.

use std::{fs, thread, time::Duration};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    SpanExporter, WithExportConfig as _, WithTonicConfig as _,
    tonic_types::transport::{Certificate, ClientTlsConfig},
};
use opentelemetry_sdk::{Resource, error::OTelSdkError, trace::SpanExporter as _};
use tokio::{
    runtime::{Builder, Runtime},
    select,
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::{
    foreign_text,
    outage::OutageLog,
    panics::{self, CancelOnPanic},
};

use super::metrics;
use super::{
    record::Record,
    tracer::{FINAL_EXPORT_TIMEOUT, TracingError},
};
use crate::tracing::TraceSettings;

/// Maximum number of calls in a batch.
const MAX_BATCH_CALLS: usize = 512;

/// Time that the first call of a batch waits for more.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Time limit for the export of a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Starts the exporter thread. The thread ends on `stop`, or when every tracer is dropped; then it drops `end`.
pub(super) fn start(
    settings: &TraceSettings,
    records: mpsc::Receiver<Box<Record>>,
    stop: CancellationToken,
    end: oneshot::Sender<()>,
) -> Result<(), TracingError> {
    let runtime = OwnedRuntime(Some(Builder::new_current_thread().enable_all().build()?));
    let mut exporter = {
        let _within = runtime.0.as_ref().map(Runtime::enter);
        exporter(settings)?
    };
    exporter.set_resource(&resource(settings));
    let worker = ExportWorker { exporter, scope: scope(), records, outage: OutageLog::default() };
    let alarm = CancelOnPanic(panics::process_token());
    thread::Builder::new().name("traces".to_owned()).spawn(move || {
        let _alarm = alarm;
        let time_limit = async {
            stop.cancelled().await;
            sleep(FINAL_EXPORT_TIMEOUT).await;
        };
        if let Some(inner) = &runtime.0 {
            inner.block_on(async {
                select! {
                    () = worker.run(&stop) => {}
                    () = time_limit => {}
                }
            });
        }
        drop(runtime);
        drop(end);
    })?;
    Ok(())
}

/// A runtime that may be dropped inside another one: its tasks are not awaited, which would block that runtime.
struct OwnedRuntime(Option<Runtime>);

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn exporter(settings: &TraceSettings) -> Result<SpanExporter, TracingError> {
    let exporter =
        SpanExporter::builder().with_tonic().with_endpoint(&*settings.endpoint).with_timeout(EXPORT_TIMEOUT);
    let exporter = match tls(settings)? {
        Some(tls) => exporter.with_tls_config(tls),
        None => exporter,
    };
    exporter.build().map_err(|error| TracingError::Endpoint(error.to_string()))
}

/// TLS with its CA certificates; without a configuration, no certificate would be trusted.
fn tls(settings: &TraceSettings) -> Result<Option<ClientTlsConfig>, TracingError> {
    // URL schemes are case-insensitive.
    let is_https = settings.endpoint.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let tls = ClientTlsConfig::new();
    match &settings.ca_certificate {
        _ if !is_https => Ok(None),
        Some(path) => {
            let unread = |error| TracingError::Authorities(path.display().to_string(), error);
            Ok(Some(tls.ca_certificate(Certificate::from_pem(fs::read(path).map_err(unread)?))))
        }
        None => Ok(Some(tls.with_enabled_roots())),
    }
}

/// Resource attributes of this process.
fn resource(settings: &TraceSettings) -> Resource {
    let attributes = settings.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(attributes)
        .with_service_name(settings.service_name.clone())
        .build()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Boxed, as they are received.
#[allow(clippy::vec_box)]
type Records = Vec<Box<Record>>;

struct ExportWorker {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    records: mpsc::Receiver<Box<Record>>,
    outage: OutageLog,
}

impl ExportWorker {
    async fn run(mut self, stop: &CancellationToken) {
        let mut batch = Records::new();
        loop {
            let is_last = select! {
                biased;
                () = stop.cancelled() => true,
                is_open = fill_batch(&mut self.records, &mut batch) => !is_open,
            };
            if is_last {
                while let Ok(record) = self.records.try_recv() {
                    batch.push(record);
                }
            }
            if !batch.is_empty() {
                self.export(&mut batch).await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn export(&mut self, batch: &mut Records) {
        let spans: Vec<_> = batch.drain(..).flat_map(|record| record.spans(&self.scope)).collect();
        let count = spans.len();
        let result = timeout(EXPORT_TIMEOUT, self.exporter.export(spans)).await;
        let result = result.unwrap_or(Err(OTelSdkError::Timeout(EXPORT_TIMEOUT)));
        match &result {
            Ok(()) => metrics::spans_delivered(count as u64),
            Err(_) => metrics::spans_dropped(count as u64),
        }
        match &result {
            Err(error) if self.outage.failed() => {
                let error = foreign_text::bounded(&error.to_string());
                tracing::warn!(%error, "trace export failed");
            }
            Ok(()) if self.outage.recovered() => tracing::info!("trace export recovered"),
            Ok(()) | Err(_) => {}
        }
    }
}

/// Fills a batch: waits for a record, and then for others until [`BATCH_DELAY`]. Returns whether the queue is open.
async fn fill_batch(records: &mut mpsc::Receiver<Box<Record>>, batch: &mut Records) -> bool {
    let mut until: Option<Instant> = None;
    while let Some(room) = MAX_BATCH_CALLS.checked_sub(batch.len()).filter(|room| *room > 0) {
        let more = records.recv_many(batch, room);
        let received = match until {
            None => more.await,
            Some(until) => match timeout_at(until, more).await {
                Ok(received) => received,
                Err(_) => return true,
            },
        };
        if received == 0 {
            return false;
        }
        until = until.or_else(|| Instant::now().checked_add(BATCH_DELAY));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn invalid_settings_are_an_error() {
        let settings = |endpoint: &str, ca: Option<&str>| TraceSettings {
            endpoint: endpoint.to_owned(),
            ca_certificate: ca.map(Into::into),
            sample_ratio: 1.0,
            service_name: "tollgate".to_owned(),
            resource: Vec::new(),
        };
        for (endpoint, ca) in [("https://localhost:1", Some("/nowhere/ca.pem")), ("http://[:1", None)] {
            let (_finished, records) = mpsc::channel(1);
            let (end, _ended) = oneshot::channel();
            assert!(
                start(&settings(endpoint, ca), records, CancellationToken::new(), end).is_err(),
                "{endpoint}"
            );
        }
    }
}
