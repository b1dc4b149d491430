//! The switches of one version of the rules.

use super::{Overrides, SwitchMode};
use crate::{Rule, Rules};

/// Modes of the rules of one version, by the index of the rule.
#[derive(Debug, Default)]
pub struct Switched {
    /// Empty without switches.
    modes: Vec<Option<SwitchMode>>,
}

impl Switched {
    /// The switches of `overrides` for `rules`. A switch of a rule that does not exist has no effect.
    pub(crate) fn new(rules: &Rules, overrides: &Overrides) -> Self {
        if overrides.switches.is_empty() {
            return Self::default();
        }
        let mut modes = vec![None; rules.rule_count()];
        for (name, switches) in &overrides.switches {
            for rule in rules.domain(name).into_iter().flat_map(|domain| domain.root.rules()) {
                if let Some(mode) = modes.get_mut(rule.index().as_usize()) {
                    *mode = switches.get(&*rule.path()).copied();
                }
            }
        }
        Self { modes }
    }

    /// The mode of a rule, if an operator set one.
    pub fn mode_of(&self, rule: &Rule) -> Option<SwitchMode> {
        self.modes.get(rule.index().as_usize()).copied().flatten()
    }
}
