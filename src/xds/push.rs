//! From a response to rules.

use super::Rules;
use crate::{
    config::{Fingerprint, LoadError, Resource, TYPE_URL, fingerprint_of, load_resources},
    proto::envoy::service::discovery::v3::DiscoveryResponse,
};

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
