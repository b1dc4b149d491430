//! What is recorded of a call, and how OTLP has it.

use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::clock::Timestamp;

/// How a call went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Its caller went away.
    Unanswered,
    /// With a decision, by its name in metrics.
    Decided(&'static str),
    /// With an error, by its name in metrics.
    Failed(&'static str),
}

/// What is recorded of a call. No key and no value of a descriptor is: they may be secret.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// The caller's span, if it told of one.
    pub(super) parent: Option<SpanId>,
    pub(super) state: TraceState,
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) domain: String,
    pub(super) descriptors: usize,
    pub(super) outcome: Outcome,
    /// How the counters were decided that the store did not decide, and why it did not.
    pub(super) degraded: Option<(&'static str, &'static str)>,
    /// From when to when the counters were decided.
    pub(super) decision: Option<(Timestamp, Timestamp)>,
}

impl Record {
    /// Its spans, the call's and the decision's.
    pub(super) fn spans(self, scope: &InstrumentationScope) -> impl Iterator<Item = SpanData> + use<> {
        let span =
            |span, parent: Option<SpanId>, kind, name: &'static str, begun: Timestamp, ended: Timestamp| {
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
                    start_time: begun.into(),
                    // Clocks may be set back.
                    end_time: ended.max(begun).into(),
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
            status: match self.outcome {
                Outcome::Failed(reason) => Status::error(reason),
                Outcome::Decided(_) | Outcome::Unanswered => Status::Unset,
            },
            ..span(self.span, self.parent, SpanKind::Server, "ShouldRateLimit", self.begun, self.ended)
        };
        let decision = self.decision.map(|(begun, ended)| {
            span(random_span(), Some(self.span), SpanKind::Internal, "decide", begun, ended)
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
        match self.outcome {
            Outcome::Decided(code) => attributes.push(KeyValue::new("tollgate.code", code)),
            Outcome::Failed(reason) => attributes.push(KeyValue::new("error.type", reason)),
            Outcome::Unanswered => {}
        }
        if let Some((policy, reason)) = self.degraded {
            attributes.push(KeyValue::new("tollgate.degraded.policy", policy));
            attributes.push(KeyValue::new("tollgate.degraded.reason", reason));
        }
        attributes
    }
}

/// A span's name, which is never 0.
pub(super) fn random_span() -> SpanId {
    fastrand::u64(1..).into()
}

/// A trace's name, which is never 0.
pub(super) fn random_trace() -> TraceId {
    fastrand::u128(1..).into()
}
