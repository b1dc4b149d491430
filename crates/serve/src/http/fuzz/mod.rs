//! Fuzz target: any bytes as a request, in protobuf or in JSON.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use futures_util::FutureExt as _;
use prost::Message as _;
use tollgate_core::clock::{Clock, Timestamp};
use tollgate_limiter::{ActiveRules, Deadline, HeldPermits, Limiter, Modes};
use tollgate_proto::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};
use tollgate_rules::Rules;
use tollgate_rules::config::{Options, load_files};
use tollgate_store::{MemoryStore, Store};
use tollgate_telemetry::traces::Span;

use super::public::json::JsonCodec;
use crate::service::{HeaderNames, HeaderStyle, NamedDecisions, RequestError, ResponseOptions, Service};

const RULES: &str = include_str!("rules.yaml");

static PARTS: LazyLock<Option<(Service, JsonCodec)>> = LazyLock::new(|| {
    let file = ("rules.yaml".to_owned(), RULES.as_bytes().to_vec());
    let loaded = load_files(vec![file], Options { strict: true, ..Options::default() });
    let rules = Arc::new(ActiveRules::default());
    rules.replace(Arc::new(loaded.map_or_else(|_| Rules::default(), |loaded| loaded.rules)));
    assert!(rules.load()?.rules().count() > 0, "the rules of the fuzz target are invalid");
    let store = MemoryStore::new(1_000, Clock::manual(Timestamp::from_micros(1_700_000_900_500_000)));
    let response_options = ResponseOptions {
        headers: HeaderStyle::Ietf,
        header_names: HeaderNames { reset_at: Some("RateLimit-Reset-At".to_owned()), ..Default::default() },
        retry_after_header: true,
        problem_body: true,
        dynamic_metadata: true,
        decision_metadata: NamedDecisions::All,
    };
    let limiter = Limiter::new(rules, Store::new(store), Modes::default());
    Some((Service::new(limiter, response_options), JsonCodec::new().ok()?))
});

/// Decodes the bytes and handles the request, if they are one.
///
/// # Panics
/// On any bug.
pub fn request(bytes: &[u8]) {
    let parts = PARTS.as_ref();
    assert!(parts.is_some(), "no service");
    let Some((service, codec)) = parts else { return };
    let message = match bytes.first() {
        Some(b'{') => codec.decode(bytes).ok(),
        _ => Some(Bytes::copy_from_slice(bytes)),
    };
    let Some(request) = message.and_then(|message| RateLimitRequest::decode(message).ok()) else { return };
    match service.respond(&request, Deadline::UNKNOWN, &mut Span::off()).now_or_never() {
        Some(Ok(response)) => {
            let message = response.message();
            assert!(message.is_ok(), "{message:?}");
            let Ok(message) = message else { return };
            assert_eq!(message.statuses.len(), request.descriptors.len());
            assert_ne!(message.overall_code(), Code::Unknown);
            response.permits.iter().for_each(HeldPermits::hand_over);
            assert!(codec.encode(&response.frame).is_ok());
        }
        Some(Err(error)) => assert!(matches!(error, RequestError::Invalid { .. }), "{error}"),
        None => assert!(!service.decides_at_once(), "the memory store responds without waiting"),
    }
}
