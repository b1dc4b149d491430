//! The switches of the rules that are there.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;

use super::{Overrides, SwitchMode};
use crate::rules::{Rule, Rules};

/// The modes of the rules of one version, looked up without asking for a rule's path. To be kept with these rules.
#[derive(Debug, Default)]
pub struct Switched {
    /// By the address of the rule, which is its own as long as the rules are there.
    modes: HashMap<usize, SwitchMode, RandomState>,
}

impl Switched {
    /// What `overrides` make of `rules`. A switch of a rule that is not there does nothing.
    pub(in crate::rules) fn new(rules: &Rules, overrides: &Overrides) -> Self {
        let mut modes = HashMap::default();
        for (name, switches) in &overrides.switches {
            for rule in rules.domain(name).into_iter().flat_map(|domain| domain.root.rules()) {
                if let Some(mode) = switches.get(&*rule.path()) {
                    modes.insert(address(rule), *mode);
                }
            }
        }
        Self { modes }
    }

    /// The mode of a rule, if an operator set one.
    pub fn mode_of(&self, rule: &Arc<Rule>) -> Option<SwitchMode> {
        if self.modes.is_empty() {
            return None;
        }
        self.modes.get(&address(rule)).copied()
    }
}

fn address(rule: &Arc<Rule>) -> usize {
    Arc::as_ptr(rule).addr()
}
