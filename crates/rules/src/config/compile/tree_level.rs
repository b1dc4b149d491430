//! One level of the tree while it is built: duplicates, and what can never match.

use std::collections::HashMap;

use super::{Origin, Site, budget::Budget, pattern::Pattern};
use crate::{
    Level, Matcher, Node, Wildcard,
    config::{problem::Problems, reader::excerpt},
};

/// Wildcards of a level that others are compared with, so that the warnings of a level of many cost no minutes.
const MAX_COMPARED: usize = 1_000;

/// A level to which descriptors are added.
#[derive(Debug, Default)]
pub(super) struct LevelBuilder {
    level: Level,
    /// Where each descriptor of the level stands, by how it reads.
    stated: HashMap<Box<str>, Origin>,
    wildcards: Vec<(Wildcard, Box<str>, Site)>,
    /// What asks for any or some values of a key, and so may come too late.
    by_key: Vec<(Box<str>, Site)>,
}

impl LevelBuilder {
    /// Adds a descriptor.
    ///
    /// # Errors
    /// Where the descriptor stands that reads the same.
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

    /// The level, once all of its descriptors are in.
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

    /// The warning when one of the first `before` wildcards takes everything that `wildcard` matches.
    fn covered(
        &self,
        wildcard: &Wildcard,
        stated: &str,
        before: usize,
        budget: &mut Budget,
    ) -> Option<String> {
        let covers = |(wide, text, _): &&(Wildcard, Box<str>, Site)| {
            // Comparing the beginnings first keeps a level of many wildcards cheap.
            let prefix = text.split('*').next().unwrap_or_default();
            budget.looks() && stated.starts_with(prefix) && budget.compares() && wide.covers(wildcard)
        };
        let (_, text, earlier) = self.wildcards.iter().take(before.min(MAX_COMPARED)).find(covers)?;
        Some(format!(
            "can never match, nor can anything below it: the wildcard `{}` at {} takes all of its values first",
            excerpt(text),
            earlier.origin
        ))
    }
}
