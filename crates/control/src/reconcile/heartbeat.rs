//! What this instance tells of itself.

use crate::{Instance, RulesState, stored::now_ms};

/// Domains that are told at the most, and bytes of the name of each.
const MOST_DOMAINS: usize = 100;
const LONGEST_DOMAIN: usize = 256;

/// Returns the domains that had requests within the last minute, the latest first.
pub type ActiveDomains = fn() -> Vec<String>;

/// What does not change about this instance.
#[derive(Debug)]
pub(super) struct Me {
    id: String,
    started_at_ms: u64,
    active_domains: ActiveDomains,
}

impl Me {
    pub(super) fn new(id: &str, active_domains: ActiveDomains) -> Self {
        Self { id: id.to_owned(), started_at_ms: now_ms(), active_domains }
    }

    /// What is told while this is enforced.
    pub(super) fn told(&self, state: &RulesState) -> Instance {
        let mut active_domains = (self.active_domains)();
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
