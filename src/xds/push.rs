//! From a response to rules.

use bytes::Bytes;
use prost::{
    DecodeError, Message as _,
    encoding::{DecodeContext, decode_key, skip_field},
};

use super::{
    Rules,
    resource::{Resource, TYPE_URL, fingerprint_of, load_resources},
};
use crate::{
    config::{Fingerprint, LoadError},
    proto::envoy::service::discovery::v3::DiscoveryResponse,
};

/// Resources of a response. An empty one takes two bytes, and dozens once it is decoded.
const MAX_RESOURCES: usize = 250_000;
/// The field of a response that holds them.
const RESOURCES: u32 = 2;
/// Letters of a type that are told.
const MOST_LETTERS: usize = 200;

/// Why what was sent is not in force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// It is something else than rules.
    #[error("a response of the type `{found}`, expected `{TYPE_URL}`")]
    Type {
        /// What it says it is.
        found: String,
    },
    /// Something is wrong with it.
    #[error(transparent)]
    Rules(#[from] LoadError),
}

/// Why a response can't even be refused by its nonce.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Undecodable {
    /// It is no message.
    #[error("a response can't be decoded: {0}")]
    Broken(#[from] DecodeError),
    /// It would take too much memory.
    #[error("a response of more than {MAX_RESOURCES} resources")]
    TooMany,
}

/// Decodes a response, on a thread that may take its time.
pub(super) fn decoded(response: Bytes) -> Result<DiscoveryResponse, Undecodable> {
    let (mut rest, mut resources) = (&*response, 0_usize);
    while !rest.is_empty() {
        let (tag, wire) = decode_key(&mut rest)?;
        skip_field(wire, tag, &mut rest, DecodeContext::default())?;
        resources = resources.saturating_add(usize::from(tag == RESOURCES));
        if resources > MAX_RESOURCES {
            return Err(Undecodable::TooMany);
        }
    }
    Ok(DiscoveryResponse::decode(response)?)
}

/// What is known from before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) accepted: Option<Fingerprint>,
    pub(super) refused: Option<Fingerprint>,
}

/// What became of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is in force.
    InForce(Fingerprint),
    /// It was in force already.
    Unchanged,
    /// It is not, for this reason.
    Refused(Fingerprint, String),
    /// It was refused before, and is the same.
    RefusedBefore,
}

/// A response and what became of it.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) version: String,
    pub(super) nonce: String,
    pub(super) outcome: Outcome,
}

/// Puts what is good and new in force, on a thread that may wait.
pub(super) fn judge(response: DiscoveryResponse, known: Known, rules: &Rules) -> Judged {
    let DiscoveryResponse { version_info, resources, type_url, nonce } = response;
    let resources: Vec<Resource> =
        resources.into_iter().map(|any| Resource { type_url: any.type_url, value: any.value }).collect();
    let outcome = if type_url == TYPE_URL {
        outcome_of(&resources, known, rules)
    } else {
        let found: String = type_url.chars().take(MOST_LETTERS).collect();
        let fingerprint = fingerprint_of(&[Resource { type_url, value: Vec::new() }]);
        match known.refused == Some(fingerprint) {
            true => Outcome::RefusedBefore,
            false => {
                let found = found.escape_debug().to_string();
                refuse(Refused::Type { found }, fingerprint, rules)
            }
        }
    };
    Judged { version: version_info, nonce, outcome }
}

fn outcome_of(resources: &[Resource], known: Known, rules: &Rules) -> Outcome {
    let fingerprint = fingerprint_of(resources);
    if known.accepted == Some(fingerprint) {
        return Outcome::Unchanged;
    }
    if known.refused == Some(fingerprint) {
        return Outcome::RefusedBefore;
    }
    match load_resources(resources, fingerprint, rules.options) {
        Ok(loaded) => {
            (rules.take)(Ok(loaded));
            Outcome::InForce(fingerprint)
        }
        Err(error) => refuse(error.into(), fingerprint, rules),
    }
}

fn refuse(refused: Refused, fingerprint: Fingerprint, rules: &Rules) -> Outcome {
    let reason = refused.to_string();
    (rules.take)(Err(refused));
    Outcome::Refused(fingerprint, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_decoded_unless_it_is_none_or_has_too_many_resources() {
        let response = DiscoveryResponse { nonce: "n".to_owned(), ..Default::default() };
        let with = |resources: usize| [response.encode_to_vec(), b"\x12\x00".repeat(resources)].concat();
        let most = decoded(with(MAX_RESOURCES).into()).expect("good");
        assert_eq!((&*most.nonce, most.resources.len()), ("n", MAX_RESOURCES));
        assert_eq!(decoded(with(MAX_RESOURCES + 1).into()), Err(Undecodable::TooMany));
        for garbage in [&b"\xff\xff\xff"[..], b"\x12\x7f", b"\x0b\x0b"] {
            assert!(
                matches!(decoded(Bytes::from_static(garbage)), Err(Undecodable::Broken(_))),
                "{garbage:?}"
            );
        }
    }
}
