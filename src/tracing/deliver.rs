//! The way of traces to their collector.

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

use super::metrics;
use super::{
    record::Record,
    traces::{LAST, TracesError},
};
use crate::{
    panics::{self, CancelOnPanic},
    settings::TraceSettings,
};

/// Calls in one message at the most.
const MOST_TOGETHER: usize = 512;

/// How long the first one waits for others.
const GATHERING: Duration = Duration::from_secs(1);

/// How long the collector may take for a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// Starts the thread that delivers. It ends when it is told to stop, or when there is nobody left who records; then
/// `end` is dropped.
pub(super) fn start(
    settings: &TraceSettings,
    records: mpsc::Receiver<Box<Record>>,
    stop: CancellationToken,
    end: oneshot::Sender<()>,
) -> Result<(), TracesError> {
    let apart = Apart(Some(Builder::new_current_thread().enable_all().build()?));
    let mut exporter = {
        let _within = apart.0.as_ref().map(Runtime::enter);
        exporter(settings)?
    };
    exporter.set_resource(&resource(settings));
    let delivery = Delivery { exporter, scope: scope(), records, is_failing: false };
    let alarm = CancelOnPanic(panics::process_token());
    thread::Builder::new().name("traces".to_owned()).spawn(move || {
        let _alarm = alarm;
        let cut = async {
            stop.cancelled().await;
            sleep(LAST).await;
        };
        if let Some(runtime) = &apart.0 {
            runtime.block_on(async {
                select! {
                    () = delivery.run(&stop) => {}
                    () = cut => {}
                }
            });
        }
        drop(apart);
        drop(end);
    })?;
    Ok(())
}

/// A runtime beside the one that is used here. What it still waits for at its end is not waited for, which another
/// runtime must not do.
struct Apart(Option<Runtime>);

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn exporter(settings: &TraceSettings) -> Result<SpanExporter, TracesError> {
    let exporter =
        SpanExporter::builder().with_tonic().with_endpoint(&*settings.endpoint).with_timeout(PATIENCE);
    let exporter = match tls(settings)? {
        Some(tls) => exporter.with_tls_config(tls),
        None => exporter,
    };
    exporter.build().map_err(|error| TracesError::Endpoint(error.to_string()))
}

/// Whom a collector behind TLS is trusted by: without this it would be by nobody.
fn tls(settings: &TraceSettings) -> Result<Option<ClientTlsConfig>, TracesError> {
    // As URLs have it, whatever the case.
    let is_https = settings.endpoint.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let tls = ClientTlsConfig::new();
    match &settings.ca_certificate {
        _ if !is_https => Ok(None),
        Some(path) => {
            let unread = |error| TracesError::Authorities(path.display().to_string(), error);
            Ok(Some(tls.ca_certificate(Certificate::from_pem(fs::read(path).map_err(unread)?))))
        }
        None => Ok(Some(tls.with_enabled_roots())),
    }
}

/// Who it is that tells.
fn resource(settings: &TraceSettings) -> Resource {
    let told = settings.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    Resource::builder_empty()
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(told)
        .with_service_name(settings.service_name.clone())
        .build()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope::builder(env!("CARGO_PKG_NAME")).with_version(env!("CARGO_PKG_VERSION")).build()
}

/// As they come: in boxes.
#[allow(clippy::vec_box)]
type Records = Vec<Box<Record>>;

struct Delivery {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    records: mpsc::Receiver<Box<Record>>,
    is_failing: bool,
}

impl Delivery {
    async fn run(mut self, stop: &CancellationToken) {
        let mut gathered = Records::new();
        loop {
            let is_last = select! {
                biased;
                () = stop.cancelled() => true,
                is_open = gather(&mut self.records, &mut gathered) => !is_open,
            };
            if is_last {
                while let Ok(record) = self.records.try_recv() {
                    gathered.push(record);
                }
            }
            if !gathered.is_empty() {
                self.deliver(&mut gathered).await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn deliver(&mut self, gathered: &mut Records) {
        let spans: Vec<_> = gathered.drain(..).flat_map(|record| record.spans(&self.scope)).collect();
        let count = spans.len();
        let delivered = timeout(PATIENCE, self.exporter.export(spans)).await;
        let delivered = delivered.unwrap_or(Err(OTelSdkError::Timeout(PATIENCE)));
        match delivered {
            Ok(()) => metrics::spans_delivered(count as u64),
            Err(_) => metrics::spans_dropped(count as u64),
        }
        // Told when it begins and when it ends, and not for each message.
        match (&delivered, self.is_failing) {
            (Err(error), false) => tracing::warn!("traces are not delivered: {error}"),
            (Ok(()), true) => tracing::info!("traces are delivered again"),
            _ => {}
        }
        self.is_failing = delivered.is_err();
    }
}

/// Waits for records and then for more of them, and says whether there may be others.
async fn gather(records: &mut mpsc::Receiver<Box<Record>>, gathered: &mut Records) -> bool {
    let mut until: Option<Instant> = None;
    while let Some(room) = MOST_TOGETHER.checked_sub(gathered.len()).filter(|room| *room > 0) {
        let more = records.recv_many(gathered, room);
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
        until = until.or_else(|| Instant::now().checked_add(GATHERING));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_cannot_begin_is_an_error_and_no_panic() {
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
