//! Span of a call in progress, and its record, which is converted to spans of OpenTelemetry.

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tokio::sync::mpsc::Sender;
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_limiter::decision::Degraded;

use super::metrics;

/// Span of a call, which ends on drop. Empty for a call that is not sampled.
#[derive(Debug)]
pub struct Span(Option<Active>);

#[derive(Debug)]
struct Active {
    record: Box<Record>,
    /// Start of the decision.
    decision_start: Option<Timestamp>,
    finished: Sender<Box<Record>>,
}

impl Span {
    /// The span of a call that is not sampled.
    pub const fn off() -> Self {
        Self(None)
    }

    pub(super) fn start(record: Record, finished: Sender<Box<Record>>) -> Self {
        Self(Some(Active { record: Box::new(record), decision_start: None, finished }))
    }

    /// Records the start of the decision.
    pub fn decision_started(&mut self) {
        if let Some(active) = &mut self.0 {
            active.decision_start = Some(Clock::System.now());
        }
    }

    /// Records the end of the decision, and whether it is degraded.
    pub fn decided(&mut self, degraded: Option<Degraded>) {
        if let Some(active) = &mut self.0 {
            active.record.decision = active.decision_start.map(|start| (start, Clock::System.now()));
            active.record.degraded = degraded.map(|degraded| (degraded.policy.name(), degraded.reason));
        }
    }

    /// Records a decision, by its metric label.
    pub fn answered(&mut self, code: &'static str) {
        if let Some(active) = &mut self.0 {
            active.record.result = CallResult::Decided(code);
        }
    }

    /// Records an error, by its metric label.
    pub fn failed(&mut self, reason: &'static str) {
        if let Some(active) = &mut self.0 {
            active.record.result = CallResult::Failed(reason);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(Active { mut record, finished, .. }) = self.0.take() {
            record.ended = Clock::System.now();
            let spans = if record.decision.is_some() { 2 } else { 1 };
            if finished.try_send(record).is_err() {
                metrics::SPANS.add([0, spans]);
            }
        }
    }
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// Reset by the client.
    Unanswered,
    /// A decision, by its metric label.
    Decided(&'static str),
    /// An error, by its metric label.
    Failed(&'static str),
}

/// Record of a call. Without keys and values of descriptors, which may be secret.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// The caller's span, if it sent one.
    pub(super) parent: Option<SpanId>,
    pub(super) state: TraceState,
    pub(super) start: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) domain: String,
    pub(super) descriptors: usize,
    pub(super) result: CallResult,
    /// Policy and reason of a degraded decision.
    pub(super) degraded: Option<(&'static str, &'static str)>,
    /// Start and end of the decision.
    pub(super) decision: Option<(Timestamp, Timestamp)>,
}

impl Record {
    /// Spans of the call and of the decision.
    pub(super) fn spans(self, scope: &InstrumentationScope) -> impl Iterator<Item = SpanData> + use<> {
        let span =
            |span, parent: Option<SpanId>, kind, name: &'static str, start: Timestamp, ended: Timestamp| {
                SpanData {
                    span_context: SpanContext::new(
                        self.trace,
                        span,
                        TraceFlags::SAMPLED,
                        false,
                        self.state.clone(),
                    ),
                    parent_span_id: parent.unwrap_or(SpanId::INVALID),
                    parent_span_is_remote: kind == SpanKind::Server && parent.is_some(),
                    span_kind: kind,
                    name: name.into(),
                    start_time: start.into(),
                    // The clock may be set back.
                    end_time: ended.max(start).into(),
                    attributes: Vec::new(),
                    dropped_attributes_count: 0,
                    events: SpanEvents::default(),
                    links: SpanLinks::default(),
                    status: Status::Unset,
                    instrumentation_scope: scope.clone(),
                }
            };
        let call = SpanData {
            attributes: self.attributes(),
            status: match self.result {
                CallResult::Failed(reason) => Status::error(reason),
                CallResult::Decided(_) | CallResult::Unanswered => Status::Unset,
            },
            ..span(self.span, self.parent, SpanKind::Server, "ShouldRateLimit", self.start, self.ended)
        };
        let decision = self.decision.map(|(start, ended)| {
            span(random_span(), Some(self.span), SpanKind::Internal, "decide", start, ended)
        });
        [call].into_iter().chain(decision)
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = vec![
            KeyValue::new("rpc.system", "grpc"),
            KeyValue::new("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
            KeyValue::new("rpc.method", "ShouldRateLimit"),
            KeyValue::new("tollgate.domain", self.domain.clone()),
            KeyValue::new("tollgate.descriptors", i64::try_from(self.descriptors).unwrap_or(i64::MAX)),
            KeyValue::new("tollgate.degraded", self.degraded.is_some()),
        ];
        match self.result {
            CallResult::Decided(code) => attributes.push(KeyValue::new("tollgate.code", code)),
            CallResult::Failed(reason) => attributes.push(KeyValue::new("error.type", reason)),
            CallResult::Unanswered => {}
        }
        if let Some((policy, reason)) = self.degraded {
            attributes.push(KeyValue::new("tollgate.degraded.policy", policy));
            attributes.push(KeyValue::new("tollgate.degraded.reason", reason));
        }
        attributes
    }
}

/// A random span id, never 0.
pub(super) fn random_span() -> SpanId {
    fastrand::u64(1..).into()
}

/// A random trace id, never 0.
pub(super) fn random_trace() -> TraceId {
    fastrand::u128(1..).into()
}
