//! Rules whose counters have one name in the reference, which joins keys and values with `_`.

use std::{collections::BTreeMap, sync::Arc};

use tollgate::rules::{Limit, Rule, Rules, Value};

/// Path of a rule: its keys with their stated values.
type RulePath<'a> = Vec<(&'a str, &'a str)>;

/// Pairs of rules of one domain whose counters can have one name in the reference: one rule leaves the value of `a`
/// open, the other that of `a_b`. Sorted.
pub(super) fn joined(rules: &Rules) -> Vec<(Arc<Rule>, Arc<Rule>)> {
    let mut pairs = Vec::new();
    for domain in rules.domains() {
        let counted: Vec<(&Arc<Rule>, u32)> =
            domain.root.rules().filter_map(|rule| Some((rule, window(rule)?))).collect();
        let paths: BTreeMap<(RulePath<'_>, u32), &Arc<Rule>> =
            counted.iter().map(|(rule, window)| ((path(rule), *window), *rule)).collect();
        for (rule, window) in counted {
            for other in shorter(rule).filter_map(|path| paths.get(&(path, window))) {
                pairs.push((Arc::clone(other), Arc::clone(rule)));
            }
        }
    }
    pairs.sort_by_key(|(a, b)| (a.origin.clone(), b.origin.clone()));
    pairs
}

/// Window in seconds: only counters of equal windows share names.
fn window(rule: &Rule) -> Option<u32> {
    match rule.limit {
        Limit::Unlimited => None,
        Limit::Quota { quota, .. } => Some(quota.window.seconds()),
    }
}

fn path(rule: &Rule) -> RulePath<'_> {
    rule.segments.iter().map(|segment| (&*segment.key, &*segment.stated)).collect()
}

/// Paths of a rule with one of its open keys cut at a `_`, for each `_`.
fn shorter(rule: &Rule) -> impl Iterator<Item = RulePath<'_>> {
    let open = rule.segments.iter().enumerate().filter(|(_, segment)| {
        segment.value == Value::Open && *segment.key == *segment.stated && !segment.key.contains('*')
    });
    open.flat_map(move |(at, segment)| {
        segment.key.match_indices('_').filter_map(move |(cut, _)| {
            let key = segment.key.get(..cut).filter(|key| !key.is_empty())?;
            let mut path = path(rule);
            *path.get_mut(at)? = (key, key);
            Some(path)
        })
    })
}
