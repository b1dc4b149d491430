//! Exports spans in batches to an OTLP collector, on a thread of its own.

use std::{thread, time::Duration};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::{
    common::tonic::ResourceAttributesWithSchema, trace::tonic::group_spans_by_resource_and_scope,
};
use opentelemetry_sdk::Resource;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tokio::{runtime::Builder, select};
use tokio_util::sync::CancellationToken;
use tollgate_flags::DescriptorArgument;
use tollgate_runtime::outage::OutageLog;
use tollgate_runtime::panics::{self, CancelOnPanic};

use super::collector::{Collector, EXPORT_TIMEOUT};
use super::{TraceSettings, metrics, span::Record};

/// Maximum number of calls in a batch.
const MAX_BATCH_CALLS: usize = 512;

/// Time that the first call of a batch waits for more.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Time limit for the last export at shutdown.
pub(super) const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_millis(900);

/// Starts the exporter thread. The thread ends on `stop`, or when every tracer is dropped; then it drops `end`.
pub(super) fn start(
    url: &str,
    settings: &TraceSettings,
    records: mpsc::Receiver<Box<Record>>,
    stop: CancellationToken,
    end: oneshot::Sender<()>,
) -> Result<(), String> {
    let worker = ExportWorker {
        collector: Collector::new(url, settings)?,
        resource: (&resource(&settings.service_name, settings.resource.as_ref())).into(),
        scope: scope(),
        records,
        outage: OutageLog::default(),
    };
    let alarm = CancelOnPanic(panics::process_token());
    let thread = thread::Builder::new().name("traces".to_owned()).spawn(move || {
        let _alarm = alarm;
        match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                runtime.block_on(async {
                    let time_limit = async {
                        stop.cancelled().await;
                        sleep(FINAL_EXPORT_TIMEOUT).await;
                    };
                    select! {
                        () = worker.run(&stop) => {}
                        () = time_limit => {}
                    }
                });
                // A request over HTTP that is not answered is not awaited.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "cannot start the trace exporter"),
        }
        drop(end);
    });
    thread.map(drop).map_err(|error| error.to_string())
}

/// The attributes that identify this process, by the semantic conventions of OpenTelemetry. Stated attributes override them,
/// except for `service.name`, which has its own setting.
fn resource(name: &str, stated: Option<&DescriptorArgument>) -> Resource {
    let own = [
        ("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id".to_owned(), uuid(fastrand::u128(..))),
    ];
    let stated = stated.into_iter().flatten().cloned();
    let all = own.into_iter().chain(stated).chain([("service.name".to_owned(), name.to_owned())]);
    Resource::builder_empty().with_attributes(all.map(|(key, value)| KeyValue::new(key, value))).build()
}

/// A UUID of version 4 (RFC 9562) with these random bits.
fn uuid(random: u128) -> String {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0b11 << 62;
    let bits = (random & !VERSION & !VARIANT) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| hex.get(range).unwrap_or_default());
    parts.join("-")
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("tollgate").with_version(env!("CARGO_PKG_VERSION")).build()
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
        let until = Instant::now() + EXPORT_TIMEOUT;
        let result = self.collector.export(&ExportTraceServiceRequest { resource_spans }, until).await;
        let count = count as u64;
        let refused = result.as_ref().map_or(count, |refused| count.min(*refused));
        metrics::SPANS.add([count - refused, refused]);
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
        until = until.or_else(|| Some(Instant::now() + BATCH_DELAY));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_attributes_override_those_of_the_process_except_the_name() {
        let attributes = |stated: &[(&str, &str)]| {
            let pairs = stated.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let resource = resource("limits", Some(&pairs.collect()));
            let mut found: Vec<_> =
                resource.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            found.sort_unstable();
            found
        };
        let expected = [
            ("service.instance.id", "pod-1"),
            ("service.name", "limits"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("zone", "a"),
        ];
        assert_eq!(
            attributes(&[("service.name", "x"), ("service.instance.id", "pod-1"), ("zone", "a")]),
            expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        assert_eq!(attributes(&[]).len(), 3);
    }

    #[test]
    fn a_random_uuid_has_its_version_and_variant() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
