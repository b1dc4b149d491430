//! The caller's trace context, from the headers `traceparent` and `tracestate` (W3C Trace Context, level 1).

use opentelemetry::{
    Context,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _, TraceState},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tonic::metadata::MetadataMap;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Length of `version-trace-span-flags`.
const TRACEPARENT_BYTES: usize = 55;

/// Maximum length of a propagated state. The specification requires no more.
const MAX_STATE_BYTES: usize = 512;

/// The caller's span, without its state, if `traceparent` is there and valid. A call without the header costs no
/// allocation.
pub(super) fn caller(metadata: &MetadataMap) -> Option<SpanContext> {
    parse(metadata.get(TRACEPARENT)?.to_str().ok()?)
}

/// The state that vendors add to the context; empty if it is invalid or too long. Read for sampled calls only.
pub(super) fn state(metadata: &MetadataMap) -> TraceState {
    let lines: Vec<_> = metadata.get_all(TRACESTATE).iter().filter_map(|line| line.to_str().ok()).collect();
    let state = lines.join(",");
    if state.len() > MAX_STATE_BYTES {
        return TraceState::default();
    }
    state.parse().unwrap_or_default()
}

fn parse(traceparent: &str) -> Option<SpanContext> {
    if !has_shape(traceparent) {
        return None;
    }
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Parent(traceparent));
    let caller = context.span().span_context().clone();
    caller.is_valid().then_some(caller)
}

/// Whether the parts have their lengths, which the propagator does not check. Later versions may have more parts.
fn has_shape(traceparent: &str) -> bool {
    let bytes = traceparent.as_bytes();
    let ends = bytes.get(TRACEPARENT_BYTES).is_none_or(|byte| *byte == b'-' && !bytes.starts_with(b"00"));
    let dashes = [2, 35, 52].into_iter().all(|at| bytes.get(at) == Some(&b'-'));
    bytes.len() >= TRACEPARENT_BYTES && dashes && ends && !bytes.contains(&b'+')
}

/// Headers with `traceparent` only.
struct Parent<'a>(&'a str);

impl Extractor for Parent<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
