//! Levels of a domain's tree, and the selection of a branch by an entry.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::quality::RandomState;
use ipnet::IpNet;
use smallvec::SmallVec;
use tollgate_core::{algorithm::Algorithm, descriptor::Entry, lease};

use super::{CidrTable, Regex, Rule, Segment, UTILIZATION_KEY, Value, Wildcard};
use super::{addresses::canonical_text, path::join};

/// Branches for one entry of a descriptor, tried in the order of [`Level::branches`].
#[derive(Debug, Default)]
pub struct Level {
    /// Nodes of all conditions.
    nodes: Vec<Node>,
    /// Positions in `nodes` by text. As in envoyproxy/ratelimit, exact values and keys without a value share one lookup: an
    /// entry is found by `key_value`, else by `key`. Patterns are included, for an entry whose text equals a pattern.
    stated: HashMap<Box<str>, usize, RandomState>,
    /// Patterns for `key_value` with their positions in `nodes`, in the order of the configuration.
    wildcards: Vec<(Wildcard, usize)>,
    /// Conditions on the value alone, by key.
    by_key: HashMap<Box<str>, ByKey, RandomState>,
}

/// Address ranges and regular expressions for one key's value, with their positions in the level's nodes.
#[derive(Debug, Default)]
struct ByKey {
    cidrs: CidrTable<usize>,
    regexes: Vec<(Regex, usize)>,
}

