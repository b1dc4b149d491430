//! Which calls are recorded.

use std::{io, time::Duration};

use opentelemetry::trace::TraceState;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::metadata::MetadataMap;

use super::{
    context, deliver,
    record::{Outcome, Record, random_span, random_trace},
    span::Span,
};
use crate::{clock::Clock, settings::TraceSettings};

/// Calls whose records wait to be delivered at the most; those that come while it is full are dropped and counted.
const MOST_WAITING: usize = 2_048;

/// Bytes of a domain at the most that are told of: it is recorded before anyone has looked at it, and callers may make it
/// as long as a message.
const LONGEST_DOMAIN: usize = 256;

/// How long what is left may take to be delivered at the end.
pub(super) const LAST: Duration = Duration::from_millis(900);

/// Begins the record of calls; one for each worker.
#[derive(Clone, Debug)]
pub struct Traces {
    /// Which share of the calls whose callers tell of no trace begin one.
    sample_ratio: f64,
    finished: mpsc::Sender<Box<Record>>,
}

/// The delivery of what is recorded. Dropped, it ends by itself within a second, and nobody waits for that.
#[derive(Debug)]
pub struct Tracing {
    traces: Traces,
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

/// Why there can be no traces.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The collector's address cannot be used.
    #[error("traces cannot be sent (--otlp-endpoint): {0}")]
    Endpoint(String),
    /// The authorities of the collector's certificate cannot be read.
    #[error("traces cannot be sent (--otlp-ca): {0}: {1}")]
    Authorities(String, io::Error),
    /// The operating system refused a thread, or the like.
    #[error("traces cannot be sent: {0}")]
    System(#[from] io::Error),
}

impl Tracing {
    /// Starts to deliver traces. The collector need not be there.
    ///
    /// # Errors
    /// [`TracesError`].
    pub fn start(settings: &TraceSettings) -> Result<Self, TracesError> {
        let (finished, records) = mpsc::channel(MOST_WAITING);
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        deliver::start(settings, records, stop.clone(), end)?;
        let traces = Traces { sample_ratio: settings.sample_ratio, finished };
        Ok(Self { traces, stop: stop.drop_guard(), ended })
    }

    /// What begins them.
    pub const fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Delivers what is left, or gives that up after a second.
    pub async fn stop(self) {
        drop((self.stop, self.traces));
        let most = LAST.saturating_add(Duration::from_millis(100));
        if timeout(most, self.ended).await.is_err() {
            tracing::warn!("the last traces are not delivered: the collector does not answer");
        }
    }
}

impl Traces {
    /// Begins the record of a call to `domain`, if it is to be recorded: as its caller says, or else by chance.
    pub fn begin(&self, metadata: &MetadataMap, domain: &str, descriptors: usize) -> Span {
        let (trace, parent, state) = match context::of(metadata) {
            Some(caller) if caller.is_sampled => {
                (caller.trace, Some(caller.span), context::state_of(metadata))
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
            begun: now,
            ended: now,
            domain: beginning(domain).to_owned(),
            descriptors,
            outcome: Outcome::Unanswered,
            degraded: None,
            decision: None,
        };
        Span::open(record, self.finished.clone())
    }
}

/// The beginning of a domain, where it is too long.
fn beginning(domain: &str) -> &str {
    let ends = (0..=domain.len().min(LONGEST_DOMAIN)).rev();
    // A character has four bytes at the most.
    ends.take(4).find_map(|end| domain.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_no_more_of_a_domain_than_its_beginning() {
        let (finished, mut records) = mpsc::channel(1);
        let traces = Traces { sample_ratio: 1.0, finished };
        for (domain, told) in [
            ("edge".to_owned(), "edge".to_owned()),
            ("d".repeat(1 << 20), "d".repeat(LONGEST_DOMAIN)),
            (format!("d{}", "é".repeat(1 << 10)), format!("d{}", "é".repeat(127))),
        ] {
            drop(traces.begin(&MetadataMap::new(), &domain, 1));
            assert_eq!(records.try_recv().expect("a record").domain, told);
        }
    }
}
