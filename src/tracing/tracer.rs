//! Samples calls and starts their spans.

use std::{io, time::Duration};

use opentelemetry::trace::TraceState;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_core::clock::Clock;
use tonic::metadata::MetadataMap;

use super::{
    TraceSettings,
    collector::CollectorError,
    context, exporter,
    record::{CallResult, Record, random_span, random_trace},
    span::Span,
};

/// Maximum number of calls waiting for export. Further ones are dropped and counted.
const MAX_QUEUED_CALLS: usize = 2_048;

/// Maximum length of a recorded domain in bytes. The domain is recorded before it is validated, and may be as long as a
/// message.
const MAX_DOMAIN_BYTES: usize = 256;

/// Time limit for the last export at shutdown.
pub(super) const FINAL_EXPORT_TIMEOUT: Duration = Duration::from_millis(900);

/// Starts spans of calls; one for each worker.
#[derive(Clone, Debug)]
pub struct Tracer {
    /// Sampled share of the calls without a trace, from 0 to 1.
    sample_ratio: f64,
    finished: mpsc::Sender<Box<Record>>,
}

/// Exports spans on a thread of its own. After a drop, the thread ends within a second and is not awaited.
#[derive(Debug)]
pub struct TraceExporter {
    tracer: Tracer,
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

/// Reason why tracing can't start.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// An unusable endpoint or CA file.
    #[error("cannot export traces: {0}")]
    Collector(#[from] CollectorError),
    /// A thread that can't be started.
    #[error("cannot export traces: {0}")]
    System(#[from] io::Error),
}

impl TraceExporter {
    /// Starts the exporter. The collector may be unreachable.
    ///
    /// # Errors
    /// [`TracingError`].
    pub fn start(settings: &TraceSettings) -> Result<Self, TracingError> {
        let (finished, records) = mpsc::channel(MAX_QUEUED_CALLS);
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        exporter::start(settings, records, stop.clone(), end)?;
        let tracer = Tracer { sample_ratio: settings.sample_ratio, finished };
        Ok(Self { tracer, stop: stop.drop_guard(), ended })
    }

    /// The tracer whose spans are exported.
    pub const fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Exports the remaining spans, for at most a second.
    pub async fn stop(self) {
        drop((self.stop, self.tracer));
        let limit = FINAL_EXPORT_TIMEOUT.saturating_add(Duration::from_millis(100));
        if timeout(limit, self.ended).await.is_err() {
            tracing::warn!("shutdown: timed out exporting the last traces");
        }
    }
}

impl Tracer {
    /// Starts the span of a call to `domain` if it is sampled: by its caller, or at random.
    pub fn start(&self, metadata: &MetadataMap, domain: &str, descriptors: usize) -> Span {
        let (trace, parent, state) = match context::caller(metadata) {
            Some(caller) if caller.is_sampled() => {
                (caller.trace_id(), Some(caller.span_id()), context::state(metadata))
            }
            None if fastrand::f64() < self.sample_ratio => (random_trace(), None, TraceState::default()),
            Some(_) | None => return Span::off(),
        };
        let now = Clock::System.now();
        let record = Record {
            trace,
            span: random_span(),
            parent,
            state,
            start: now,
            ended: now,
            domain: truncated(domain).to_owned(),
            descriptors,
            result: CallResult::Unanswered,
            degraded: None,
            decision: None,
        };
        Span::start(record, self.finished.clone())
    }
}

/// The domain, truncated at a character boundary.
fn truncated(domain: &str) -> &str {
    let ends = (0..=domain.len().min(MAX_DOMAIN_BYTES)).rev();
    // A character has at most four bytes.
    ends.take(4).find_map(|end| domain.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_domain_is_truncated() {
        let (finished, mut records) = mpsc::channel(1);
        let tracer = Tracer { sample_ratio: 1.0, finished };
        for (domain, recorded) in [
            ("edge".to_owned(), "edge".to_owned()),
            ("d".repeat(1 << 20), "d".repeat(MAX_DOMAIN_BYTES)),
            (format!("d{}", "é".repeat(1 << 10)), format!("d{}", "é".repeat(127))),
        ] {
            drop(tracer.start(&MetadataMap::new(), &domain, 1));
            assert_eq!(records.try_recv().expect("a record").domain, recorded);
        }
    }
}
