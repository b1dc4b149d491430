//! Builder of one level of the tree: reports duplicates and descriptors that never match.

use std::collections::HashMap;

use super::{Origin, Site, budget::Budget, pattern::Pattern};
use crate::{
    Level, Matcher, Node, Wildcard,
    config::{problem::Problems, reader::excerpt},
};

/// Maximum number of wildcards of a level that others are compared with, which bounds the time for warnings.
const MAX_COMPARED: usize = 1_000;

/// A level to which descriptors are added.
#[derive(Debug, Default)]
pub(super) struct LevelBuilder {
    level: Level,
    /// Position of each descriptor of the level by its text.
    stated: HashMap<Box<str>, Origin>,
    wildcards: Vec<(Wildcard, Box<str>, Site)>,
    /// Keys of descriptors that match any value, a range or an expression, which an earlier wildcard may cover.
    by_key: Vec<(Box<str>, Site)>,
}

impl LevelBuilder {
    /// Adds a descriptor.
    ///
    /// # Errors
    /// The position of the descriptor of the same text.
    pub(super) fn insert(&mut self, pattern: Pattern<'_>, node: Node, site: Site) -> Result<(), Origin> {
        if let Some(known) = self.stated.get(&pattern.stated) {
            return Err(known.clone());
        }
        let Pattern { matcher, stated, .. } = pattern;
        if self.level.insert(&matcher, node).is_err() {
            return Err(site.origin);
        }
        self.stated.insert(stated.clone(), site.origin.clone());
        match matcher {
            Matcher::Stated { value, .. } => match Wildcard::parse(&stated) {
                Some(wildcard) => self.wildcards.push((wildcard, stated, site)),
                None if value.is_empty() => self.by_key.push((stated, site)),
                None => {}
            },
            Matcher::Cidr(key, _) | Matcher::Regex(key, _) => self.by_key.push((key.into(), site)),
        }
        Ok(())
    }

    /// Returns the level, and warns of descriptors that never match.
    pub(super) fn finish(self, problems: &mut Problems, budget: &mut Budget) -> Level {
        for (at, (wildcard, stated, site)) in self.wildcards.iter().enumerate() {
            if let Some(message) = self.covered(wildcard, stated, at, budget) {
                site.warn(problems, message);
            }
        }
        for (key, site) in &self.by_key {
            let any_value = format!("{key}_*");
            if let Some(wildcard) = Wildcard::parse(&any_value)
                && let Some(message) = self.covered(&wildcard, &any_value, self.wildcards.len(), budget)
            {
                site.warn(problems, message);
            }
        }
        self.level
    }

    /// Returns a warning if one of the first `before` wildcards covers `wildcard`.
    fn covered(
        &self,
        wildcard: &Wildcard,
        stated: &str,
        before: usize,
        budget: &mut Budget,
    ) -> Option<String> {
        let covers = |(wide, text, _): &&(Wildcard, Box<str>, Site)| {
            // Comparing the prefixes first keeps a level of many wildcards cheap.
            let prefix = text.split('*').next().unwrap_or_default();
            budget.charge_prefix()
                && stated.starts_with(prefix)
                && budget.charge_comparison()
                && wide.covers(wildcard)
        };
        let (_, text, earlier) = self.wildcards.iter().take(before.min(MAX_COMPARED)).find(covers)?;
        Some(format!(
            "never matches, nor does anything below it: the wildcard `{}` at {} matches all of its values first",
            excerpt(text),
            earlier.origin
        ))
    }
}
