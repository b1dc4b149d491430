//! Builder of one level of the tree, and the budget of memory and time that compiling a configuration takes: a few lines could
//! take gigabytes or minutes.

use std::collections::HashMap;

use super::{Origin, Site};
use crate::config::{problem::Problems, yaml::excerpt};
use crate::{Level, Matcher, Node, Regex, RegexError, Segment, Value, Wildcard};

/// Pattern of a descriptor, with its text.
#[derive(Debug)]
pub(super) struct Pattern<'a> {
    pub(super) matcher: Matcher<'a>,
    /// `key_value`, or `key` alone; `key_10.0.0.0/8` for a range and `key_~expression` for an expression.
    /// Unique in a level, so that counters and metrics named by it never mix.
    pub(super) stated: Box<str>,
    pub(super) value: Value,
}

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
        self.stated.insert(stated.clone(), site.origin.clone());
        match &matcher {
            Matcher::Stated { value, .. } => match Wildcard::parse(&stated) {
                Some(wildcard) => self.wildcards.push((wildcard, stated, site)),
                None if value.is_empty() => self.by_key.push((stated, site)),
                None => {}
            },
            Matcher::Cidr(key, _) | Matcher::Regex(key, _) => self.by_key.push(((*key).into(), site)),
        }
        self.level.insert(matcher, node);
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
            budget.charge_comparison(1)
                && stated.starts_with(prefix)
                && budget.charge_comparison(COMPARISON_STEPS)
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

/// Maximum size of all compiled expressions in bytes.
pub(super) const MAX_REGEX_BYTES: usize = 128 << 20;
/// Cost in bytes of repeating a compiled expression, besides its text.
const REPEATED_REGEX_BYTES: usize = 256;
/// Maximum size of the paths of all rules in bytes: each rule has its own copy of the keys and values above it.
pub(super) const MAX_PATH_BYTES: usize = 128 << 20;
/// Maximum number of steps of comparing wildcards, which finds those that never match: enough for some ten thousand on a
/// level. Later ones cause no warnings.
const MAX_STEPS: usize = 20_000_000;
/// Cost of a full comparison in steps; comparing the prefixes costs one.
const COMPARISON_STEPS: usize = 20;

/// Maximum number of rules that shed: each is shared by the instances twice a second.
pub(super) const MAX_SHEDDING_RULES: usize = 200;

/// Remaining budget of a configuration.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes for expressions; `None` once it was exceeded and reported.
    regex_bytes: Option<usize>,
    /// Expressions by text: equal ones are common, and share their memory.
    compiled: HashMap<Box<str>, Regex>,
    path_bytes: usize,
    comparison_steps: usize,
    shedding_rules: usize,
}

/// Error of an expression.
#[derive(Debug)]
pub(super) enum RegexFailure {
    /// The expression is invalid.
    Invalid(RegexError),
    /// The budget is exceeded.
    BudgetExceeded,
    /// The budget was exceeded by an earlier expression, and reported.
    ExceededBefore,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            regex_bytes: Some(MAX_REGEX_BYTES),
            compiled: HashMap::new(),
            path_bytes: MAX_PATH_BYTES,
            comparison_steps: MAX_STEPS,
            shedding_rules: MAX_SHEDDING_RULES,
        }
    }
}

impl Budget {
    /// Compiles an expression. A rejected one is charged too: it took as long to compile.
    pub(super) fn regex(&mut self, text: &str) -> Result<Regex, RegexFailure> {
        let left = self.regex_bytes.ok_or(RegexFailure::ExceededBefore)?;
        let known = self.compiled.get(text).cloned();
        let is_known = known.is_some();
        let regex = known.map_or_else(|| Regex::new(text), Ok);
        let cost = match &regex {
            Ok(_) if is_known => REPEATED_REGEX_BYTES.saturating_add(text.len()),
            Ok(regex) => regex.bytes(),
            Err(RegexError::TooLarge) => Regex::MAX_BYTES,
            Err(RegexError::Syntax(_)) => 0,
        };
        if let Ok(regex) = &regex
            && !is_known
        {
            self.compiled.insert(text.into(), regex.clone());
        }
        self.regex_bytes = left.checked_sub(cost);
        match self.regex_bytes {
            Some(_) => regex.map_err(RegexFailure::Invalid),
            None => Err(RegexFailure::BudgetExceeded),
        }
    }

    /// Charges the path of one rule; `None` if the paths up to this one take too much together.
    pub(super) fn charge_path(&mut self, path: &[Segment]) -> Option<()> {
        let bytes = path.iter().fold(size_of_val(path), |bytes, segment| {
            bytes.saturating_add(segment.key.len()).saturating_add(segment.stated.len())
        });
        self.path_bytes = self.path_bytes.checked_sub(bytes)?;
        Some(())
    }

    /// Charges a rule that sheds; `None` if there are too many.
    pub(super) fn charge_shedding(&mut self) -> Option<()> {
        self.shedding_rules = self.shedding_rules.checked_sub(1)?;
        Some(())
    }

    /// Charges the steps of a comparison. Returns whether the budget sufficed.
    const fn charge_comparison(&mut self, steps: usize) -> bool {
        self.comparison_steps = self.comparison_steps.saturating_sub(steps);
        self.comparison_steps > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_expression_costs_little() {
        let mut budget = Budget::default();
        budget.regex(r"^/api/\w+$").expect("valid");
        let left = budget.regex_bytes.expect("not exceeded");
        for _ in 0..1_000 {
            assert!(budget.regex(r"^/api/\w+$").expect("valid").is_match("/api/x"));
        }
        let spent = left - budget.regex_bytes.expect("not exceeded");
        assert!(spent < 1 << 20, "{spent}");
    }
}
