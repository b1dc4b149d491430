//! Messages, framed for gRPC.

use bytes::BytesMut;
use prost::Message as _;
use tollgate::proto::envoy::config::core::v3::HeaderValue;

use super::*;

/// A request as it is sent.
pub(super) fn framed(message: &RateLimitRequest) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.encoded_len() + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).expect("a short message"));
    message.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}

/// A request for each name, for one hit on its counter.
pub(super) fn for_names(names: &[String]) -> Vec<Bytes> {
    names.iter().map(|name| framed(&request("d", &[&[("k", name)]]))).collect()
}

/// The relevant fields of a response; the rest is skipped without decoding, so that callers use little CPU.
#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(enumeration = "Code", tag = "1")]
    overall_code: i32,
    #[prost(message, repeated, tag = "3")]
    response_headers_to_add: Vec<HeaderValue>,
}

/// The outcome in a response, and whether the store or a policy decided it.
pub(super) fn outcome_of(answer: &[u8]) -> (Outcome, By) {
    let Some(Ok(answer)) = answer.get(5..).map(Response::decode) else {
        return (Outcome::Error(tonic::Code::Internal), By::Store);
    };
    let outcome = match answer.overall_code() {
        Code::Ok => Outcome::Ok,
        Code::OverLimit => Outcome::OverLimit,
        Code::Unknown => Outcome::Error(tonic::Code::Unknown),
    };
    let by = match answer.response_headers_to_add.iter().find(|header| header.key == "x-ratelimit-policy") {
        Some(_) => By::Policy,
        None => By::Store,
    };
    (outcome, by)
}
