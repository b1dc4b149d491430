//! Which trace a caller says that its call is part of.

use opentelemetry::trace::{SpanId, TraceId, TraceState};
use tonic::metadata::MetadataMap;

/// The caller's place in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Whether the caller records the trace.
    pub(super) is_sampled: bool,
}

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Bytes of it that everybody has to pass on; more is passed on by nobody who need not.
const LONGEST_STATE: usize = 512;

/// What a caller tells, if that makes sense (W3C Trace Context, level 1).
pub(super) fn of(metadata: &MetadataMap) -> Option<Context> {
    parse(metadata.get(PARENT)?.to_str().ok()?)
}

/// What vendors add to the context, to be passed on; nothing where it makes no sense.
pub(super) fn state_of(metadata: &MetadataMap) -> TraceState {
    let lines: Vec<_> = metadata.get_all(STATE).iter().filter_map(|line| line.to_str().ok()).collect();
    let state = lines.join(",");
    if state.len() > LONGEST_STATE {
        return TraceState::default();
    }
    state.parse().unwrap_or_default()
}

/// `version-trace-span-flags`, in small hexadecimal digits. Later versions may have more behind.
fn parse(text: &str) -> Option<Context> {
    let mut parts = text.split('-');
    let mut part = |length| parts.next().filter(|part| part.len() == length && part.bytes().all(is_digit));
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let has_more = parts.next().is_some();
    if version == "ff" || (version == "00" && has_more) {
        return None;
    }
    let context = Context {
        trace: TraceId::from_hex(trace).ok()?,
        span: SpanId::from_hex(span).ok()?,
        is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
    };
    (context.trace != TraceId::INVALID && context.span != SpanId::INVALID).then_some(context)
}

const fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_caller_tells_its_trace_its_span_and_whether_they_are_recorded() {
        let context = |flags| parse(&format!("00-{TRACE}-{SPAN}-{flags}")).expect("a context");
        assert_eq!(context("01").trace.to_string(), TRACE);
        assert_eq!(context("01").span.to_string(), SPAN);
        let sampled = ["00", "01", "02", "03", "ff"].map(|flags| context(flags).is_sampled);
        assert_eq!(sampled, [false, true, false, true, true]);
        assert!(parse(&format!("01-{TRACE}-{SPAN}-01-and-more")).is_some(), "a later version");
    }

    #[test]
    fn what_makes_no_sense_tells_nothing() {
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{SPAN}"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}0-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00-{}g-{SPAN}-01", &TRACE[1..]),
            format!(" 00-{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(parse(&text), None, "{text}");
        }
    }

    #[test]
    fn a_state_in_several_headers_is_one() {
        let mut metadata = MetadataMap::new();
        metadata.append(STATE, "a=1".parse().expect("a value"));
        metadata.append(STATE, "b=2".parse().expect("a value"));
        assert_eq!(state_of(&metadata).header(), "a=1,b=2");
        metadata.append(STATE, "c".parse().expect("a value"));
        assert_eq!(state_of(&metadata), TraceState::default());
        let long = format!("a={}", "x".repeat(LONGEST_STATE));
        assert_eq!(state_of(&MetadataMap::new()), TraceState::default());
        let metadata = MetadataMap::from_headers(
            [(STATE.parse().expect("a name"), long.parse().expect("a value"))].into_iter().collect(),
        );
        assert_eq!(state_of(&metadata), TraceState::default());
    }
}
