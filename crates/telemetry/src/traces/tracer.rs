//! Samples calls and starts their spans, by the trace context of the caller: the headers `traceparent` and `tracestate` (W3C
//! Trace Context, level 1).

use std::time::Duration;

use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_core::clock::Clock;
use tollgate_runtime::redact::beginning;
use tonic::metadata::MetadataMap;

use super::TraceSettings;
use super::exporter::{self, FINAL_EXPORT_TIMEOUT};
use super::span::{CallResult, Record, Span, random_span, random_trace};

/// Maximum number of calls waiting for export. Further ones are dropped and counted.
const MAX_QUEUED_CALLS: usize = 2_048;

/// Maximum length of a recorded domain in bytes. The domain is recorded before it is validated, and may be as long as a
/// message.
const MAX_DOMAIN_BYTES: usize = 256;

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
    /// The tracer whose spans are exported.
    pub tracer: Tracer,
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl TraceExporter {
    /// Starts the exporter, if there are settings of a collector, which may be unreachable.
    ///
    /// # Errors
    /// An unusable endpoint or CA file, or a thread that cannot be started.
    pub fn start(settings: &TraceSettings) -> Result<Option<Self>, String> {
        let Some(url) = &settings.endpoint else { return Ok(None) };
        let (finished, records) = mpsc::channel(MAX_QUEUED_CALLS);
        let (stop, (end, ended)) = (CancellationToken::new(), oneshot::channel());
        exporter::start(url, settings, records, stop.clone(), end)?;
        let tracer = Tracer { sample_ratio: settings.sample_ratio, finished };
        Ok(Some(Self { tracer, stop: stop.drop_guard(), ended }))
    }

    /// Exports the remaining spans, for at most a second.
    pub async fn stop(self) {
        drop((self.stop, self.tracer));
        let limit = FINAL_EXPORT_TIMEOUT + Duration::from_millis(100);
        if timeout(limit, self.ended).await.is_err() {
            tracing::warn!("shutdown: timed out exporting the last traces");
        }
    }
}

impl Tracer {
    /// Starts the span of a call to `domain` if it is sampled: by its caller, or at random.
    pub fn start(&self, metadata: &MetadataMap, domain: &str, descriptors: usize) -> Span {
        let (trace, parent, state) = match caller(metadata) {
            Some(caller) if caller.is_sampled() => {
                (caller.trace_id(), Some(caller.span_id()), state(metadata))
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
            domain: beginning(domain, MAX_DOMAIN_BYTES).to_owned(),
            descriptors,
            result: CallResult::Unanswered,
            degraded: None,
            decision: None,
        };
        Span::start(record, self.finished.clone())
    }
}

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Maximum length of a propagated state. The specification requires no more.
const MAX_STATE_BYTES: usize = 512;

/// The caller's span, without its state, if `traceparent` is there and valid. A call without the header costs no
/// allocation.
fn caller(metadata: &MetadataMap) -> Option<SpanContext> {
    parse(metadata.get(TRACEPARENT)?.to_str().ok()?)
}

/// The state that vendors add to the context; empty if it is invalid or too long. Read for sampled calls only.
fn state(metadata: &MetadataMap) -> TraceState {
    let lines: Vec<_> = metadata.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok()).collect();
    let state = lines.join(",");
    if state.len() > MAX_STATE_BYTES {
        return TraceState::default();
    }
    state.parse().unwrap_or_default()
}

/// Parses `version-trace-span-flags`, of which later versions may have more parts. The propagator of OpenTelemetry does not
/// check the lengths of the parts.
fn parse(traceparent: &str) -> Option<SpanContext> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut parts = traceparent.split('-');
    let mut part = |length| parts.next().filter(|part| part.len() == length && part.bytes().all(is_hex));
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?);
    let caller = SpanContext::new(trace, span, flags, true, TraceState::default());
    caller.is_valid().then_some(caller)
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

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_caller_states_its_trace_its_span_and_whether_they_are_sampled() {
        let context = |flags| parse(&format!("00-{TRACE}-{SPAN}-{flags}")).expect("a context");
        assert_eq!(context("01").trace_id().to_string(), TRACE);
        assert_eq!(context("01").span_id().to_string(), SPAN);
        let sampled = ["00", "01", "02", "03", "ff"].map(|flags| context(flags).is_sampled());
        assert_eq!(sampled, [false, true, false, true, true]);
        assert!(parse(&format!("01-{TRACE}-{SPAN}-01-and-more")).is_some(), "a later version");
    }

    #[test]
    fn an_invalid_parent_is_ignored() {
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00-{}g-{SPAN}-01", &TRACE[1..]),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-+{}-{SPAN}-01", &TRACE[1..]),
            "00-1-1-01".to_owned(),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    #[test]
    fn states_of_several_headers_are_joined() {
        let mut metadata = MetadataMap::new();
        metadata.append(TRACESTATE, "a=1".parse().expect("a value"));
        metadata.append(TRACESTATE, "b=2".parse().expect("a value"));
        assert_eq!(state(&metadata).header(), "a=1,b=2");
        metadata.append(TRACESTATE, "c".parse().expect("a value"));
        assert_eq!(state(&metadata), TraceState::default());
        let long = format!("a={}", "x".repeat(MAX_STATE_BYTES));
        assert_eq!(state(&MetadataMap::new()), TraceState::default());
        let metadata = MetadataMap::from_headers(
            [(TRACESTATE.parse().expect("a name"), long.parse().expect("a value"))].into_iter().collect(),
        );
        assert_eq!(state(&metadata), TraceState::default());
    }
}
