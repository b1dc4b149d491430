//! Lists the keys that abuse their limits.

use std::collections::BTreeMap;

use tollgate_control::{
    Added, AutomaticMode, Control, EventKind, EventPhase, ListPair, NewEntry, OperatorEvent,
    bounds::{MAX_PAIRS, MAX_VALUE_BYTES},
};
use tollgate_limiter::abuse::{Abuser, Detected};
use tollgate_rules::AbuseMode;

use super::metrics;

/// Listed keys by domain, rule and effect.
type Listed = BTreeMap<(String, String, bool), Vec<String>>;

/// Adds the detected keys to the list, and reports them: in metrics, in the log by number, and as events.
pub(super) async fn list(control: &Control, detected: Detected) {
    detected.refused.into_iter().for_each(metrics::refused);
    let entries: Vec<NewEntry> = detected.abusers.into_iter().filter_map(entry).collect();
    if entries.is_empty() {
        return;
    }
    let results = match control.add_automatic(entries.clone()).await {
        Ok(results) => results,
        Err(error) => {
            tracing::warn!(%error, keys = entries.len(), "cannot list abusive keys");
            return;
        }
    };
    let (mut listed, mut full) = (Listed::new(), 0_usize);
    for (NewEntry { entry, .. }, result) in entries.into_iter().zip(results) {
        match result {
            Added::Listed => {
                metrics::listed(entry.mode);
                let is_enforced = entry.mode == AutomaticMode::Enforce;
                let pairs: Vec<String> = entry.descriptor.iter().map(ToString::to_string).collect();
                listed.entry((entry.domain, entry.rule, is_enforced)).or_default().push(pairs.join(","));
            }
            Added::Known => {}
            Added::Full => {
                metrics::full();
                full = full.saturating_add(1);
            }
        }
    }
    for ((domain, rule, is_enforced), keys) in listed {
        tracing::info!(%domain, %rule, keys = keys.len(), enforced = is_enforced, "abusive keys listed");
        control.raise_event(event(domain, rule, is_enforced, keys));
    }
    if full > 0 {
        tracing::warn!(keys = full, "no room for automatic list entries");
    }
}

/// The entry of a key; `None` if its descriptor has no entry of a list.
fn entry(abuser: Abuser) -> Option<NewEntry> {
    let Abuser { domain, descriptor, rule, mode, durations, evidence } = abuser;
    let fits = |text: &str| text.len() <= MAX_VALUE_BYTES;
    let is_valid = (1..=MAX_PAIRS).contains(&descriptor.len())
        && fits(&domain)
        && descriptor.iter().all(|pair| fits(&pair.key) && fits(&pair.value) && !pair.key.contains('*'));
    if !is_valid {
        return None;
    }
    let descriptor = descriptor.into_iter().map(|pair| ListPair::exact(pair.key, pair.value)).collect();
    let mode = match mode {
        AbuseMode::DryRun => AutomaticMode::DryRun,
        AbuseMode::Enforce => AutomaticMode::Enforce,
    };
    Some(NewEntry::new(mode, domain, descriptor, rule, evidence, durations))
}

/// One event for all keys of a rule, so that an attack by many keys is one event.
fn event(domain: String, rule: String, is_enforced: bool, keys: Vec<String>) -> OperatorEvent {
    let (count, effect) = (keys.len(), if is_enforced { "listed" } else { "listed in a dry run" });
    let plural = if count == 1 { "" } else { "s" };
    OperatorEvent {
        kind: EventKind::AbuseListed,
        phase: EventPhase::Occurred,
        message: format!("Abuse rule {rule} of domain {domain}: {count} key{plural} {effect}."),
        domain,
        rule: Some(rule),
        key: keys.into_iter().next().filter(|_| count == 1),
        figures: vec![("listed_keys", u64::try_from(count).unwrap_or(u64::MAX))],
    }
}
