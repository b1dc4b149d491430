//! Walks down the tree: the node that each entry matches, and the other candidates.

use serde::Serialize;
use tollgate_core::descriptor::Entry;
use tollgate_core::lease::{self, LeaseId};
use tollgate_rules::{Level, Rule, UTILIZATION_KEY};
use tollgate_shedding::{Priority, Utilization};

/// Maximum number of descriptors listed when none matches.
const MAX_LISTED: usize = 10;

/// Note on a value that ranges would match if it were an address.
pub(super) const NO_ADDRESS: &str =
    "no range matches, since the value is not an address; expected one address, not a list";

/// Match of one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The entry's key.
    pub key: String,
    /// The entry's value.
    pub value: String,
    /// The matched node, if any.
    pub taken: Option<String>,
    /// Other nodes that would match.
    pub passed_over: Vec<String>,
    /// Reason why nothing matched, or why there is no limit.
    pub note: Option<String>,
}

/// Matches of the entries, up to the first without one.
pub(super) fn steps(root: &Level, entries: &[Entry<'_>]) -> Vec<Step> {
    let mut level = root;
    let mut steps = Vec::with_capacity(entries.len());
    for (depth, entry) in entries.iter().enumerate() {
        let mut step = step(*entry, None);
        let mut branches = level.branches(*entry).into_iter();
        let Some((taken, node)) = branches.next() else {
            step.note = Some(miss(level));
            steps.push(step);
            return steps;
        };
        step.taken = Some(taken);
        step.passed_over = branches.map(|(other, _)| other).collect();
        let is_last = depth.saturating_add(1) == entries.len();
        if is_last && node.rule.is_none() {
            let note = "it states no rate_limit, and no other descriptor is tried in its place";
            step.note = Some(note.to_owned());
        }
        steps.push(step);
        level = &node.children;
    }
    steps
}

/// The step of the entry that releases a lease of a rule, or settles it.
pub(super) fn lease_step(rule: &Rule, lease: &str) -> Step {
    let settles = rule.algorithm().is_some_and(|algorithm| !algorithm.holds_permits());
    let note = match LeaseId::parse(lease) {
        Ok(_) if settles => {
            "settles this lease: the hits of the descriptor count in place of the reserved ones".to_owned()
        }
        Err(error) if settles => format!("would settle a lease, but is invalid: {error}"),
        Ok(_) => "releases this lease: its permits are free again, and nothing is charged".to_owned(),
        Err(error) => format!("would release a lease, but is invalid: {error}"),
    };
    step(Entry { key: lease::KEY, value: lease }, Some(note))
}

/// The step of the entry that states a request's priority, or reports a utilization.
pub(super) fn signal_step(entry: Entry<'_>, hits: u64) -> Step {
    let note = match entry.key {
        UTILIZATION_KEY => match Utilization::parse(entry.value, hits) {
            Ok(reported) => {
                let units = reported.units();
                format!("reports a utilization of {}.{:02}%: never denied", units / 100, units % 100)
            }
            Err(error) => format!("would report a utilization, but is invalid: {error}"),
        },
        _ => format!("states the priority {}", Priority::of(entry.value).name()),
    };
    step(entry, Some(note))
}

fn step(entry: Entry<'_>, note: Option<String>) -> Step {
    let (key, value) = (entry.key.to_owned(), entry.value.to_owned());
    Step { key, value, taken: None, passed_over: Vec::new(), note }
}

fn miss(level: &Level) -> String {
    let stated = level.stated(MAX_LISTED.saturating_add(1));
    if stated.is_empty() {
        return "nothing matches: no descriptors are stated below here".to_owned();
    }
    let listed: Vec<&str> = stated.iter().take(MAX_LISTED).map(String::as_str).collect();
    let more = if stated.len() > MAX_LISTED { ", …" } else { "" };
    format!("nothing matches; stated here: {}{more}", listed.join(", "))
}
