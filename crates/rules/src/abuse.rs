//! Rules of the adaptive deny list: which sustained abuse puts a client's key on the list, and for how long.

use std::time::Duration;

use ipnet::IpNet;
use tollgate_core::descriptor::Entry;

use super::{Rule, Value, cidr, lists::Pattern};

/// Rule that turns sustained abuse by one key into an entry of the deny list with an end.
#[derive(Clone, Debug, PartialEq)]
pub struct AbuseRule {
    /// Name, unique in the domain.
    pub name: Box<str>,
    /// Keys whose value identifies one client.
    pub client_keys: Box<[Box<str>]>,
    /// Abuse that lists a key.
    pub trigger: AbuseTrigger,
    /// Time for which a key is listed at first. Each further offence doubles it.
    pub duration: Duration,
    /// Longest time for which a key is listed.
    pub max_duration: Duration,
    /// Time after the end of an entry for which one offence is remembered.
    pub forgive: Duration,
    /// Effect of an entry.
    pub mode: AbuseMode,
    /// Keys that are never listed.
    pub exempt: Box<[Exemption]>,
}

/// Abuse by one key, as the instances together see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbuseTrigger {
    /// Denied requests per second, continuously for some time.
    DeniedPerSecond {
        /// The rate.
        rate: u32,
        /// Time for which it must last.
        period: Duration,
    },
    /// Denied requests without an admitted one between them.
    DeniedInARow {
        /// Their number.
        count: u32,
    },
    /// Hits per second, admitted or not, continuously for some time.
    HitsPerSecond {
        /// The rate.
        rate: u32,
        /// Time for which it must last.
        period: Duration,
    },
}

/// Effect of the entries of an abuse rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AbuseMode {
    /// Entries are shown and counted, and deny nothing.
    #[default]
    DryRun,
    /// Entries deny.
    Enforce,
}

/// Keys that an abuse rule never lists.
#[derive(Clone, Debug, PartialEq)]
pub enum Exemption {
    /// Any value that is an address in the range, or a range in it.
    Range(IpNet),
    /// Values of a key that match a pattern, as in entries of lists.
    Value(ExemptValue),
}

/// Condition on the value of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct ExemptValue {
    key: Box<str>,
    pattern: Pattern,
}

impl AbuseTrigger {
    /// Key of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeniedPerSecond { .. } => "denied_per_second",
            Self::DeniedInARow { .. } => "denied_in_a_row",
            Self::HitsPerSecond { .. } => "hits_per_second",
        }
    }
}

impl AbuseMode {
    /// All variants.
    pub const ALL: [Self; 2] = [Self::DryRun, Self::Enforce];

    /// Name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DryRun => "dry_run",
            Self::Enforce => "enforce",
        }
    }
}

impl AbuseRule {
    /// Whether a request with these entries that matches `rule` is of one client: the request brings the value of a client
    /// key, and `rule` counts each of its values by itself. Counters of values that a rule states, or that share a
    /// threshold, are shared by many clients.
    pub fn is_of_one_client(&self, rule: &Rule, entries: &[Entry<'_>]) -> bool {
        rule.segments.iter().zip(entries).any(|(segment, entry)| {
            segment.value == Value::Open
                && !entry.value.is_empty()
                && self.client_keys.iter().any(|key| **key == *entry.key)
        })
    }

    /// Whether the rule exempts a request with these entries.
    pub fn exempts(&self, entries: &[Entry<'_>]) -> bool {
        let is_met = |exemption: &Exemption| match exemption {
            Exemption::Range(range) => {
                let is_in =
                    |entry: &Entry<'_>| cidr::parse(entry.value).is_some_and(|value| range.contains(&value));
                entries.iter().any(is_in)
            }
            Exemption::Value(ExemptValue { key, pattern }) => {
                entries.iter().any(|entry| *entry.key == **key && pattern.matches(entry.value))
            }
        };
        self.exempt.iter().any(is_met)
    }

    /// Whether a client key has a range of addresses as its value, which many clients may share.
    pub fn is_of_range(&self, entries: &[Entry<'_>]) -> bool {
        let is_range = |entry: &Entry<'_>| {
            let is_client = self.client_keys.iter().any(|key| **key == *entry.key);
            is_client
                && cidr::parse(entry.value).is_some_and(|value| value.prefix_len() < value.max_prefix_len())
        };
        entries.iter().any(is_range)
    }
}

impl Exemption {
    /// Parses an address, a range of addresses, or `key=value` with the value of an entry of a list.
    ///
    /// # Errors
    /// The reason, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(range) = cidr::parse(text) {
            return match range == range.trunc() {
                true => Ok(Self::Range(range)),
                false => {
                    Err(format!("`{text}` means all of {}; write that, or a longer prefix", range.trunc()))
                }
            };
        }
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() && !key.contains('*') => {
                let pattern = Pattern::parse(value).map_err(|error| error.to_string())?;
                Ok(Self::Value(ExemptValue { key: key.into(), pattern }))
            }
            _ => Err(format!("`{text}` is no exemption; expected e.g. 10.0.0.0/8 or api_key=partner-*")),
        }
    }
}
