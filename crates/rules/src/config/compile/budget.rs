//! What a configuration may cost beside its text, so that a few lines can't ask for gigabytes or minutes.

use std::collections::HashMap;

use crate::{Regex, RegexError, Segment};

/// Bytes that all compiled expressions may take.
const MAX_REGEX_BYTES: usize = 128 << 20;
/// Bytes that an expression takes beside its text that is compiled already.
const REPEATED: usize = 256;
/// Bytes that the ways to all rules may take: each rule has its own copy of the keys and values above it.
const MAX_WAY_BYTES: usize = 128 << 20;
/// Steps of comparing wildcards, which finds those that never match: enough for some ten thousand on a level. Those that
/// come later are not warned of.
const MAX_STEPS: usize = 20_000_000;
/// Steps that a whole comparison takes next to a first look.
const STEPS_OF_COMPARISON: usize = 20;

/// What is left to be spent on a configuration.
#[derive(Debug)]
pub(super) struct Budget {
    /// Nothing, once it was said that there is not enough.
    regex: Option<usize>,
    /// Expressions are often the same: those share all but their text.
    compiled: HashMap<Box<str>, Regex>,
    way: usize,
    steps: usize,
}

/// Something took more than there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Why there is no expression.
#[derive(Debug)]
pub(super) enum NoRegex {
    /// It is wrong by itself.
    Wrong(RegexError),
    /// Those before it and this one take too much together.
    Spent,
    /// That was said of one before it.
    SpentBefore,
}

impl Default for Budget {
    fn default() -> Self {
        Self { regex: Some(MAX_REGEX_BYTES), compiled: HashMap::new(), way: MAX_WAY_BYTES, steps: MAX_STEPS }
    }
}

impl Budget {
    /// Compiles an expression. One that is refused counts too: finding it too large took as long.
    pub(super) fn regex(&mut self, text: &str) -> Result<Regex, NoRegex> {
        let left = self.regex.ok_or(NoRegex::SpentBefore)?;
        let known = self.compiled.get(text).cloned();
        let is_known = known.is_some();
        let regex = known.map_or_else(|| Regex::new(text), Ok);
        let cost = match &regex {
            Ok(_) if is_known => REPEATED.saturating_add(text.len()),
            Ok(regex) => regex.bytes(),
            Err(RegexError::TooLarge) => Regex::MAX_BYTES,
            Err(RegexError::Syntax(_)) => 0,
        };
        if let Ok(regex) = &regex
            && !is_known
        {
            self.compiled.insert(text.into(), regex.clone());
        }
        self.regex = left.checked_sub(cost);
        match self.regex {
            Some(_) => regex.map_err(NoRegex::Wrong),
            None => Err(NoRegex::Spent),
        }
    }

    /// Pays for the way to one rule.
    ///
    /// # Errors
    /// [`Spent`] when those before it and this one take too much together.
    pub(super) fn way(&mut self, way: &[Segment]) -> Result<(), Spent> {
        let bytes = way.iter().fold(size_of_val(way), |bytes, segment| {
            bytes.saturating_add(segment.key.len()).saturating_add(segment.stated.len())
        });
        self.way = self.way.checked_sub(bytes).ok_or(Spent)?;
        Ok(())
    }

    /// Pays for a look at a wildcard, and says whether there was enough left for it.
    pub(super) const fn looks(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    /// Pays for a comparison of two wildcards, and says whether there was enough left for it.
    pub(super) const fn compares(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(STEPS_OF_COMPARISON);
        self.steps > 0
    }

    /// The MiB that all expressions may take, for people to read.
    pub(super) const fn regex_mib() -> usize {
        MAX_REGEX_BYTES >> 20
    }

    /// The MiB that the ways to all rules may take, for people to read.
    pub(super) const fn way_mib() -> usize {
        MAX_WAY_BYTES >> 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_that_is_stated_again_costs_little_more() {
        let mut budget = Budget::default();
        budget.regex(r"^/api/\w+$").expect("it is one");
        let left = budget.regex.expect("something");
        for _ in 0..1_000 {
            assert!(budget.regex(r"^/api/\w+$").expect("it is one").is_match("/api/x"));
        }
        let spent = left - budget.regex.expect("something");
        assert!(spent < 1 << 20, "{spent}");
    }
}
