//! Rules that shed requests by the utilization of the service behind them.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use tollgate_core::{
    descriptor::Entry,
    shedding::{SheddingGate, SheddingPolicy},
};

use super::{Domain, Level, Rule};

/// Key of the entry that reports a utilization. The entry follows those of the rule.
pub const UTILIZATION_KEY: &str = "utilization";

/// Shedding of a rule, which has no limit then.
#[derive(Debug)]
pub struct Shedding {
    /// Target and times.
    pub policy: SheddingPolicy,
    /// Key of the entry with a request's priority, which follows those of the rule.
    pub priority_key: Box<str>,
    /// State that a rule of the same path takes over when rules are replaced.
    gate: OnceLock<Arc<SheddingGate>>,
}

/// Compares what the configuration states.
impl PartialEq for Shedding {
    fn eq(&self, other: &Self) -> bool {
        (self.policy, &self.priority_key) == (other.policy, &other.priority_key)
    }
}

impl Shedding {
    /// Sheds by `policy`, with the priority that an entry of this key states.
    pub const fn new(policy: SheddingPolicy, priority_key: Box<str>) -> Self {
        Self { policy, priority_key, gate: OnceLock::new() }
    }

    /// The gate that requests use.
    pub fn gate(&self) -> &Arc<SheddingGate> {
        self.gate.get_or_init(Arc::default)
    }

    /// Takes over the state of the rule that this one replaces. Not for active rules.
    pub(super) fn succeed(&self, former: &Self) {
        // A rule replaces one other at most.
        let _ = self.gate.set(Arc::clone(former.gate()));
    }
}

impl Level {
    /// The rule that sheds for `entries`, of which the last is a priority or a report beside the rule's own, unless they
    /// match a rule themselves; and that last entry.
    pub fn rule_of_signal<'a>(&self, entries: &[Entry<'a>]) -> Option<(&Arc<Rule>, Entry<'a>)> {
        let (last, path) = entries.split_last()?;
        let rule = self.rule(path)?;
        let shedding = rule.shedding.as_deref()?;
        let is_signal = last.key == UTILIZATION_KEY || *last.key == *shedding.priority_key;
        (is_signal && self.rule(entries).is_none()).then_some((rule, *last))
    }
}

impl Domain {
    /// Hands the state of rules that shed to those of the same path.
    pub(super) fn succeed_shedding(&self, former: &Self) {
        let former: HashMap<String, &Shedding> =
            former.shedding_rules().map(|(rule, shedding)| (rule.path(), shedding)).collect();
        for (rule, shedding) in self.shedding_rules() {
            former.get(&rule.path()).inspect(|former| shedding.succeed(former));
        }
    }

    /// The rules that shed, in no particular order.
    pub fn shedding_rules(&self) -> impl Iterator<Item = (&Arc<Rule>, &Shedding)> {
        let rules = self.sheds.then(|| self.root.rules()).into_iter().flatten();
        rules.filter_map(|rule| Some((rule, rule.shedding.as_deref()?)))
    }
}
