//! Tells which rule a request would meet, and why that one.

use std::io::{self, Write};

use crate::{
    algorithm::{Charging, Policy},
    config,
    descriptor::{Descriptor, Entry, Hits},
    lease::{self, LeaseId},
    limiter::cell_of,
    quota::Quota,
    rules::{Branch, Domain, Level, Limit, Rule, Rules, Sync},
    settings::{DescriptorWords, ExplainFlags},
};

/// How many of a level's descriptors are listed where none matches.
const LISTED: usize = 10;

/// Reads the configuration and writes what the request would meet to `out`, or what is wrong with the
/// configuration to `errors`. Answers whether it is good. Charges nothing.
///
/// # Errors
/// When nobody reads the output.
pub fn run(flags: &ExplainFlags, out: &mut impl Write, errors: &mut impl Write) -> io::Result<bool> {
    match config::load(&flags.config, &flags.options()) {
        Ok(loaded) => {
            explain(out, &loaded.rules, &flags.domain, &flags.descriptors)?;
            Ok(true)
        }
        Err(error) => {
            writeln!(errors, "{error}")?;
            Ok(false)
        }
    }
}

fn explain(
    out: &mut impl Write,
    rules: &Rules,
    domain: &str,
    descriptors: &[DescriptorWords],
) -> io::Result<()> {
    if let Some(domain) = rules.domain(domain) {
        return explain_domain(out, domain, descriptors);
    }
    let mut known: Vec<&str> = rules.domains().map(|domain| &*domain.name).collect();
    known.sort_unstable();
    writeln!(
        out,
        "domain {domain} has no rules, so nothing is limited; those that have: {}",
        known.join(", ")
    )
}

fn explain_domain(out: &mut impl Write, domain: &Domain, descriptors: &[DescriptorWords]) -> io::Result<()> {
    let requests: Vec<Descriptor<'_>> = descriptors.iter().map(request).collect();
    let matched: Vec<&Rule> = requests
        .iter()
        .filter_map(|request| domain.root.rule(&request.entries))
        .map(|rule| &**rule)
        .collect();
    for request in &requests {
        let shown: Vec<String> =
            request.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        writeln!(out, "descriptor {}", shown.join(","))?;
        if let Some((rule, taken, lease)) = domain.root.rule_of_lease(&request.entries) {
            explain_walk(out, &domain.root, taken)?;
            writeln!(out, "  {}={lease}", lease::KEY)?;
            let says = match LeaseId::parse(lease) {
                Ok(_) => "gives this lease back: its places are free, and nothing is charged".to_owned(),
                Err(error) => format!("would give a lease back, but is none: {error}"),
            };
            writeln!(out, "    {says}")?;
            explain_rule(out, domain, rule, taken, &matched)?;
            continue;
        }
        explain_walk(out, &domain.root, &request.entries)?;
        match domain.root.rule(&request.entries) {
            Some(rule) => explain_rule(out, domain, rule, &request.entries, &matched)?,
            None => writeln!(out, "  => no limit")?,
        }
    }
    match domain.charging {
        Charging::EachForItself => Ok(()),
        Charging::AllOrNone => {
            writeln!(out, "a request is charged to all of its limits, or to none if one denies")
        }
    }
}

fn request(DescriptorWords(pairs): &DescriptorWords) -> Descriptor<'_> {
    let entries = pairs.iter().map(|(key, value)| Entry { key, value }).collect();
    Descriptor { entries, limit: None, hits: Hits::Peek }
}

/// Goes down the tree, and tells at each entry what was taken and what else would have matched.
fn explain_walk(out: &mut impl Write, root: &Level, entries: &[Entry<'_>]) -> io::Result<()> {
    let mut level = root;
    for (depth, entry) in entries.iter().enumerate() {
        writeln!(out, "  {}={}", entry.key, entry.value)?;
        let branches = level.branches(*entry);
        let Some(((taken, node), others)) = branches.split_first() else {
            return explain_miss(out, level);
        };
        writeln!(out, "    taken: {}", describe(taken, *entry))?;
        for (other, _) in others {
            writeln!(out, "    passed over: {}, which comes after", describe(other, *entry))?;
        }
        let is_last = depth.saturating_add(1) == entries.len();
        if is_last && node.rule.is_none() {
            writeln!(out, "    it states no rate_limit, and no other descriptor is tried in its place")?;
        }
        level = &node.children;
    }
    Ok(())
}

fn explain_miss(out: &mut impl Write, level: &Level) -> io::Result<()> {
    let stated = level.stated();
    if stated.is_empty() {
        return writeln!(out, "    nothing matches: no descriptors are stated below here");
    }
    let listed: Vec<&str> = stated.iter().take(LISTED).map(String::as_str).collect();
    let more = if stated.len() > LISTED { ", …" } else { "" };
    writeln!(out, "    nothing matches; stated here: {}{more}", listed.join(", "))
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
    out: &mut impl Write,
    domain: &Domain,
    rule: &Rule,
    entries: &[Entry<'_>],
    matched: &[&Rule],
) -> io::Result<()> {
    let (file, line) = &rule.origin;
    writeln!(out, "  => rule {}.{} ({file}:{line})", domain.name, rule.path())?;
    match rule.limit {
        Limit::Unlimited => return writeln!(out, "     limit    unlimited"),
        Limit::Quota { quota, policy } => {
            let sync = match domain.sync_of(rule) {
                Sync::Strict => "",
                Sync::Leased => ", leased",
            };
            writeln!(out, "     limit    {}{sync}{}", limit(quota, &policy), modes(rule))?;
            if let Some(way) = rule.on_store_error {
                writeln!(out, "     on_store_error {}", way.name())?;
            }
        }
    }
    let replacing = matched.iter().find(|other| !rule.name.is_empty() && other.replaces.contains(&rule.name));
    if let Some(other) = replacing {
        writeln!(out, "     replaced by {}.{}: not charged, and passes", domain.name, other.path())?;
    }
    let cell = cell_of(domain, rule, entries);
    let tag = String::from_utf8_lossy(cell.tag()).into_owned();
    writeln!(out, "     counter  {} in {cell}", rule.record_id())?;
    writeln!(out, "     hash tag {tag}, slot {}", cell.slot())
}

/// What a limit says, with the parameters that its algorithm has.
fn limit(quota: Quota, policy: &Policy) -> String {
    let name = policy.algorithm().name();
    match policy {
        Policy::Concurrency(places) => {
            format!("{} at a time, {name}, lease_ttl {:?}", quota.limit, places.lease_ttl())
        }
        policy if !policy.min_interval().is_zero() => {
            format!("{quota}, {name}, min_interval {:?}", policy.min_interval())
        }
        _ => format!("{quota}, {name}"),
    }
}

fn modes(rule: &Rule) -> &'static str {
    match (rule.shadow_mode, rule.quota_mode) {
        (false, false) => "",
        (true, false) => ", shadow mode",
        (false, true) => ", quota mode",
        (true, true) => ", shadow mode, quota mode",
    }
}