/// Condition of a configured descriptor.
#[derive(Clone, Debug)]
pub enum Matcher<'a> {
    /// A key, and a value unless it is empty; a `*` in either makes a pattern.
    Stated {
        /// The key.
        key: &'a str,
        /// The value, or an empty text.
        value: &'a str,
    },
    /// A key whose value is an address in the range.
    Cidr(&'a str, IpNet),
    /// A key whose value matches the expression.
    Regex(&'a str, Regex),
}

/// Result of a matched entry.
#[derive(Debug, Default)]
pub struct Node {
    /// The rule of a request whose last entry matches here; the first of several limits.
    pub rule: Option<Arc<Rule>>,
    /// The extra limits of a descriptor with several.
    pub extra_limits: Box<[Arc<Rule>]>,
    /// The descriptors below.
    pub children: Level,
}

/// Text `key_value`, short ones without an allocation.
type Composite = SmallVec<[u8; 128]>;

impl Node {
    fn limits(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rule.iter().chain(&*self.extra_limits)
    }
}

impl Level {
    /// Adds a descriptor. The level has none of the same text.
    pub fn insert(&mut self, matcher: Matcher<'_>, node: Node) {
        let at = self.nodes.len();
        self.nodes.push(node);
        match matcher {
            Matcher::Stated { key, value } => {
                let stated = join(key, value);
                if let Some(wildcard) = Wildcard::parse(&stated) {
                    self.wildcards.push((wildcard, at));
                }
                self.stated.insert(stated, at);
            }
            Matcher::Cidr(key, range) => {
                self.by_key.entry(key.into()).or_default().cidrs.change(range, |found| *found = at);
            }
            Matcher::Regex(key, regex) => {
                self.by_key.entry(key.into()).or_default().regexes.push((regex, at));
            }
        }
    }

    /// The rule that `entries` match; the first of several limits.
    pub fn rule(&self, entries: &[Entry<'_>]) -> Option<&Arc<Rule>> {
        self.node(entries)?.rule.as_ref()
    }

    /// The rules that `entries` match: one, or several limits in the order of the configuration.
    pub fn limits(&self, entries: &[Entry<'_>]) -> impl Iterator<Item = &Arc<Rule>> {
        self.node(entries).into_iter().flat_map(Node::limits)
    }

    fn node(&self, entries: &[Entry<'_>]) -> Option<&Node> {
        let (last, path) = entries.split_last()?;
        let level = path.iter().try_fold(self, |level, entry| Some(&level.find(*entry)?.children))?;
        level.find(*last)
    }

    /// The limit with leases whose lease `entries` release or settle, unless they match a rule themselves: the limit, the entries that
    /// acquired the lease, and the lease's identifier as text.
    pub fn rule_of_lease<'a, 'e>(
        &self,
        entries: &'e [Entry<'a>],
    ) -> Option<(&Arc<Rule>, &'e [Entry<'a>], &'a str)> {
        let (last, path) = entries.split_last().filter(|(last, _)| last.key == lease::KEY)?;
        let rule = self.rule(path).filter(|rule| rule.algorithm().is_some_and(Algorithm::takes_leases))?;
        self.rule(entries).is_none().then_some((rule, path, last.value))
    }

    /// The rule that sheds for `entries`, of which the last is a priority or a report beside the rule's own, unless they
    /// match a rule themselves; and that last entry.
    pub fn rule_of_signal<'a>(&self, entries: &[Entry<'a>]) -> Option<(&Arc<Rule>, Entry<'a>)> {
        let (last, path) = entries.split_last()?;
        let rule = self.rule(path)?;
        let shedding = rule.shedding.as_deref()?;
        let is_signal = last.key == UTILIZATION_KEY || *last.key == *shedding.priority_key;
        (is_signal && self.rule(entries).is_none()).then_some((rule, *last))
    }

    /// Whether a request with these entries is decided by the rule. Entries that do not distinguish its counters stand for
    /// all that match there.
    pub(crate) fn leads_to(&self, rule: &Rule, segments: &[Segment], entries: &[Entry<'_>]) -> bool {
        let (Some((segment, segments)), Some((entry, entries))) =
            (segments.split_first(), entries.split_first())
        else {
            return false;
        };
        // An entry without a value does not show whether a pattern for values matches.
        let is_found = segment.value == Value::Open || (segment.is_open() && segment.stated == segment.key);
        let node = match is_found {
            true => self.find(*entry),
            false => self
                .node_stated(&segment.stated)
                .or_else(|| self.nodes.get(self.by_key.get(entry.key)?.stated_at(entry.value)?)),
        };
        node.is_some_and(|node| match segments {
            [] => node.limits().any(|found| found.index() == rule.index()),
            _ => node.children.leads_to(rule, segments, entries),
        })
    }

    /// The node that an entry selects.
    fn find(&self, entry: Entry<'_>) -> Option<&Node> {
        let composite = composite(entry);
        // Two valid texts joined by an ASCII character are valid.
        let text = std::str::from_utf8(&composite).unwrap_or_default();
        if let Some(node) = self.node_stated(text) {
            return Some(node);
        }
        if let Some((_, at)) = self.wildcards.iter().find(|(wildcard, _)| wildcard.matches(text)) {
            return self.nodes.get(*at);
        }
        if !self.by_key.is_empty()
            && let Some(by_key) = self.by_key.get(entry.key)
            && let Some(at) = by_key.find(entry.value)
        {
            return self.nodes.get(at);
        }
        self.node_stated(entry.key)
    }

    fn node_stated(&self, text: &str) -> Option<&Node> {
        self.stated.get(text).and_then(|at| self.nodes.get(*at))
    }

    /// All branches that match an entry, in words, the selected one first: equal key and value, patterns, ranges with the longest
    /// prefix first, expressions in the order of the configuration, the key alone.
    pub fn branches(&self, entry: Entry<'_>) -> Vec<(String, &Node)> {
        let text = format!("{}_{}", entry.key, entry.value);
        let exact = self.node_stated(&text).map(|node| (format!("the exact value {text}"), node));
        let wildcards = self.wildcards.iter().filter(|(wildcard, _)| wildcard.matches(&text));
        let wildcards = wildcards.filter_map(|(wildcard, at)| {
            // An entry that equals the pattern's text is the exact match above.
            let node = self.nodes.get(*at).filter(|_| wildcard.to_string() != text)?;
            Some((format!("the wildcard {wildcard}"), node))
        });
        let by_key = self.by_key.get(entry.key);
        let cidrs = by_key.into_iter().flat_map(|by_key| by_key.cidrs.matching(entry.value));
        let cidrs = cidrs.map(|(range, at)| (format!("the range {range}"), at));
        let regexes = by_key.into_iter().flat_map(|by_key| by_key.regexes.iter());
        let regexes = regexes.filter(|(regex, _)| regex.is_match(entry.value));
        let regexes = regexes.map(|(regex, at)| (format!("the expression {}", regex.as_str()), at));
        let by_value = cidrs.chain(regexes).filter_map(|(text, at)| Some((text, self.nodes.get(*at)?)));
        let key =
            self.node_stated(entry.key).map(|node| (format!("the key {} with any value", entry.key), node));
        exact.into_iter().chain(wildcards).chain(by_value).chain(key).collect()
    }

    /// All rules on this level and below, in no particular order.
    pub fn rules(&self) -> Box<dyn Iterator<Item = &Arc<Rule>> + '_> {
        Box::new(self.nodes.iter().flat_map(|node| node.limits().chain(node.children.rules())))
    }

    /// Adds the keys of address ranges on this level and below.
    pub(crate) fn add_address_keys(&self, keys: &mut BTreeSet<Box<str>>) {
        let ranged = self.by_key.iter().filter(|(_, by_key)| !by_key.cidrs.is_empty());
        keys.extend(ranged.map(|(key, _)| key.clone()));
        self.nodes.iter().for_each(|node| node.children.add_address_keys(keys));
    }

    /// Lets values of these keys that are addresses match the canonical text, which requests have.
    pub(crate) fn add_canonical_addresses(&mut self, keys: &BTreeSet<Box<str>>) {
        let canonical = |key: &str, text: &str| {
            let value = text.strip_prefix(key)?.strip_prefix('_')?;
            canonical_text(value).map(|canonical| join(key, &canonical))
        };
        for key in keys {
            let others = self.stated.iter().filter_map(|(text, at)| Some((canonical(key, text)?, *at)));
            for (text, at) in others.collect::<Vec<_>>() {
                self.stated.entry(text).or_insert(at);
            }
        }
        if !keys.is_empty() {
            self.nodes.iter_mut().for_each(|node| node.children.add_canonical_addresses(keys));
        }
    }

    /// Descriptions of the first `max_count` conditions of the level, in order of precedence.
    pub fn stated(&self, max_count: usize) -> Vec<String> {
        let mut exact: Vec<&str> =
            self.stated.keys().map(|text| &**text).filter(|text| !text.contains('*')).collect();
        if exact.len() > max_count {
            exact.select_nth_unstable(max_count);
            exact.truncate(max_count);
        }
        exact.sort_unstable();
        let wildcards = self.wildcards.iter().map(|(wildcard, _)| wildcard.to_string());
        let stated = exact.into_iter().map(str::to_owned).chain(wildcards);
        let mut stated: Vec<String> = stated.take(max_count).collect();
        if stated.len() < max_count {
            let by_key = self.by_key.iter().flat_map(|(key, by_key)| by_key.stated(key));
            let mut by_key: Vec<String> = by_key.collect();
            by_key.sort_unstable();
            stated.extend(by_key.into_iter().take(max_count.saturating_sub(stated.len())));
        }
        stated
    }
}

