//! What is counted for a domain beside its rules.

use std::{fmt, sync::OnceLock};

use super::{lists::ListCounters, rule::RuleCounters};
use crate::rules::List;

/// The counters of one domain, which go with this version of it.
#[derive(Default)]
pub struct DomainCounters {
    lists: OnceLock<ListCounters>,
    /// Those of limits that requests bring along.
    pub(super) brought_along: OnceLock<RuleCounters>,
}

impl fmt::Debug for DomainCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DomainCounters")
    }
}

impl DomainCounters {
    /// Counts a request of that domain that a list decided.
    pub fn listed(&self, domain: &str, list: List) {
        self.lists.get_or_init(|| ListCounters::of(domain)).count(list);
    }
}
