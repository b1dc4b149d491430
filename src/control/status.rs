//! Which rules this instance enforces.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Serialize;

/// Where the rules come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RulesSource {
    /// From files in a directory.
    #[default]
    Directory,
    /// From the Redis that instances share.
    Redis,
    /// From this process, and perhaps a file of its own.
    Memory,
}

impl RulesSource {
    /// The name that the setting uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Redis => "redis",
            Self::Memory => "memory",
        }
    }
}

/// What this instance enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RulesState {
    /// Where the rules come from.
    pub source: RulesSource,
    /// The version in force, where versions have numbers.
    pub version: Option<u64>,
    /// The fingerprint of the content in force.
    pub fingerprint: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// The generation of the lists and switches in force.
    pub generation: u64,
    /// Why something newer is not in force, if there is something.
    pub problem: Option<String>,
    /// Why something of the lists and switches is not in force, if something is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists_problem: Option<String>,
}

impl RulesState {
    /// Whatever is amiss.
    pub fn problems(&self) -> Option<String> {
        match (&self.problem, &self.lists_problem) {
            (Some(rules), Some(lists)) => Some(format!("{rules}; {lists}")),
            (rules, lists) => rules.clone().or_else(|| lists.clone()),
        }
    }
}

/// What this instance enforces; clones tell the same. Written by whoever puts rules in force.
#[derive(Clone, Debug, Default)]
pub struct RulesStatus(Arc<ArcSwap<RulesState>>);

impl RulesStatus {
    /// What it is now.
    pub fn now(&self) -> Arc<RulesState> {
        self.0.load_full()
    }

    /// Changes it.
    pub fn update(&self, change: impl Fn(&mut RulesState)) {
        self.0.rcu(|state| {
            let mut state = RulesState::clone(state);
            change(&mut state);
            state
        });
    }
}