impl ByKey {
    fn stated(&self, key: &str) -> Vec<String> {
        let cidrs = self.cidrs.ranges().map(|range| format!("{key} in {range}"));
        let regexes = self.regexes.iter().map(|(regex, _)| format!("{key} matching {}", regex.as_str()));
        cidrs.chain(regexes).collect()
    }

    /// The position of a range or, after `~`, of an expression.
    fn stated_at(&self, text: &str) -> Option<usize> {
        match text.strip_prefix('~') {
            Some(text) => self.regexes.iter().find(|(regex, _)| regex.as_str() == text).map(|(_, at)| *at),
            None => self.cidrs.get(text.parse().ok()?).copied(),
        }
    }

    /// The position of the first condition that a value meets.
    fn find(&self, value: &str) -> Option<usize> {
        let cidr = (!self.cidrs.is_empty()).then(|| self.cidrs.matching(value).next()).flatten();
        match cidr {
            Some((_, at)) => Some(*at),
            None => self.regexes.iter().find(|(regex, _)| regex.is_match(value)).map(|(_, at)| *at),
        }
    }
}

fn composite(entry: Entry<'_>) -> Composite {
    let mut text = Composite::new();
    text.extend_from_slice(entry.key.as_bytes());
    text.push(b'_');
    text.extend_from_slice(entry.value.as_bytes());
    text
}

#[cfg(test)]
mod tests;
