//! The messages: a request for each key, and what matters of an answer.

use bytes::Bytes;
use prost::Message;

use super::connection::Failure;
use crate::{
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
    },
    settings::{DescriptorWords, KEY, LoadSettings},
};

/// What goes before a message in gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The requests of all keys, ready to be sent.
///
/// Those of keys with as many digits are alike but for the digits, so there is one to fill in for each number of
/// digits.
#[derive(Debug)]
pub(super) struct Requests {
    by_digits: Vec<Blank>,
}

/// A request with room for the number of a key.
#[derive(Debug)]
struct Blank {
    bytes: Vec<u8>,
    /// Where the number goes.
    holes: Vec<usize>,
}

/// The one field of an answer that is looked at; the others are skipped without being read.
#[derive(Clone, Copy, PartialEq, Message)]
struct Verdict {
    #[prost(enumeration = "Code", tag = "1")]
    overall_code: i32,
}

impl Requests {
    pub(super) fn new(settings: &LoadSettings) -> Self {
        let digits = settings.keys.saturating_sub(1).max(1).ilog10().saturating_add(1);
        Self { by_digits: (1..=digits).map(|digits| Blank::new(settings, digits as usize)).collect() }
    }

    /// The request for a key, framed for gRPC.
    pub(super) fn of(&self, key: usize) -> Bytes {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(key).as_bytes();
        let blank = digits.len().checked_sub(1).and_then(|at| self.by_digits.get(at));
        blank.map(|blank| blank.filled(digits)).unwrap_or_default()
    }
}

impl Blank {
    fn new(settings: &LoadSettings, digits: usize) -> Self {
        let bytes = framed(&message(settings, &"0".repeat(digits)));
        let other = framed(&message(settings, &"1".repeat(digits)));
        // They differ where the number is, and nowhere else.
        let differing = bytes.iter().zip(&other).enumerate().filter(|(_, (one, other))| one != other);
        let holes = differing.map(|(at, _)| at).step_by(digits.max(1)).collect();
        Self { bytes, holes }
    }

    fn filled(&self, digits: &[u8]) -> Bytes {
        let mut bytes = self.bytes.clone();
        for hole in &self.holes {
            if let Some(place) = bytes.get_mut(*hole..).and_then(|rest| rest.get_mut(..digits.len())) {
                place.copy_from_slice(digits);
            }
        }
        bytes.into()
    }
}

fn message(settings: &LoadSettings, number: &str) -> RateLimitRequest {
    let fill = |text: &str| text.replace(KEY, number);
    let descriptor = |DescriptorWords(entries): &DescriptorWords| RateLimitDescriptor {
        entries: entries.iter().map(|(key, value)| Entry { key: fill(key), value: fill(value) }).collect(),
        ..Default::default()
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

/// Whether an answer, framed for gRPC, lets the request pass.
pub(super) fn passes(answer: &[u8]) -> Result<bool, Failure> {
    let message = match answer.split_at_checked(PREFIX) {
        Some(([0, ..], message)) => message,
        Some(_) => return Err(Failure::garbled("the answer is compressed")),
        None => return Err(Failure::garbled("the answer is empty")),
    };
    match Verdict::decode(message).map(|verdict| verdict.overall_code()) {
        Ok(Code::Ok) => Ok(true),
        Ok(Code::OverLimit) => Ok(false),
        Ok(Code::Unknown) => Err(Failure::garbled("the answer has no code")),
        Err(_) => Err(Failure::garbled("the answer cannot be read")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        proto::envoy::service::ratelimit::v3::RateLimitResponse,
        settings::{self, Command},
    };

    fn settings(line: &str) -> LoadSettings {
        let words = format!("tollgate load --domain d {line}");
        match settings::parse(words.split_whitespace().map(Into::into), []) {
            Ok(Command::Load(settings)) => settings,
            other => panic!("{other:?}"),
        }
    }

    fn read(frame: &[u8]) -> RateLimitRequest {
        let (prefix, message) = frame.split_at(PREFIX);
        assert_eq!(prefix[0], 0);
        assert_eq!(prefix[1..], u32::try_from(message.len()).expect("short").to_be_bytes());
        RateLimitRequest::decode(message).expect("a request")
    }

    #[test]
    fn a_request_has_the_number_of_its_key_wherever_it_is_asked_for() {
        let line =
            "--descriptor client=a{key}{key}b,path=/v1/0 --descriptor {key}={key} --keys 100001 --hits 3";
        let settings = settings(line);
        let requests = Requests::new(&settings);
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
    fn a_request_without_a_key_is_always_the_same() {
        let requests = Requests::new(&settings("--descriptor client=0,path=1"));
        assert_eq!(read(&requests.of(0)).descriptors[0].entries[1].value, "1");
    }

    #[test]
    fn keys_need_a_place_and_descriptors_need_values() {
        for line in ["--descriptor client=a --keys 2", "--descriptor client", "--descriptor =a", ""] {
            let words = format!("tollgate load --domain d {line}");
            let error =
                settings::parse(words.split_whitespace().map(Into::into), []).expect_err("is refused");
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn an_answer_says_whether_the_request_passes() {
        let answer = |code: Code| {
            let message = RateLimitResponse { raw_body: vec![1; 300], ..Default::default() };
            let message = RateLimitResponse { overall_code: code.into(), ..message }.encode_to_vec();
            [vec![0; PREFIX], message].concat()
        };
        assert_eq!(passes(&answer(Code::Ok)).ok(), Some(true));
        assert_eq!(passes(&answer(Code::OverLimit)).ok(), Some(false));
        for wrong in [answer(Code::Unknown), vec![], vec![1; 9], vec![0, 0, 0, 0, 1, 0xff]] {
            assert!(passes(&wrong).is_err(), "{wrong:?}");
        }
    }
}
