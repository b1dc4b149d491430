//! Rules whose counters the reference tells apart by nothing: it joins keys and values with `_`.

use std::{collections::BTreeMap, sync::Arc};

use crate::rules::{Limit, Rule, Rules, Value};

/// A way to a rule, each step as key and what it states.
type Way<'a> = Vec<(&'a str, &'a str)>;

/// Pairs of rules of one domain of which a request can meet either, and whose counters have one name there: one leaves
/// the value of `a` open, the other one that of `a_b`. Sorted.
pub(super) fn joined(rules: &Rules) -> Vec<(Arc<Rule>, Arc<Rule>)> {
    let mut pairs = Vec::new();
    for domain in rules.domains() {
        let counted: Vec<(&Arc<Rule>, u32)> =
            domain.root.rules().filter_map(|rule| Some((rule, window(rule)?))).collect();
        let ways: BTreeMap<(Way<'_>, u32), &Arc<Rule>> =
            counted.iter().map(|(rule, window)| ((way(rule), *window), *rule)).collect();
        for (rule, window) in counted {
            for other in shorter(rule).filter_map(|way| ways.get(&(way, window))) {
                pairs.push((Arc::clone(other), Arc::clone(rule)));
            }
        }
    }
    pairs.sort_by_key(|(a, b)| (a.origin.clone(), b.origin.clone()));
    pairs
}

/// The window in seconds, as only counters of equal windows share names.
fn window(rule: &Rule) -> Option<u32> {
    match rule.limit {
        Limit::Unlimited => None,
        Limit::Quota { quota, .. } => Some(quota.window.seconds()),
    }
}

fn way(rule: &Rule) -> Way<'_> {
    rule.segments.iter().map(|segment| (&*segment.key, &*segment.stated)).collect()
}

/// The way to a rule with one of its open keys cut at a `_`, in every way that there is.
fn shorter(rule: &Rule) -> impl Iterator<Item = Way<'_>> {
    let open = rule.segments.iter().enumerate().filter(|(_, segment)| {
        segment.value == Value::Open && *segment.key == *segment.stated && !segment.key.contains('*')
    });
    open.flat_map(move |(at, segment)| {
        segment.key.match_indices('_').filter_map(move |(cut, _)| {
            let key = segment.key.get(..cut).filter(|key| !key.is_empty())?;
            let mut way = way(rule);
            *way.get_mut(at)? = (key, key);
            Some(way)
        })
    })
}
