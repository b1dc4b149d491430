//! Requests of the load, in the fields of `envoy.service.ratelimit.v3` that a load generator needs, and the reasons why one
//! has no verdict.

use std::{fmt, time::Duration};

use bytes::Bytes;
use prost::Message;
use tollgate_flags::DescriptorArgument;
use tollgate_proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code as OverallCode},
};
use tonic::Code;

use crate::settings::{KEY, LoadSettings};

/// Bytes of the gRPC prefix of a message: the compression flag and the length.
const PREFIX_BYTES: usize = 5;

/// The encoded requests of all keys.
///
/// Requests for keys with equally many digits differ in these digits only, so there is one template for each number of
/// digits.
#[derive(Debug)]
pub(super) struct Requests {
    templates: Vec<Template>,
}

/// An encoded request with placeholders for the number of a key.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    /// Offsets of the placeholders.
    offsets: Vec<usize>,
}

impl Requests {
    pub(super) fn new(settings: &LoadSettings) -> Self {
        let digits = settings.keys.saturating_sub(1).max(1).ilog10().saturating_add(1);
        Self { templates: (1..=digits).map(|digits| Template::new(settings, digits as usize)).collect() }
    }

    /// The request for a key, framed for gRPC.
    pub(super) fn of(&self, key: usize) -> Bytes {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(key).as_bytes();
        let template = digits.len().checked_sub(1).and_then(|at| self.templates.get(at));
        template.map(|template| template.fill(digits)).unwrap_or_default()
    }
}

impl Template {
    fn new(settings: &LoadSettings, digits: usize) -> Self {
        let bytes = framed(&message(settings, &"0".repeat(digits)));
        let other = framed(&message(settings, &"1".repeat(digits)));
        // The two differ in the digits of the number only.
        let differing = bytes.iter().zip(&other).enumerate().filter(|(_, (one, other))| one != other);
        let offsets = differing.map(|(at, _)| at).step_by(digits.max(1)).collect();
        Self { bytes, offsets }
    }

    fn fill(&self, digits: &[u8]) -> Bytes {
        let mut bytes = self.bytes.clone();
        for offset in &self.offsets {
            if let Some(place) = bytes.get_mut(*offset..).and_then(|rest| rest.get_mut(..digits.len())) {
                place.copy_from_slice(digits);
            }
        }
        bytes.into()
    }
}

fn message(settings: &LoadSettings, number: &str) -> RateLimitRequest {
    let fill = |text: &str| text.replace(KEY, number);
    let descriptor = |entries: &DescriptorArgument| RateLimitDescriptor {
        entries: entries.iter().map(|(key, value)| Entry { key: fill(key), value: fill(value) }).collect(),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: settings.domain.clone(),
        descriptors: settings.descriptors.iter().map(descriptor).collect(),
        hits_addend: settings.hits.get(),
    }
}

fn framed(message: &RateLimitRequest) -> Vec<u8> {
    let length = u32::try_from(message.encoded_len()).unwrap_or(u32::MAX);
    let mut bytes = vec![0];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

/// Whether a response, framed for gRPC, lets the request pass.
pub(super) fn passes(response: &[u8]) -> Result<bool, RequestError> {
    let message = match response.split_at_checked(PREFIX_BYTES) {
        Some(([0, ..], message)) => message,
        Some(_) => return Err(RequestError::malformed("compressed response; expected an uncompressed one")),
        None => return Err(RequestError::malformed("empty response; expected a message")),
    };
    match RateLimitResponse::decode(message).map(|response| response.overall_code()) {
        Ok(OverallCode::Ok) => Ok(true),
        Ok(OverallCode::OverLimit) => Ok(false),
        Ok(OverallCode::Unknown) => {
            Err(RequestError::malformed("response without a code; expected OK or OVER_LIMIT"))
        }
        Err(_) => Err(RequestError::malformed("undecodable response; expected a RateLimitResponse")),
    }
}

/// A response; the decoder skips its other fields.
#[derive(Clone, Copy, PartialEq, Message)]
struct RateLimitResponse {
    #[prost(enumeration = "OverallCode", tag = "1")]
    overall_code: i32,
}

/// Reason why a request has no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: Code,
    message: String,
    /// Whether no response came in time.
    pub(super) is_timeout: bool,
}

impl RequestError {
    pub(super) fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), is_timeout: false }
    }

    /// A response that can't be understood.
    pub(super) fn malformed(message: &str) -> Self {
        Self::new(Code::Internal, message)
    }

    /// No response in time.
    pub(super) fn timed_out(timeout: Duration) -> Self {
        let message = format!("no response within {timeout:?}");
        Self { code: Code::DeadlineExceeded, message, is_timeout: true }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<h2::Error> for RequestError {
    fn from(error: h2::Error) -> Self {
        Self::new(Code::Unavailable, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(descriptors: &[&str], keys: usize) -> LoadSettings {
        let words = format!("tollgate-load --domain d --hits 3 --keys {keys}");
        let descriptors = descriptors.iter().flat_map(|descriptor| ["--descriptor", descriptor]);
        LoadSettings::read(words.split(' ').chain(descriptors).map(Into::into)).expect("valid")
    }

    fn read(frame: &[u8]) -> RateLimitRequest {
        let (prefix, message) = frame.split_at(PREFIX_BYTES);
        assert_eq!(prefix[0], 0);
        assert_eq!(prefix[1..], u32::try_from(message.len()).expect("short").to_be_bytes());
        RateLimitRequest::decode(message).expect("a request")
    }

    #[test]
    fn a_request_has_the_number_of_its_key_in_each_placeholder() {
        let requests = Requests::new(&settings(&["client=a{key}{key}b,path=/v1/0", "{key}={key}"], 100_001));
        for key in [0, 7, 10, 99, 100, 12_345, 100_000] {
            let request = read(&requests.of(key));
            assert_eq!((&*request.domain, request.hits_addend), ("d", 3));
            let entries: Vec<Vec<(&str, &str)>> = request
                .descriptors
                .iter()
                .map(|words| words.entries.iter().map(|entry| (&*entry.key, &*entry.value)).collect())
                .collect();
            let (number, twice) = (key.to_string(), format!("a{key}{key}b"));
            assert_eq!(entries, [vec![("client", &*twice), ("path", "/v1/0")], vec![(&number, &number)]]);
        }
    }

    #[test]
    fn a_request_without_a_placeholder_is_constant() {
        let requests = Requests::new(&settings(&["client=0,path=1"], 1));
        assert_eq!(read(&requests.of(0)).descriptors[0].entries[1].value, "1");
    }

    #[test]
    fn a_response_states_whether_the_request_passes() {
        let response = |code: OverallCode| {
            let message = RateLimitResponse { overall_code: code.into() }.encode_to_vec();
            // Field 5, `raw_body`, which is skipped.
            let raw_body = [vec![0x2a, 0xac, 0x02], vec![1; 300]].concat();
            [vec![0; PREFIX_BYTES], message, raw_body].concat()
        };
        assert_eq!(passes(&response(OverallCode::Ok)).ok(), Some(true));
        assert_eq!(passes(&response(OverallCode::OverLimit)).ok(), Some(false));
        for wrong in [response(OverallCode::Unknown), vec![], vec![1; 9], vec![0, 0, 0, 0, 1, 0xff]] {
            assert!(passes(&wrong).is_err(), "{wrong:?}");
        }
    }
}
