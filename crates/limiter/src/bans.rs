//! Bans that begin, to be shown to operators: the counters' own records decide.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use tollgate_core::{
    ban::{Ban, BanCheck, BanEffect, BanMode},
    descriptor::{Descriptor, Entry},
};
use tollgate_rules::{Domain, Rule};

use super::{Match, Modes};
use crate::decision::Status;

/// Maximum number of begun bans that wait to be taken.
const MAX_WAITING: usize = 1_024;

/// Maximum length of the entries of one ban in bytes.
const MAX_ENTRY_BYTES: usize = 4_096;

/// A ban that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunBan {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The rule's path.
    pub rule: Box<str>,
    /// Entries of the descriptor, which identify the counter: keys and values.
    pub entries: Box<[(Box<str>, Box<str>)]>,
    /// The ban; whether it is enforced.
    pub ban: Ban,
    /// Whether the client is to be listed until its end.
    pub is_listed: bool,
}

/// Bans that began in this process, oldest first, until they are taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BegunBans {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    bans: VecDeque<BegunBan>,
    dropped: u64,
}

impl BegunBans {
    /// Takes up to `max` of the bans, oldest first.
    pub fn take(&self, max: usize) -> Vec<BegunBan> {
        let mut waiting = self.waiting.lock();
        let count = max.min(waiting.bans.len());
        waiting.bans.drain(..count).collect()
    }

    /// Number of bans that were not recorded since the start, because too many waited or their entries were too long.
    pub fn dropped(&self) -> u64 {
        self.waiting.lock().dropped
    }

    /// Records the bans that began with a decision.
    pub(super) fn record(
        &self,
        domain: &Domain,
        descriptors: &[Descriptor<'_>],
        matches: &[Match<'_>],
        statuses: &[Status<'_>],
    ) {
        for ((descriptor, matched), status) in descriptors.iter().zip(matches).zip(statuses) {
            let ban = status.limited().and_then(|limited| limited.verdict.ban).filter(|ban| ban.is_new);
            if let (Some(ban), Match::Rule { rule, depth, .. }) = (ban, matched) {
                let entries = descriptor.entries.get(..*depth).unwrap_or_default();
                self.push(domain, rule, entries, ban);
            }
        }
    }

    fn push(&self, domain: &Domain, rule: &Rule, entries: &[Entry<'_>], ban: Ban) {
        let bytes: usize =
            entries.iter().map(|entry| entry.key.len().saturating_add(entry.value.len())).sum();
        let mut waiting = self.waiting.lock();
        if waiting.bans.len() >= MAX_WAITING || bytes > MAX_ENTRY_BYTES {
            waiting.dropped = waiting.dropped.saturating_add(1);
            return;
        }
        waiting.bans.push_back(BegunBan {
            domain: (*domain.name).into(),
            rule: rule.path().into(),
            entries: entries.iter().map(|entry| (entry.key.into(), entry.value.into())).collect(),
            ban,
            is_listed: ban.is_enforced && rule.ban.is_some_and(|policy| policy.lists(ban.level.get())),
        });
    }
}

/// The ban that the decision on a rule's counter applies: only watched where the rule does not deny by itself.
pub(super) fn check_of(rule: &Rule, is_shadow: bool, modes: Modes) -> Option<BanCheck> {
    let policy = rule.ban?;
    let denies = policy.mode() == BanMode::Enforce && !is_shadow && !modes.shadow && !modes.quota;
    let effect = if denies { BanEffect::Enforce } else { BanEffect::Watch };
    Some(BanCheck { policy, effect })
}
