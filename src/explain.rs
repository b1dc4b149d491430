//! Tells which rule a request would meet, and why that one.

use std::fmt::{self, Write as _};

use crate::{
    descriptor::{Descriptor, Entry, Hits},
    limiter::cell_of,
    rules::{Branch, Domain, Level, Limit, Rule, Rules},
};

/// How many of a level's descriptors are listed where none matches.
const LISTED: usize = 10;

/// Explains what `descriptors`, each a list of keys and values, would meet in `domain`, one after the other,
/// without charging anything.
pub fn explain(rules: &Rules, domain: &str, descriptors: &[Vec<(String, String)>]) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match rules.domain(domain) {
        Some(found) => explain_domain(&mut text, found, descriptors),
        None => {
            let mut known: Vec<&str> = rules.domains().map(|domain| &*domain.name).collect();
            known.sort_unstable();
            writeln!(
                text,
                "domain {domain:?} has no rules, so nothing is limited; domains that have: {}",
                known.join(", ")
            )
        }
    };
    text
}

fn explain_domain(text: &mut String, domain: &Domain, descriptors: &[Vec<(String, String)>]) -> fmt::Result {
    let requests: Vec<Descriptor<'_>> = descriptors.iter().map(|pairs| request(pairs)).collect();
    let matched: Vec<&Rule> = requests
        .iter()
        .filter_map(|request| domain.root.rule(&request.entries))
        .map(|rule| &**rule)
        .collect();
    for request in &requests {
        let shown: Vec<String> =
            request.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        writeln!(text, "descriptor {}", shown.join(","))?;
        explain_walk(text, &domain.root, &request.entries)?;
        match domain.root.rule(&request.entries) {
            Some(rule) => explain_rule(text, domain, rule, request, &matched)?,
            None => writeln!(text, "  => no limit")?,
        }
    }
    Ok(())
}

fn request(pairs: &[(String, String)]) -> Descriptor<'_> {
    let entries = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
    Descriptor { entries, limit: None, hits: Hits::Peek }
}

/// Goes down the tree, and tells at each entry what was taken and what else would have matched.
fn explain_walk(text: &mut String, root: &Level, entries: &[Entry<'_>]) -> fmt::Result {
    let mut level = root;
    for (depth, entry) in entries.iter().enumerate() {
        writeln!(text, "  {}={}", entry.key, entry.value)?;
        let branches = level.branches(*entry);
        let Some(((taken, node), others)) = branches.split_first() else {
            return explain_miss(text, level);
        };
        writeln!(text, "    taken: {}", describe(taken, *entry))?;
        for (other, _) in others {
            writeln!(text, "    passed over: {}, which comes after", describe(other, *entry))?;
        }
        let is_last = depth.saturating_add(1) == entries.len();
        if is_last && node.rule.is_none() {
            writeln!(text, "    it states no rate_limit, and no other descriptor is tried in its place")?;
        }
        level = &node.children;
    }
    Ok(())
}

fn explain_miss(text: &mut String, level: &Level) -> fmt::Result {
    let stated = level.stated();
    if stated.is_empty() {
        return writeln!(text, "    nothing matches: no descriptors are stated below here");
    }
    let listed: Vec<&str> = stated.iter().take(LISTED).map(String::as_str).collect();
    let more = if stated.len() > LISTED { ", …" } else { "" };
    writeln!(text, "    nothing matches; stated here: {}{more}", listed.join(", "))
}

fn describe(branch: &Branch, entry: Entry<'_>) -> String {
    match branch {
        Branch::Exact => format!("the exact value {}_{}", entry.key, entry.value),
        Branch::Wildcard(stated) => format!("the wildcard {stated}"),
        Branch::Cidr(range) => format!("the range {range}"),
        Branch::Regex(regex) => format!("the expression {regex}"),
        Branch::Key => format!("the key {} with any value", entry.key),
    }
}

fn explain_rule(
    text: &mut String,
    domain: &Domain,
    rule: &Rule,
    request: &Descriptor<'_>,
    matched: &[&Rule],
) -> fmt::Result {
    let (file, line) = &rule.origin;
    writeln!(text, "  => rule {}.{} ({file}:{line})", domain.name, rule.path())?;
    match rule.limit {
        Limit::Unlimited => return writeln!(text, "     limit    unlimited"),
        Limit::Quota { quota, policy } => {
            writeln!(text, "     limit    {quota}, {}{}", policy.algorithm().name(), modes(rule))?;
        }
    }
    let replacing = matched.iter().find(|other| !rule.name.is_empty() && other.replaces.contains(&rule.name));
    if let Some(other) = replacing {
        writeln!(text, "     replaced by {}.{}: not charged, and passes", domain.name, other.path())?;
    }
    let cell = cell_of(domain, rule, request);
    let tag = String::from_utf8_lossy(cell.tag()).into_owned();
    writeln!(text, "     counter  {} in {cell}", rule.record_id())?;
    writeln!(text, "     hash tag {tag}, slot {}", cell.slot())
}

fn modes(rule: &Rule) -> &'static str {
    match (rule.shadow_mode, rule.quota_mode) {
        (false, false) => "",
        (true, false) => ", shadow mode",
        (false, true) => ", quota mode",
        (true, true) => ", shadow mode, quota mode",
    }
}
