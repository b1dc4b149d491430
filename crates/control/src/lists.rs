//! Lists and switches: their validation and compilation for enforcement.

use serde::{Deserialize, Serialize};
use tollgate_core::EnforcedShare;
use tollgate_rules::{ALL_NAMES, List, Listing, ListingError, Lists, SwitchMode};

use crate::{AutomaticEntry, AutomaticMode, ListPair, Ramp, RecordKey, pairs::pairs_text};

/// An entry of a list, as an operator wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    pub list: List,
    /// The domain; `*` for every domain.
    pub domain: String,
    /// Keys, and values or patterns of values. A request matches if one of its descriptors has them all.
    pub descriptor: Vec<ListPair>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// A switch of one rule, as an operator set it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The rule's domain.
    pub domain: String,
    /// The rule's path, as in metrics and `/rlconfig`.
    pub rule: String,
    /// [`SwitchMode::Shadow`] if a share of the keys is enforced.
    pub mode: SwitchMode,
    /// The keys for which the rule is enforced nevertheless.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_percent: Option<EnforcedShare>,
    /// Gradual increase of that share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<Ramp>,
    pub reason: String,
    pub author: String,
    /// Time in milliseconds since 1970.
    pub created_at_ms: u64,
    /// Expiry in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// All lists and switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Revision of the last change.
    pub generation: u64,
    /// The entries of both lists.
    pub entries: Vec<ListEntry>,
    /// Automatic entries of the deny list.
    pub automatic: Vec<AutomaticEntry>,
    pub switches: Vec<Switch>,
}

/// Whether a record with this end has not ended.
pub(crate) fn is_active(ends_at_ms: Option<u64>, now_ms: u64) -> bool {
    ends_at_ms.is_none_or(|end| now_ms < end)
}

const NOT_ALL_RULES: &str = "an emergency is one of all rules; expected `*` as the rule";

/// Validates an entry before it is added, and returns its compiled form.
///
/// # Errors
/// When it is invalid.
pub fn check_entry(entry: &ListEntry) -> Result<Listing, ListingError> {
    let pairs = entry.descriptor.iter().map(|pair| (&*pair.key, &*pair.value, pair.value_match));
    Listing::new(&entry.record_key().to_string(), entry.list, &entry.domain, pairs, entry.expires_at_ms)
}

/// Validates a switch before it is set.
///
/// # Errors
/// When it is invalid.
pub fn check_switch(switch: &Switch) -> Result<(), String> {
    let problem = match switch {
        _ if switch.domain.is_empty() => {
            "the domain is missing; expected a name, or `*` for an emergency of all domains"
        }
        _ if switch.rule.is_empty() => "the rule is missing; expected its path, or `*` for an emergency",
        Switch { mode: SwitchMode::Emergency, rule, .. } if rule != ALL_NAMES => NOT_ALL_RULES,
        Switch { mode, enforce_percent, ramp, .. }
            if *mode != SwitchMode::Shadow && (enforce_percent.is_some() || ramp.is_some()) =>
        {
            "`enforce_percent` and ramps need a rule in shadow mode; expected the mode `shadow`"
        }
        Switch { ramp: Some(_), expires_at_ms: Some(_), .. } => {
            "a ramp ends with its last step; expected no other end"
        }
        Switch { ramp: Some(ramp), .. } => return ramp.check(),
        _ => return Ok(()),
    };
    Err(problem.to_owned())
}

/// Compiles the lists and switches that have not expired at `now_ms`, in milliseconds since 1970. Invalid ones, which
/// were not validated, are omitted and reported.
pub fn compile(runtime: &Runtime, now_ms: u64) -> (Lists, Vec<String>) {
    let (mut problems, mut listings) = (Vec::new(), Vec::new());
    let entries = runtime.entries.iter().filter(|entry| is_active(entry.expires_at_ms, now_ms));
    let entries = entries.map(|entry| {
        let problem = |error| format!("entry {}: {error}", entry.subject());
        check_entry(entry).map_err(problem)
    });
    let enforced = runtime.automatic.iter().filter(|entry| entry.mode == AutomaticMode::Enforce);
    let enforced = enforced.filter(|entry| is_active(Some(entry.expires_at_ms), now_ms));
    let enforced = enforced.map(|entry| {
        entry.listing().map_err(|error| format!("automatic entry {}: {error}", entry.subject()))
    });
    for listing in entries.chain(enforced) {
        match listing {
            Ok(listing) => listings.push(listing),
            Err(problem) => problems.push(problem),
        }
    }
    let (mut switches, mut shares) = (Vec::new(), Vec::new());
    for switch in runtime.switches.iter().filter(|switch| is_active(switch.expires_at_ms, now_ms)) {
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

impl ListEntry {
    /// Its key as a record. The order of the pairs has no meaning.
    pub fn record_key(&self) -> RecordKey {
        let mut pairs: Vec<_> = self.descriptor.iter().map(ListPair::texts).collect();
        pairs.sort_unstable();
        let texts = [self.list.name(), &self.domain].into_iter().chain(pairs.into_iter().flatten());
        RecordKey::of("list entry", texts)
    }

    /// The entry as the subject of an audit log entry.
    pub(super) fn subject(&self) -> String {
        format!("{} {} {}", self.list.name(), self.domain, pairs_text(&self.descriptor))
    }
}

impl Switch {
    /// The switch as the subject of an audit log entry.
    pub(super) fn subject(&self) -> String {
        let mode = match self.enforce_percent {
            Some(share) => format!("enforce {share}%"),
            None => self.mode.name().to_owned(),
        };
        format!("{mode} {} {}", self.domain, self.rule)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tollgate_core::descriptor::Entry;

    use super::*;

    pub(crate) fn entry(key: &str, expires_at_ms: Option<u64>) -> ListEntry {
        ListEntry {
            list: List::Deny,
            domain: "d".into(),
            descriptor: vec![ListPair::pattern(key, "x")],
            reason: String::new(),
            author: String::new(),
            created_at_ms: 0,
            expires_at_ms,
        }
    }

    pub(crate) fn switch(rule: &str, expires_at_ms: Option<u64>) -> Switch {
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
        assert_eq!(check_switch(&emergency("d", "k")), Err(NOT_ALL_RULES.to_owned()));
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
            entries: vec![entry("ended", Some(10)), entry("", None), entry("holds", Some(11))],
            switches: vec![switch("ended", Some(10)), switch("", None), switch("holds", Some(11))],
        };
        let (lists, problems) = compile(&runtime, 10);
        assert_eq!(lists.generation, 7);
        let denies = |key| lists.denying("d", &[Entry { key, value: "x" }], 0).is_some();
        assert!(denies("holds") && !denies("ended"));
        assert_eq!(lists.mode_of("d", "holds"), Some(SwitchMode::Off));
        assert_eq!(lists.mode_of("d", "ended"), None);
        assert_eq!(
            problems,
            [
                "entry deny d =x: a key is empty; expected a descriptor key, such as remote_address",
                "switch of d.: the rule is missing; expected its path, or `*` for an emergency",
            ]
        );
    }

    #[test]
    fn list_entries_of_an_earlier_release_keep_their_meaning() {
        let text = r#"{"list": "deny", "domain": "d", "descriptor": [{"key": "k", "value": "ab*"}],
        "reason": "", "author": "ada", "created_at_ms": 1, "expires_at_ms": null}"#;
        let entry: ListEntry = serde_json::from_str(text).expect("an entry");
        assert_eq!(entry.descriptor, [ListPair::pattern("k", "ab*")]);
    }
}
