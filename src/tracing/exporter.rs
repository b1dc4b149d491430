//! Exports spans in batches to an OTLP collector, on a thread of its own.

use std::{thread, time::Duration};

use bytes::Bytes;
use opentelemetry::InstrumentationScope;
use opentelemetry_proto::{
    tonic::collector::trace::v1::ExportTraceServiceRequest,
    transform::{
        common::tonic::{Attributes, ResourceAttributesWithSchema},
        trace::tonic::group_spans_by_resource_and_scope,
    },
};
use prost::Message as _;
use tokio::{
    runtime::Builder,
    select,
    sync::{mpsc, oneshot},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;
use tollgate_runtime::{
    outage::OutageLog,
    panics::{self, CancelOnPanic},
};

use super::metrics;
use super::{
    record::Record,
    tracer::{FINAL_EXPORT_TIMEOUT, TracingError},
};
use crate::{
    otlp::{Collector, OwnedRuntime, Signal, resource},
    tracing::TraceSettings,
};

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
    let runtime = OwnedRuntime::new(Builder::new_current_thread().enable_all().build()?);
    let make = || Collector::new(&settings.collector, Signal::Traces, EXPORT_TIMEOUT);
    let resource = Attributes(resource(&settings.collector).attributes);
    let worker = ExportWorker {
        collector: runtime.within(make)?,
        resource: ResourceAttributesWithSchema { attributes: resource, schema_url: None },
        scope: scope(),
        records,
        outage: OutageLog::default(),
    };
    let alarm = CancelOnPanic(panics::process_token());
    thread::Builder::new().name("traces".to_owned()).spawn(move || {
        let _alarm = alarm;
        let time_limit = async {
            stop.cancelled().await;
            sleep(FINAL_EXPORT_TIMEOUT).await;
        };
        runtime.block_on(async {
            select! {
                () = worker.run(&stop) => {}
                () = time_limit => {}
            }
        });
        drop(runtime);
        drop(end);
    })?;
    Ok(())
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// Boxed, as they are received.
#[allow(clippy::vec_box)]
type Records = Vec<Box<Record>>;

struct ExportWorker {
    collector: Collector,
    resource: ResourceAttributesWithSchema,
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
        let resource_spans = group_spans_by_resource_and_scope(spans, &self.resource);
        let message = Bytes::from(ExportTraceServiceRequest { resource_spans }.encode_to_vec());
        let now = Instant::now();
        let until = now.checked_add(EXPORT_TIMEOUT).unwrap_or(now);
        let result = self.collector.export(&message, until).await;
        let count = count as u64;
        let refused = result.as_ref().map_or(count, |rejected| rejected.count.min(count));
        metrics::spans_delivered(count.saturating_sub(refused));
        metrics::spans_dropped(refused);
        match &result {
            Err(error) if self.outage.failed() => tracing::warn!(%error, "trace export failed"),
            Ok(_) if self.outage.recovered() => tracing::info!("trace export recovered"),
            Ok(_) | Err(_) => {}
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
    use crate::otlp::{CollectorSettings, OtlpProtocol};

    #[tokio::test]
    async fn invalid_settings_are_an_error() {
        let settings = |endpoint: &str, ca: Option<&str>, protocol| TraceSettings {
            collector: CollectorSettings {
                endpoint: endpoint.to_owned(),
                protocol,
                ca_certificate: ca.map(Into::into),
                headers: Vec::new(),
                service_name: "tollgate".to_owned(),
                resource: Vec::new(),
            },
            sample_ratio: 1.0,
        };
        for (endpoint, ca, protocol) in [
            ("https://localhost:1", Some("/nowhere/ca.pem"), OtlpProtocol::Grpc),
            ("https://localhost:1", Some("/nowhere/ca.pem"), OtlpProtocol::Http),
            // A file without a certificate.
            ("https://localhost:1", Some("Cargo.toml"), OtlpProtocol::Grpc),
            ("https://localhost:1", Some("Cargo.toml"), OtlpProtocol::Http),
            ("http://[:1", None, OtlpProtocol::Grpc),
        ] {
            let (_finished, records) = mpsc::channel(1);
            let (end, _ended) = oneshot::channel();
            let started = start(&settings(endpoint, ca, protocol), records, CancellationToken::new(), end);
            assert!(started.is_err(), "{endpoint} {protocol:?}");
        }
    }
}
