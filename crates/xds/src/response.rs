//! Decodes a response and activates its rules, again when the overlay changes.

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message as _};
use prost_types::Any;
use tollgate_proto::envoy::service::discovery::v3::DiscoveryResponse;
use tollgate_rules::config::{Fingerprint, LoadError, OverlaySlot};

use super::RulesSink;
use super::resource::{TYPE_URL, fingerprint_of, load_resources};

/// Resources in a response. An empty one has two bytes encoded, and dozens decoded.
const MAX_RESOURCES: usize = 250_000;
/// Number of the field `resources` of a response.
const RESOURCES_TAG: u32 = 2;
/// Length of a version and of a nonce, in bytes. Both are part of the reply, and replies may have to wait.
const MAX_ID_BYTES: usize = 4 << 10;
/// Characters of an unexpected type URL that are reported.
const MAX_TYPE_CHARS: usize = 200;

/// Reason why a response was rejected.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// Resources of another type.
    #[error("a response of the type `{found}`; expected `{TYPE_URL}`")]
    Type {
        /// The type URL of the response.
        found: String,
    },
    /// Invalid rules.
    #[error(transparent)]
    Rules(#[from] LoadError),
}

/// Decodes a response. Blocks for large ones.
pub(super) fn decode(response: Bytes) -> Result<DiscoveryResponse, String> {
    let malformed = |error: DecodeError| {
        format!("a response is not valid protobuf: {error}; expected a DiscoveryResponse")
    };
    let (mut rest, mut resources) = (&*response, 0_usize);
    while !rest.is_empty() {
        let (tag, wire) = decode_key(&mut rest).map_err(malformed)?;
        skip_field(wire, tag, &mut rest, DecodeContext::default()).map_err(malformed)?;
        resources += usize::from(tag == RESOURCES_TAG);
        if resources > MAX_RESOURCES {
            return Err(format!("a response of more than {MAX_RESOURCES} resources; expected fewer"));
        }
    }
    let response = DiscoveryResponse::decode(response).map_err(malformed)?;
    match response.version_info.len().max(response.nonce.len()) > MAX_ID_BYTES {
        true => Err(format!(
            "a response whose version or nonce is longer than {MAX_ID_BYTES} bytes; expected shorter ones"
        )),
        false => Ok(response),
    }
}

/// Content of the last accepted and the last rejected response.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreviousResponses {
    pub(super) accepted: Option<Fingerprint>,
    pub(super) rejected: Option<Fingerprint>,
}

/// Outcome of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResponseOutcome {
    /// Activated.
    Accepted(Fingerprint),
    /// Equal to the active rules.
    Unchanged,
    /// Rejected for this reason.
    Rejected(Fingerprint, String),
    /// Equal to the last rejected response.
    RejectedBefore,
}

/// Version, nonce and outcome of a response.
#[derive(Debug)]
pub(super) struct ProcessedResponse {
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) outcome: ResponseOutcome,
}

/// Compiles and activates the rules of a response, unless the same content was processed last. Blocks.
pub(super) fn process(
    response: DiscoveryResponse,
    previous: PreviousResponses,
    rules: &RulesSink,
) -> ProcessedResponse {
    let DiscoveryResponse { version_info, resources, type_url, nonce } = response;
    let outcome = if type_url == TYPE_URL {
        load(resources, previous, rules)
    } else {
        let found: String = type_url.chars().take(MAX_TYPE_CHARS).collect();
        let fingerprint = fingerprint_of(&[Any { type_url, value: Vec::new() }]);
        if previous.rejected == Some(fingerprint) {
            ResponseOutcome::RejectedBefore
        } else {
            let found = found.escape_debug().to_string();
            reject(Rejected::Type { found }, fingerprint, rules)
        }
    };
    ProcessedResponse { version: version_info, nonce, outcome }
}

