//! Encoded responses, which equal the encoding of the messages.

use prost::Message as _;

use super::{bans::BANNING, *};

/// Services that have had the same requests at the same times: one returns messages, and the other one frames.
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
        let request = RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 };
        let bytes = request.encode_to_vec();
        let plain = self.frames.inner.read(&bytes).expect("a plain request");
        let answer = self.frames.inner.answer(&plain, Deadline::UNKNOWN, &mut Span::off()).await;
        let answer = answer.expect("a response");
        let message = self.messages.call(request.descriptors).await;
        let frame = frame::of(&message);
        assert_eq!(answer.frame, frame, "{message:?}");
        let [flag, length @ .., _] = frame.first_chunk::<6>().expect("a message");
        assert_eq!((*flag, u32::from_be_bytes(*length) as usize), (0, message.encoded_len()));
        answer.permits.inspect(HeldPermits::hand_over);
    }

    fn advance(&self, seconds: u64) {
        for service in [&self.messages, &self.frames] {
            service.clock.set(service.clock.now().plus(Duration::from_secs(seconds)));
        }
    }
}

#[tokio::test]
async fn a_frame_is_the_encoding_of_the_message() {
    let plain = ResponseOptions { dynamic_metadata: false, ..options(HeaderStyle::Off) };
    let triple = HeaderStyle::Triple(HeaderNames::x_ratelimit());
    let reset_at_header = Some("X-Reset-At".to_owned());
    let all = [
        plain.clone(),
        ResponseOptions {
            headers: HeaderStyle::Ietf,
            retry_after_spread: Duration::from_secs(9),
            ..plain.clone()
        },
        ResponseOptions { headers: triple, reset_at_header, ..plain.clone() },
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
                        twins.call(vec![descriptor(key, "y"), descriptor(keys[0], "y")]).await;
                    }
                    twins.advance(1);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_response_with_metadata_of_its_request_needs_the_message() {
    let service = TestService::plain();
    let request = RateLimitRequest { domain: "d".into(), ..RateLimitRequest::default() };
    let request = RateLimitRequest { descriptors: vec![descriptor("two", "x")], ..request }.encode_to_vec();
    assert!(service.inner.read(&request).is_none());
}
