//! What this instance tells of itself.

use crate::{
    control::{Instance, RulesState, kept::now_ms},
    top,
};

/// Domains that are told at the most, and bytes of the name of each.
const MOST_DOMAINS: usize = 100;
const LONGEST_DOMAIN: usize = 256;

/// What does not change about this instance.
#[derive(Debug)]
pub(super) struct Me {
    id: String,
    started_at_ms: u64,
}

impl Me {
    pub(super) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), started_at_ms: now_ms() }
    }

    /// What is told while this is enforced.
    pub(super) fn told(&self, state: &RulesState) -> Instance {
        let mut active_domains = top::active_domains();
        active_domains.retain(|domain| domain.len() <= LONGEST_DOMAIN);
        active_domains.truncate(MOST_DOMAINS);
        Instance {
            id: self.id.clone(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            version: state.version,
            fingerprint: state.fingerprint.clone(),
            generation: state.generation,
            started_at_ms: self.started_at_ms,
            seen_at_ms: now_ms(),
            active_domains,
            problem: state.problems(),
        }
    }
}
