//! Heartbeat record of this instance.

use crate::{Instance, RulesState, stored::now_ms};

/// Maximum number of domains in a heartbeat, and maximum length of their names.
const MAX_DOMAINS: usize = 100;
const MAX_DOMAIN_BYTES: usize = 256;

/// Returns the domains that had requests within the last minute, the latest first.
pub type ActiveDomains = fn() -> Vec<String>;

/// Source of heartbeat records: the constant facts about this instance.
#[derive(Debug)]
pub(super) struct Heartbeat {
    id: String,
    started_at_ms: u64,
    active_domains: ActiveDomains,
}

impl Heartbeat {
    pub(super) fn new(id: &str, active_domains: ActiveDomains) -> Self {
        Self { id: id.to_owned(), started_at_ms: now_ms(), active_domains }
    }

    /// Returns the record of an instance in this state.
    pub(super) fn record(&self, state: &RulesState) -> Instance {
        let mut active_domains = (self.active_domains)();
        active_domains.retain(|domain| domain.len() <= MAX_DOMAIN_BYTES);
        active_domains.truncate(MAX_DOMAINS);
        Instance {
            id: self.id.clone(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            version: state.version,
            fingerprint: state.fingerprint.clone(),
            generation: state.generation,
            region_generation: state.region_generation,
            started_at_ms: self.started_at_ms,
            seen_at_ms: now_ms(),
            active_domains,
            problem: state.problems(),
        }
    }
}
