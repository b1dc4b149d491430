//! Changes of one limit in the text of its file. All other bytes stay: comments, layout, order, quotes.
//!
//! The place is found by the source spans of the parser's events, not by writing the tree anew. The result is loaded and
//! compared: nothing but the limit of the rule may differ.

mod change;
mod promote;
mod spans;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

pub use self::promote::promote_candidate;
use self::{change::changed, spans::SpanNode};
use super::{LoadError, Options, load_files};
use crate::{Rule, Rules};

/// Files after a change of one limit.
#[derive(Debug)]
pub struct EditedLimit {
    /// The changed file.
    pub file: String,
    /// All files.
    pub files: BTreeMap<String, String>,
    /// The rules of these files.
    pub rules: Rules,
}

/// Error of a change of one limit.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// No rule of this domain and path.
    #[error("no rule of this domain has this path")]
    NoRule,
    /// No file has the descriptor in a form in which it can be changed alone.
    #[error("{file}:{line}: {reason}; change the file instead")]
    Unsupported {
        /// The file of the rule.
        file: String,
        /// Its line.
        line: usize,
        /// Reason why it cannot be changed alone.
        reason: &'static str,
    },
    /// The rule has no candidate.
    #[error("the rule has no candidate; expected a rule with `candidate`")]
    NoCandidate,
    /// The limit would not be what the candidate is.
    #[error(
        "{file}:{line}: the limit would differ from the candidate, since it inherits keys or belongs to a merge key; \
         set the keys of the limit instead"
    )]
    Differs {
        /// The file of the rule.
        file: String,
        /// Its line.
        line: usize,
    },
    /// Other rules would change too.
    #[error(
        "{file}:{line}: the limit is shared by an anchor or a default with other rules; change the file instead"
    )]
    Shared {
        /// The file of the rule.
        file: String,
        /// Its line.
        line: usize,
    },
    /// The files before or after the change are invalid.
    #[error(transparent)]
    Invalid(#[from] LoadError),
}

/// Sets keys in the `rate_limit` of the rule at `path`; a null removes a key. Slow for many files.
///
/// # Errors
/// [`EditError`]; then nothing has a new text.
pub fn edit_limit(
    files: &BTreeMap<String, String>,
    options: Options,
    (domain, path): (&str, &str),
    keys: &Map<String, Value>,
) -> Result<EditedLimit, EditError> {
    let before = load(files, options)?;
    let rule = find(&before, domain, path).ok_or(EditError::NoRule)?;
    edited(files, options, (&before, rule), keys)
}

/// Place of a rule in the files.
struct Place {
    file: String,
    line: usize,
}

impl Place {
    fn of(rule: &Rule) -> Self {
        Self { file: rule.origin.0.to_string(), line: rule.origin.1 }
    }

    fn unsupported(&self, reason: &'static str) -> EditError {
        EditError::Unsupported { file: self.file.clone(), line: self.line, reason }
    }
}

/// Sets keys in the `rate_limit` of a rule of these files.
fn edited(
    files: &BTreeMap<String, String>,
    options: Options,
    (before, rule): (&Rules, &Rule),
    keys: &Map<String, Value>,
) -> Result<EditedLimit, EditError> {
    let place = Place::of(rule);
    let unsupported = |reason| place.unsupported(reason);
    let text = files.get(&place.file).ok_or_else(|| unsupported("the file is not part of the version"))?;
    let root = spans::parse(text).ok_or_else(|| unsupported("the file cannot be read"))?;
    let limit = limit_of(&root, rule).map_err(unsupported)?;
    let text = changed(text, limit, keys).map_err(unsupported)?;
    let mut files = files.clone();
    files.insert(place.file.clone(), text);
    let rules = load(&files, options)?;
    let Place { file, line } = place;
    match differs_only_in(before, &rules, rule) {
        true => Ok(EditedLimit { file, files, rules }),
        false => Err(EditError::Shared { file, line }),
    }
}

fn load(files: &BTreeMap<String, String>, options: Options) -> Result<Rules, LoadError> {
    let contents = files.iter().map(|(name, text)| (name.clone(), text.clone().into_bytes()));
    load_files(contents, options).map(|loaded| loaded.rules)
}

fn find<'r>(rules: &'r Rules, domain: &str, path: &str) -> Option<&'r Arc<Rule>> {
    rules.domain(domain)?.root.rules().find(|rule| rule.path() == path)
}

/// The value of `rate_limit` in the descriptor of a rule.
fn limit_of<'n>(root: &'n SpanNode, rule: &Rule) -> Result<&'n SpanNode, &'static str> {
    const REUSED: &str = "the descriptor comes from an alias or a merge key";
    let mut node = root;
    for segment in &rule.segments {
        let list = node.value("descriptors").and_then(SpanNode::items).ok_or(REUSED)?;
        let is_stated = |item: &&SpanNode| item.stated().is_some_and(|stated| stated == *segment.stated);
        node = list.iter().find(is_stated).ok_or(REUSED)?;
    }
    match &rule.part {
        None => node.value("rate_limit").ok_or(REUSED),
        Some(part) => {
            let limits = node.value("rate_limits").and_then(SpanNode::items).ok_or(REUSED)?;
            limits.get(part.index).ok_or(REUSED)
        }
    }
}

/// Whether two sets of rules differ in no other rule than this one.
fn differs_only_in(before: &Rules, after: &Rules, changed: &Rule) -> bool {
    let same =
        |(one, other): (&Arc<Rule>, &Arc<Rule>)| one.index() == changed.index() || one.states_same_as(other);
    let is_same = |one: &crate::Domain| {
        let Some(other) = after.domain(&one.name) else { return false };
        let count = |domain: &crate::Domain| domain.root.rules().count();
        count(one) == count(other)
            && one.default_algorithm == other.default_algorithm
            && one.default_on_store_error == other.default_on_store_error
            && one.charging == other.charging
            && one.counts_denied == other.counts_denied
            && one.hash_tag == other.hash_tag
            && one.abuse == other.abuse
            && by_path(one).zip(by_path(other)).all(same)
    };
    before.domains().count() == after.domains().count() && before.domains().all(is_same)
}

fn by_path(domain: &crate::Domain) -> impl Iterator<Item = &Arc<Rule>> {
    let mut rules: Vec<_> = domain.root.rules().map(|rule| (rule.path(), rule)).collect();
    rules.sort_by(|(one, _), (other, _)| one.cmp(other));
    rules.into_iter().map(|(_, rule)| rule)
}
