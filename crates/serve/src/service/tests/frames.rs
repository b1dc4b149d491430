//! Frames, which are the same for both readers of requests, and canonical: decoding and encoding one yields it again.

use futures_util::FutureExt as _;
use proptest::prelude::*;
use prost::Message as _;

use super::{bans::BANNING, *};

/// Services that have had the same requests at the same times: one of decoded messages, and the other one of bytes.
struct Twins {
    messages: TestService,
    frames: TestService,
}

impl Twins {
    fn new(rules: &str, modes: Modes, options: &ResponseOptions) -> Self {
        let service = || TestService::with_rules(rules, modes, options.clone());
        Self { messages: service(), frames: service() }
    }

    /// Calls both, and compares their responses.
    async fn call(&self, descriptors: Vec<RateLimitDescriptor>) {
        self.call_with(RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 }).await;
    }

    /// Returns the frame, if there is a response.
    async fn call_with(&self, request: RateLimitRequest) -> Option<Bytes> {
        let span = &mut Span::off();
        let expected = self.messages.inner.respond(&request, Deadline::UNKNOWN, span).await;
        let bytes = request.encode_to_vec();
        let Some(plain) = self.frames.inner.read(&bytes) else {
            assert!(matches!(expected, Err(RequestError::Invalid { .. })), "{request:?}");
            return None;
        };
        let answer = self.frames.inner.answer(&plain, Deadline::UNKNOWN, span).await;
        let (answer, expected) = match (answer, expected) {
            (Result::Ok(answer), Result::Ok(expected)) => (answer, expected),
            (answer, expected) => {
                assert_eq!(answer.err(), expected.err(), "{request:?}");
                return None;
            }
        };
        let message = answer.message().expect("a message");
        assert_eq!(answer.frame, expected.frame, "{message:?}");
        let ([flag, length @ ..], encoded) = answer.frame.split_first_chunk::<5>().expect("a message");
        assert_eq!(encoded, message.encode_to_vec(), "{message:?}");
        assert_eq!((*flag, u32::from_be_bytes(*length) as usize), (0, message.encoded_len()));
        answer.permits.iter().for_each(HeldPermits::hand_over);
        Some(answer.frame)
    }

    fn advance(&self, seconds: u64) {
        for service in [&self.messages, &self.frames] {
            service.clock.set(service.clock.now().plus(Duration::from_secs(seconds)));
        }
    }
}

#[tokio::test]
async fn both_readers_of_requests_yield_the_same_canonical_frame() {
    let plain = ResponseOptions { dynamic_metadata: false, ..options(HeaderStyle::Off) };
    let header_names = HeaderNames { reset_at: Some("X-Reset-At".to_owned()), ..HeaderNames::default() };
    let all = [
        plain.clone(),
        ResponseOptions { headers: HeaderStyle::Ietf, ..plain.clone() },
        ResponseOptions { retry_after_header: false, ..plain.clone() },
        ResponseOptions { headers: HeaderStyle::XRatelimit, header_names, ..plain.clone() },
        ResponseOptions { decision_metadata: NamedDecisions::All, ..plain.clone() },
        ResponseOptions { problem_body: true, ..plain },
    ];
    let keys = ["two", "day", "none", "bucket", "free", "shadow", "quota", "multiple", "unknown"];
    let banning = ["client", "watched", "shadow", "other"];
    for options in &all {
        for modes in [Modes::default(), Modes { shadow: true, ..Modes::default() }] {
            for (rules, keys) in [(RULES, &keys[..]), (BANNING, &banning)] {
                let twins = Twins::new(rules, modes, options);
                for _ in 0..4 {
                    for key in keys {
                        twins.call(vec![descriptor(key, "x")]).await;
                        twins.call(vec![descriptor(key, &"long".repeat(99))]).await;
                        twins.call(vec![descriptor(key, "y"), descriptor(keys[0], "y")]).await;
                    }
                    twins.advance(1);
                }
            }
        }
    }
}

#[tokio::test]
async fn the_response_to_a_banned_client_is_encoded_once_a_second() {
    let named = NamedDecisions::Denials;
    let options =
        ResponseOptions { dynamic_metadata: false, decision_metadata: named, ..options(HeaderStyle::Ietf) };
    let twins = Twins::new(BANNING, Modes::default(), &options);
    let frame = async |value: &str, hits_addend| {
        let descriptors = vec![descriptor("client", value)];
        let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend };
        twins.call_with(request).await.expect("a response")
    };
    for _ in 0..5 {
        for value in ["x", "y"] {
            frame(value, 1).await;
        }
        twins.advance(1);
    }
    let (first, again, other, hits) =
        (frame("x", 1).await, frame("x", 1).await, frame("y", 1).await, frame("x", 2).await);
    assert_eq!((first.as_ptr(), &first), (again.as_ptr(), &again));
    assert!(first.as_ptr() != other.as_ptr() && first != other, "names its own key");
    assert_ne!(first.as_ptr(), hits.as_ptr());
    twins.advance(1);
    assert_ne!(frame("x", 1).await, first, "the ban ends earlier");
}

#[tokio::test]
async fn a_response_with_metadata_of_its_request_needs_the_message() {
    let service = TestService::plain();
    let request = RateLimitRequest { domain: "d".into(), ..RateLimitRequest::default() };
    let request = RateLimitRequest { descriptors: vec![descriptor("two", "x")], ..request }.encode_to_vec();
    assert!(service.inner.read(&request).is_none());
}

const KEYS: &[&str] =
    &["two", "day", "none", "bucket", "free", "shadow", "quota", "multiple", "shared", "better", "é"];

/// Descriptors of rules and of none, with hits and limits of their own.
fn any_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
    let entries = prop::collection::vec((prop::sample::select(KEYS), "[fgé]{0,2}"), 0..3);
    let limit = (0..3_u32, 0..9_i32, prop::option::of(0..3_u32));
    let hits = prop::option::of(prop_oneof![0..4_u64, Just(u64::MAX)]);
    (entries, prop::option::weighted(0.2, limit), hits, prop::bool::weighted(0.2)).prop_map(
        |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
            entries: entries.into_iter().map(|(key, value)| Entry { key: key.into(), value }).collect(),
            limit: limit.map(|(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
                requests_per_unit,
                unit,
                unit_multiplier,
            }),
            hits_addend,
            is_negative_hits,
        },
    )
}

proptest! {
    #[test]
    fn any_request_has_the_same_canonical_frame_from_both_readers(
        requests in prop::collection::vec((prop::collection::vec(any_descriptor(), 0..4), 0..3_u32), 1..12),
        style in 0..3_usize,
        problem_body in any::<bool>(),
        shadow in any::<bool>(),
        named in prop::sample::select(vec![NamedDecisions::Off, NamedDecisions::Denials, NamedDecisions::All]),
    ) {
        let headers = match style {
            0 => HeaderStyle::Off,
            1 => HeaderStyle::Ietf,
            _ => HeaderStyle::Ratelimit,
        };
        let options = ResponseOptions {
            dynamic_metadata: false,
            problem_body,
            decision_metadata: named,
            ..options(headers)
        };
        let twins = Twins::new(RULES, Modes { shadow, ..Modes::default() }, &options);
        for (descriptors, hits_addend) in requests {
            let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend };
            twins.call_with(request).now_or_never().expect("the memory store never waits");
        }
    }
}
