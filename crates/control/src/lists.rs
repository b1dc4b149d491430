//! Compiles lists and switches for enforcement.

use tollgate_rules::{ALL_NAMES, Listing, ListingError, Lists};

use super::{AutomaticEntry, AutomaticMode, List, ListEntry, RampError, Runtime, Switch, SwitchMode};

/// Error of an invalid switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwitchError {
    #[error("the domain is missing; expected a name, or `*` for an emergency of all domains")]
    NoDomain,
    #[error("the rule is missing; expected its path, or `*` for an emergency")]
    NoRule,
    #[error("an emergency is one of all rules; expected `*` as the rule")]
    SingleRule,
    #[error("`enforce_percent` and ramps need a rule in shadow mode; expected the mode `shadow`")]
    ShareBesideMode,
    #[error("a ramp ends with its last step; expected no other end")]
    EndOfRamp,
    #[error(transparent)]
    Ramp(#[from] RampError),
}

/// Validates an entry before it is added, and returns its compiled form.
///
/// # Errors
/// When it is invalid.
pub fn check_entry(entry: &ListEntry) -> Result<Listing, ListingError> {
    listing(entry)
}

/// Validates a switch before it is set.
///
/// # Errors
/// When it is invalid.
pub fn check_switch(switch: &Switch) -> Result<(), SwitchError> {
    match switch {
        _ if switch.domain.is_empty() => Err(SwitchError::NoDomain),
        _ if switch.rule.is_empty() => Err(SwitchError::NoRule),
        Switch { mode: SwitchMode::Emergency, rule, .. } if rule != ALL_NAMES => Err(SwitchError::SingleRule),
        Switch { mode, enforce_percent, ramp, .. }
            if *mode != SwitchMode::Shadow && (enforce_percent.is_some() || ramp.is_some()) =>
        {
            Err(SwitchError::ShareBesideMode)
        }
        Switch { ramp: Some(_), expires_at_ms: Some(_), .. } => Err(SwitchError::EndOfRamp),
        Switch { ramp: Some(ramp), .. } => Ok(ramp.check()?),
        _ => Ok(()),
    }
}

/// Compiles the lists and switches that have not expired at `now_ms`, in milliseconds since 1970. Invalid ones, which
/// were not validated, are omitted and reported.
pub fn compile(runtime: &Runtime, now_ms: u64) -> (Lists, Vec<String>) {
    let is_active = |end: Option<u64>| end.is_none_or(|end| now_ms < end);
    let mut problems = Vec::new();
    let mut listings = Vec::new();
    for entry in runtime.entries.iter().filter(|entry| is_active(entry.expires_at_ms)) {
        match listing(entry) {
            Ok(listing) => listings.push(listing),
            Err(error) => {
                problems.push(format!("entry {} of the {} list: {error}", entry.id, entry.list.name()));
            }
        }
    }
    let enforced = runtime.automatic.iter().filter(|entry| entry.mode == AutomaticMode::Enforce);
    for entry in enforced.filter(|entry| is_active(Some(entry.expires_at_ms))) {
        match automatic_listing(entry) {
            Ok(listing) => listings.push(listing),
            Err(error) => problems.push(format!("automatic entry {}: {error}", entry.id)),
        }
    }
    let (mut switches, mut shares) = (Vec::new(), Vec::new());
    for switch in runtime.switches.iter().filter(|switch| is_active(switch.expires_at_ms)) {
        match check_switch(switch) {
            Ok(()) => {
                let (domain, rule) = (switch.domain.as_str().into(), switch.rule.as_str().into());
                match switch.enforce_percent {
                    Some(share) => shares.push((domain, rule, share)),
                    None => switches.push((domain, rule, switch.mode)),
                }
            }
            Err(error) => problems.push(format!("switch of {}.{}: {error}", switch.domain, switch.rule)),
        }
    }
    (Lists::new(runtime.generation, listings, switches).with_shares(shares), problems)
}

fn listing(entry: &ListEntry) -> Result<Listing, ListingError> {
    let pairs = entry.descriptor.iter().map(|pair| (&*pair.key, &*pair.value, pair.value_match));
    Listing::new(&entry.id, entry.list, &entry.domain, pairs, entry.expires_at_ms)
}

/// Returns the compiled form of an automatic entry.
pub(super) fn automatic_listing(entry: &AutomaticEntry) -> Result<Listing, ListingError> {
    let pairs = entry.descriptor.iter().map(|pair| (&*pair.key, &*pair.value, pair.value_match));
    Listing::new(&entry.id, List::Deny, &entry.domain, pairs, Some(entry.expires_at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListPair, SwitchMode};
    use tollgate_core::descriptor::Entry;
    use tollgate_rules::List;

    fn entry(id: &str, key: &str, expires_at_ms: Option<u64>) -> ListEntry {
        ListEntry {
            id: id.into(),
            list: List::Deny,
            domain: "d".into(),
            descriptor: vec![ListPair::pattern(key, "x")],
            reason: String::new(),
            author: String::new(),
            created_at_ms: 0,
            expires_at_ms,
        }
    }

    fn switch(rule: &str, expires_at_ms: Option<u64>) -> Switch {
        Switch {
            domain: "d".into(),
            rule: rule.into(),
            mode: SwitchMode::Off,
            enforce_percent: None,
            ramp: None,
            reason: String::new(),
            author: String::new(),
            created_at_ms: 0,
            expires_at_ms,
        }
    }

    #[test]
    fn an_emergency_is_one_of_all_rules_of_a_domain_or_of_all() {
        let emergency = |domain: &str, rule: &str| Switch {
            domain: domain.into(),
            mode: SwitchMode::Emergency,
            ..switch(rule, Some(11))
        };
        assert_eq!(check_switch(&emergency("d", "k")), Err(SwitchError::SingleRule));
        let runtime = |switches| Runtime { generation: 1, entries: vec![], switches, ..Runtime::default() };
        let (lists, problems) = compile(&runtime(vec![emergency("d", ALL_NAMES)]), 10);
        assert_eq!((lists.is_emergency("d"), lists.is_emergency("e")), (true, false));
        assert_eq!(lists.mode_of("d", "k"), None);
        assert!(problems.is_empty());
        let (lists, _) = compile(&runtime(vec![emergency(ALL_NAMES, ALL_NAMES)]), 10);
        assert!(lists.is_emergency("e"));
        let (lists, _) = compile(&runtime(vec![emergency(ALL_NAMES, ALL_NAMES)]), 11);
        assert!(!lists.is_emergency("e"), "it has expired");
    }

    #[test]
    fn expired_ones_are_omitted_and_invalid_ones_are_reported() {
        let runtime = Runtime {
            automatic: Vec::new(),
            generation: 7,
            entries: vec![entry("a", "ended", Some(10)), entry("b", "", None), entry("c", "holds", Some(11))],
            switches: vec![switch("ended", Some(10)), switch("", None), switch("holds", Some(11))],
        };
        let (lists, problems) = compile(&runtime, 10);
        assert_eq!(lists.generation(), 7);
        let denies = |key| lists.denying("d", &[Entry { key, value: "x" }], 0).is_some();
        assert!(denies("holds") && !denies("ended"));
        assert_eq!(lists.mode_of("d", "holds"), Some(SwitchMode::Off));
        assert_eq!(lists.mode_of("d", "ended"), None);
        assert_eq!(
            problems,
            [
                "entry b of the deny list: a key is empty; expected a descriptor key, such as remote_address",
                "switch of d.: the rule is missing; expected its path, or `*` for an emergency",
            ]
        );
    }
}
