//! Changes of lists and switches.

use super::{
    Action, AuditEntry, List, ListEntry, Runtime, Switch,
    bounds::{MAX_ENTRIES, MAX_NAME_BYTES, MAX_PAIRS, MAX_SWITCHES, MAX_VALUE_BYTES, check_name, truncated},
    error::ControlError,
    pairs::pairs_text,
    stored::{SYSTEM_AUTHOR, now_ms},
};

/// A change of lists or switches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    PutEntry(ListEntry),
    /// By its id.
    RemoveEntry(String),
    PutSwitch(Switch),
    /// Only if the rule has the first switch now.
    ReplaceSwitch {
        from: Box<Switch>,
        to: Box<Switch>,
    },
    RemoveSwitch {
        domain: String,
        rule: String,
    },
    /// Only an audit log entry, for a change outside the control store.
    AuditOnly,
}

impl ListEntry {
    /// The entry as the subject of an audit log entry.
    pub(super) fn subject(&self) -> String {
        let list = match self.list {
            List::Allow => "allow",
            List::Deny => "deny",
        };
        format!("{list} {} {}", self.domain, pairs_text(&self.descriptor))
    }

    /// The entry with bounded texts, if it may be stored.
    pub(super) fn bounded(mut self) -> Result<Self, ControlError> {
        check_name("an id", &self.id, MAX_VALUE_BYTES)?;
        check_name("a domain", &self.domain, MAX_VALUE_BYTES)?;
        if self.descriptor.len() > MAX_PAIRS {
            return Err(ControlError::TooMany { what: "pairs of an entry", most: MAX_PAIRS });
        }
        for pair in &self.descriptor {
            check_name("a key", &pair.key, MAX_VALUE_BYTES)?;
            check_name("a value", &pair.value, MAX_VALUE_BYTES)?;
        }
        self.reason = truncated(self.reason);
        self.author = truncated(self.author);
        Ok(self)
    }
}

impl Switch {
    /// Whether it is the switch of this rule.
    pub(super) fn is_of(&self, domain: &str, rule: &str) -> bool {
        self.domain == domain && self.rule == rule
    }

    /// The switch as the subject of an audit log entry.
    pub(super) fn subject(&self) -> String {
        let mode = match self.enforce_percent {
            Some(share) => format!("enforce {share}%"),
            None => self.mode.name().to_owned(),
        };
        format!("{mode} {} {}", self.domain, self.rule)
    }

    /// The switch with bounded texts, if it may be stored.
    pub(super) fn bounded(mut self) -> Result<Self, ControlError> {
        check_name("a domain", &self.domain, MAX_NAME_BYTES)?;
        check_name("a rule", &self.rule, MAX_NAME_BYTES)?;
        self.reason = truncated(self.reason);
        self.author = truncated(self.author);
        Ok(self)
    }
}

impl AuditEntry {
    /// An entry without an id yet.
    pub(super) fn new(author: &str, action: Action, subject: String, comment: String) -> Self {
        let [author, subject, comment] = [author.to_owned(), subject, comment].map(truncated);
        Self { id: String::new(), at_ms: now_ms(), author, action, subject, comment, ban: None }
    }

    /// An entry for state that the store had lost and an instance restored.
    pub(super) fn restored(action: Action, subject: String) -> Self {
        Self::new(SYSTEM_AUTHOR, action, subject, "restored: the store had lost it".to_owned())
    }
}

impl Runtime {
    /// Applies a change; whether there was something to change. Removes expired entries and switches too.
    pub(super) fn apply(&mut self, change: Change, now_ms: u64) -> Result<bool, ControlError> {
        let mut next = self.clone();
        next.generation = next.generation.saturating_add(1);
        let is_active = |expires_at_ms: Option<u64>| expires_at_ms.is_none_or(|end| end > now_ms);
        next.entries.retain(|entry| is_active(entry.expires_at_ms));
        next.switches.retain(|switch| is_active(switch.expires_at_ms));
        let (entries, switches) = (next.entries.len(), next.switches.len());
        match change {
            Change::PutEntry(entry) => {
                next.entries.retain(|known| known.id != entry.id);
                if next.entries.len() >= MAX_ENTRIES {
                    return Err(ControlError::TooMany { what: "entries of lists", most: MAX_ENTRIES });
                }
                next.entries.push(entry);
            }
            Change::RemoveEntry(id) => {
                next.entries.retain(|known| known.id != id);
                if next.entries.len() == entries {
                    return Ok(false);
                }
            }
            Change::PutSwitch(switch) => {
                next.switches.retain(|known| !known.is_of(&switch.domain, &switch.rule));
                if next.switches.len() >= MAX_SWITCHES {
                    return Err(ControlError::TooMany { what: "switches", most: MAX_SWITCHES });
                }
                next.switches.push(switch);
            }
            Change::ReplaceSwitch { from, to } => {
                let Some(known) = next.switches.iter_mut().find(|known| **known == *from) else {
                    return Ok(false);
                };
                *known = *to;
            }
            Change::RemoveSwitch { domain, rule } => {
                next.switches.retain(|known| !known.is_of(&domain, &rule));
                if next.switches.len() == switches {
                    return Ok(false);
                }
            }
            Change::AuditOnly => return Ok(true),
        }
        *self = next;
        Ok(true)
    }

    /// The next expiry of an entry or a switch after `now_ms`.
    pub(super) fn next_expiry(&self, now_ms: u64) -> Option<u64> {
        let entries = self.entries.iter().filter_map(|entry| entry.expires_at_ms);
        let switches = self.switches.iter().filter_map(|switch| switch.expires_at_ms);
        let automatic = self.automatic.iter().map(|entry| entry.expires_at_ms);
        entries.chain(switches).chain(automatic).filter(|end| *end > now_ms).min()
    }
}