fn load(resources: Vec<Any>, previous: PreviousResponses, rules: &RulesSink) -> ResponseOutcome {
    let mut held = rules.held.lock();
    let fingerprint = rules.fingerprint_of(&resources);
    if previous.accepted == Some(fingerprint) {
        return ResponseOutcome::Unchanged;
    }
    if previous.rejected == Some(fingerprint) {
        return ResponseOutcome::RejectedBefore;
    }
    let loaded = load_resources(&resources, fingerprint_of(&resources), rules.options);
    if rules.options.overlay.is_some() {
        held.hold(resources, loaded.is_ok());
    }
    match loaded {
        Ok(loaded) => {
            (rules.apply)(Ok(loaded));
            ResponseOutcome::Accepted(fingerprint)
        }
        Err(error) => reject(error.into(), fingerprint, rules),
    }
}

fn reject(rejected: Rejected, fingerprint: Fingerprint, rules: &RulesSink) -> ResponseOutcome {
    let reason = rejected.to_string();
    (rules.apply)(Err(rejected));
    ResponseOutcome::Rejected(fingerprint, reason)
}

/// Resources of the last response, and of the last accepted one. Empty without an overlay.
#[derive(Debug, Default)]
pub struct HeldResources {
    latest: Option<Arc<[Any]>>,
    accepted: Option<Arc<[Any]>>,
}

impl HeldResources {
    /// Holds the resources of a response.
    pub(super) fn hold(&mut self, resources: Vec<Any>, is_accepted: bool) {
        let resources: Arc<[Any]> = resources.into();
        if is_accepted {
            self.accepted = Some(Arc::clone(&resources));
        }
        self.latest = Some(resources);
    }

    /// The resources, the latest first.
    fn candidates(&self) -> Vec<Arc<[Any]>> {
        let mut candidates: Vec<_> = self.latest.iter().chain(&self.accepted).map(Arc::clone).collect();
        candidates.dedup_by(|one, other| Arc::ptr_eq(one, other));
        candidates
    }
}

impl RulesSink {
    /// Fingerprint of resources under the active overlay.
    pub(super) fn fingerprint_of(&self, resources: &[Any]) -> Fingerprint {
        let overlay = self.options.overlay.and_then(OverlaySlot::get);
        let fingerprint = fingerprint_of(resources);
        overlay.map_or(fingerprint, |overlay| fingerprint.under(overlay.fingerprint))
    }

    /// Compiles the resources of the last response again, and activates their rules; if they are invalid, those of the last
    /// accepted one. Blocks.
    pub fn recompile(&self) {
        let mut held = self.held.lock();
        let mut problem = None;
        for resources in held.candidates() {
            match load_resources(&resources, fingerprint_of(&resources), self.options) {
                Ok(loaded) => {
                    (self.apply)(Ok(loaded));
                    held.accepted = Some(resources);
                    return;
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        drop(held);
        if let Some(error) = problem {
            (self.apply)(Err(error.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_responses_and_those_with_too_many_resources_are_refused() {
        let response = DiscoveryResponse { nonce: "n".to_owned(), ..Default::default() };
        let with = |resources: usize| [response.encode_to_vec(), b"\x12\x00".repeat(resources)].concat();
        let most = decode(with(MAX_RESOURCES).into()).expect("good");
        assert_eq!((&*most.nonce, most.resources.len()), ("n", MAX_RESOURCES));
        let reason = |response: Vec<u8>| decode(response.into()).expect_err("refused");
        assert!(reason(with(MAX_RESOURCES + 1)).contains("more than 250000 resources"));
        let id = |length| DiscoveryResponse { version_info: "v".repeat(length), ..response.clone() };
        assert!(decode(id(MAX_ID_BYTES).encode_to_vec().into()).is_ok());
        assert!(reason(id(MAX_ID_BYTES + 1).encode_to_vec()).contains("version or nonce is longer"));
        for garbage in [&b"\xff\xff\xff"[..], b"\x12\x7f", b"\x0b\x0b"] {
            assert!(reason(garbage.to_vec()).contains("not valid protobuf"), "{garbage:?}");
        }
    }
}
