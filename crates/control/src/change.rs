//! Changes of lists and switches.

use super::{
    Action, AuditEntry, List, ListEntry, Runtime, Switch, SwitchMode,
    bounds::{MOST_ENTRIES, MOST_NAME, MOST_PAIRS, MOST_SWITCHES, MOST_VALUE, check_name, shortened},
    error::ControlError,
    stored::{OURSELVES, now_ms},
};

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    PutEntry(ListEntry),
    /// By its id.
    RemoveEntry(String),
    PutSwitch(Switch),
    RemoveSwitch {
        domain: String,
        rule: String,
    },
    /// Nothing: it was done elsewhere.
    Note,
}

impl ListEntry {
    /// The entry for people.
    pub(super) fn subject(&self) -> String {
        let list = match self.list {
            List::Allow => "allow",
            List::Deny => "deny",
        };
        let pairs: Vec<String> =
            self.descriptor.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
        format!("{list} {} {}", self.domain, pairs.join(","))
    }

    /// The entry as it is kept, if it may be.
    pub(super) fn bounded(mut self) -> Result<Self, ControlError> {
        check_name("an id", &self.id, MOST_VALUE)?;
        check_name("a domain", &self.domain, MOST_VALUE)?;
        if self.descriptor.len() > MOST_PAIRS {
            return Err(ControlError::TooMany { what: "pairs of an entry", most: MOST_PAIRS });
        }
        for pair in &self.descriptor {
            check_name("a key", &pair.key, MOST_VALUE)?;
            check_name("a value", &pair.value, MOST_VALUE)?;
        }
        self.reason = shortened(self.reason);
        self.author = shortened(self.author);
        Ok(self)
    }
}

impl Switch {
    /// The switch for people.
    pub(super) fn subject(&self) -> String {
        let mode = match self.mode {
            SwitchMode::Off => "off",
            SwitchMode::Shadow => "shadow",
        };
        format!("{mode} {} {}", self.domain, self.rule)
    }

    /// The switch as it is kept, if it may be.
    pub(super) fn bounded(mut self) -> Result<Self, ControlError> {
        check_name("a domain", &self.domain, MOST_NAME)?;
        check_name("a rule", &self.rule, MOST_NAME)?;
        self.reason = shortened(self.reason);
        self.author = shortened(self.author);
        Ok(self)
    }
}

impl AuditEntry {
    /// An entry that has no id yet.
    pub(super) fn new(author: &str, action: Action, subject: String, comment: String) -> Self {
        let [author, subject, comment] = [author.to_owned(), subject, comment].map(shortened);
        Self { id: String::new(), at_ms: now_ms(), author, action, subject, comment }
    }

    /// That something was put back which the store had lost.
    pub(super) fn put_back(action: Action, subject: String) -> Self {
        Self::new(OURSELVES, action, subject, "put back: the store had lost it".to_owned())
    }
}

impl Runtime {
    /// Makes a change, and says whether there was something to change. What ended before is removed on the way.
    pub(super) fn make(&mut self, change: Change, now_ms: u64) -> Result<bool, ControlError> {
        let mut next = self.clone();
        next.generation = next.generation.saturating_add(1);
        let lasts = |expires_at_ms: Option<u64>| expires_at_ms.is_none_or(|end| end > now_ms);
        next.entries.retain(|entry| lasts(entry.expires_at_ms));
        next.switches.retain(|switch| lasts(switch.expires_at_ms));
        let (entries, switches) = (next.entries.len(), next.switches.len());
        match change {
            Change::PutEntry(entry) => {
                next.entries.retain(|known| known.id != entry.id);
                if next.entries.len() >= MOST_ENTRIES {
                    return Err(ControlError::TooMany { what: "entries of lists", most: MOST_ENTRIES });
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
                if next.switches.len() >= MOST_SWITCHES {
                    return Err(ControlError::TooMany { what: "switches", most: MOST_SWITCHES });
                }
                next.switches.push(switch);
            }
            Change::RemoveSwitch { domain, rule } => {
                next.switches.retain(|known| !known.is_of(&domain, &rule));
                if next.switches.len() == switches {
                    return Ok(false);
                }
            }
            Change::Note => return Ok(true),
        }
        *self = next;
        Ok(true)
    }

    /// When the next entry or switch after `now_ms` ends.
    pub(super) fn next_end(&self, now_ms: u64) -> Option<u64> {
        let entries = self.entries.iter().filter_map(|entry| entry.expires_at_ms);
        let switches = self.switches.iter().filter_map(|switch| switch.expires_at_ms);
        entries.chain(switches).filter(|end| *end > now_ms).min()
    }
}

impl Switch {
    pub(super) fn is_of(&self, domain: &str, rule: &str) -> bool {
        self.domain == domain && self.rule == rule
    }
}
