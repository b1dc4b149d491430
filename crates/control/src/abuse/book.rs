//! The automatic entries of a store in this process. The script `lua/abuse.lua` follows it.

use std::{collections::BTreeMap, time::Duration};

use super::{Added, AutomaticEntry, AutomaticMode, NewEntry};
use crate::bounds::{MAX_ABUSE_RECORDS, MAX_AUTOMATIC_ENTRIES, MAX_DRY_RUN_ENTRIES};

/// Offences that count at most.
const MAX_OFFENCES: u64 = 30;

/// Automatic entries, and the offences of keys whose entry has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AbuseBook {
    records: BTreeMap<String, Record>,
    /// Number of changes.
    changes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    entry: AutomaticEntry,
    forgotten_at_ms: u64,
}

impl AbuseBook {
    /// Distinguishes the content from earlier content.
    pub(crate) fn token(&self) -> String {
        if self.changes == 0 { String::new() } else { self.changes.to_string() }
    }

    /// The active entries.
    pub(crate) fn active(&self, now_ms: u64) -> Vec<AutomaticEntry> {
        let records = self.records.values();
        let mut active: Vec<_> = records
            .filter(|record| record.entry.expires_at_ms > now_ms)
            .map(|record| record.entry.clone())
            .collect();
        active.sort_by(|a, b| (a.created_at_ms, &a.id).cmp(&(b.created_at_ms, &b.id)));
        active
    }

    /// Adds an entry. A dry run gives way to an entry that is enforced, and its offences do not count.
    pub(crate) fn add(&mut self, new: &NewEntry, now_ms: u64) -> Added {
        self.records.retain(|_, record| record.forgotten_at_ms.max(record.entry.expires_at_ms) > now_ms);
        let known = self.records.get(&new.entry.id);
        let is_active = known.is_some_and(|known| known.entry.expires_at_ms > now_ms);
        let gives_way = known.is_some_and(|known| known.entry.mode == AutomaticMode::DryRun)
            && new.entry.mode == AutomaticMode::Enforce;
        let most = match new.entry.mode {
            AutomaticMode::DryRun => MAX_DRY_RUN_ENTRIES,
            AutomaticMode::Enforce | AutomaticMode::Exempt => MAX_AUTOMATIC_ENTRIES,
        };
        let active = || self.records.values().filter(|record| record.entry.expires_at_ms > now_ms).count();
        if is_active && !gives_way {
            return Added::Known;
        }
        if !is_active && active() >= most {
            return Added::Full;
        }
        let offences = match known {
            Some(known) if known.entry.mode == new.entry.mode => {
                let left = known.forgotten_at_ms.saturating_sub(now_ms).div_ceil(millis(new.forgive).max(1));
                known.entry.offences.min(left).min(MAX_OFFENCES)
            }
            _ => 0,
        };
        if known.is_none() && self.records.len() >= MAX_ABUSE_RECORDS {
            self.forget_one(now_ms);
        }
        let growth = 1_u64.checked_shl(u32::try_from(offences).unwrap_or(u32::MAX)).unwrap_or(u64::MAX);
        let duration = millis(new.duration).saturating_mul(growth).min(millis(new.max_duration));
        let offences = offences.saturating_add(1);
        let expires_at_ms = now_ms.saturating_add(duration);
        let forgotten_at_ms = expires_at_ms.saturating_add(millis(new.forgive).saturating_mul(offences));
        let entry = AutomaticEntry { created_at_ms: now_ms, expires_at_ms, offences, ..new.entry.clone() };
        self.records.insert(entry.id.clone(), Record { entry, forgotten_at_ms });
        self.changes = self.changes.saturating_add(1);
        Added::Listed
    }

    /// Removes an active entry with its offences, or replaces it by an exemption; whether there was one.
    pub(crate) fn lift(&mut self, id: &str, exemption: Option<AutomaticEntry>, now_ms: u64) -> bool {
        if self.records.get(id).is_none_or(|known| known.entry.expires_at_ms <= now_ms) {
            return false;
        }
        self.records.remove(id);
        if let Some(entry) = exemption {
            let forgotten_at_ms = entry.expires_at_ms;
            self.records.insert(id.to_owned(), Record { entry, forgotten_at_ms });
        }
        self.changes = self.changes.saturating_add(1);
        true
    }

    /// Forgets the offences that would be forgotten first.
    fn forget_one(&mut self, now_ms: u64) {
        let ended = self.records.iter().filter(|(_, record)| record.entry.expires_at_ms <= now_ms);
        let first = ended.min_by_key(|(_, record)| record.forgotten_at_ms).map(|(id, _)| id.clone());
        if let Some(first) = first {
            self.records.remove(&first);
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ListPair;

    const MINUTE: u64 = 60_000;

    fn entry(mode: AutomaticMode, value: &str) -> NewEntry {
        let descriptor = vec![ListPair::exact("ip", value)];
        let durations = [10, 60, 30].map(|minutes| Duration::from_secs(minutes * 60));
        NewEntry::new(mode, "d".into(), descriptor, "a".into(), "why".into(), durations)
    }

    fn enforced(value: &str) -> NewEntry {
        entry(AutomaticMode::Enforce, value)
    }

    /// End and offences of the entry of a value.
    fn found(book: &AbuseBook, value: &str, now_ms: u64) -> Option<(u64, u64)> {
        let active = book.active(now_ms).into_iter().find(|entry| entry.descriptor[0].value == value);
        active.map(|entry| (entry.expires_at_ms, entry.offences))
    }

    #[test]
    fn a_repeated_offence_doubles_the_time_up_to_the_longest_and_is_forgiven_with_time() {
        let (mut book, mut now) = (AbuseBook::default(), 0);
        for (offence, minutes) in [(1, 10), (2, 20), (3, 40), (4, 60), (5, 60)] {
            assert_eq!(book.add(&enforced("a"), now), Added::Listed);
            assert_eq!(found(&book, "a", now), Some((now + minutes * MINUTE, offence)));
            assert_eq!(book.add(&enforced("a"), now + 1), Added::Known);
            now += minutes * MINUTE;
            assert_eq!(found(&book, "a", now), None);
        }
        // Of five offences three are forgiven.
        now += 90 * MINUTE;
        assert_eq!(book.add(&enforced("a"), now), Added::Listed);
        assert_eq!(found(&book, "a", now), Some((now + 40 * MINUTE, 3)));
        now += 40 * MINUTE + 3 * 30 * MINUTE;
        assert_eq!(book.add(&enforced("a"), now), Added::Listed);
        assert_eq!(found(&book, "a", now), Some((now + 10 * MINUTE, 1)));
    }

    #[test]
    fn a_dry_run_gives_way_to_an_enforced_entry_and_leaves_no_offences() {
        let mut book = AbuseBook::default();
        let dry = entry(AutomaticMode::DryRun, "a");
        book.add(&dry, 0);
        book.add(&dry, 10 * MINUTE);
        assert_eq!(found(&book, "a", 10 * MINUTE), Some((30 * MINUTE, 2)));
        assert_eq!(book.add(&enforced("a"), 11 * MINUTE), Added::Listed);
        assert_eq!(found(&book, "a", 11 * MINUTE), Some((21 * MINUTE, 1)));
        assert_eq!(book.add(&dry, 12 * MINUTE), Added::Known);
    }

    #[test]
    fn a_lifted_entry_has_no_offences_and_an_exempt_one_is_not_listed_until_its_end() {
        let mut book = AbuseBook::default();
        book.add(&enforced("a"), 0);
        book.add(&enforced("a"), 10 * MINUTE);
        let id = enforced("a").entry.id;
        assert!(book.lift(&id, None, 11 * MINUTE) && !book.lift(&id, None, 11 * MINUTE));
        assert_eq!(book.add(&enforced("a"), 12 * MINUTE), Added::Listed);
        assert_eq!(found(&book, "a", 12 * MINUTE), Some((22 * MINUTE, 1)));
        let exemption =
            AutomaticEntry { mode: AutomaticMode::Exempt, expires_at_ms: 90 * MINUTE, ..enforced("a").entry };
        assert!(book.lift(&id, Some(exemption), 13 * MINUTE));
        assert_eq!(book.add(&enforced("a"), 89 * MINUTE), Added::Known);
        assert_eq!(book.add(&enforced("a"), 90 * MINUTE), Added::Listed);
    }

    #[test]
    fn entries_are_bounded_and_dry_runs_leave_half_of_the_room() {
        let mut book = AbuseBook::default();
        for at in 0..MAX_DRY_RUN_ENTRIES {
            assert_eq!(book.add(&entry(AutomaticMode::DryRun, &at.to_string()), 0), Added::Listed);
        }
        assert_eq!(book.add(&entry(AutomaticMode::DryRun, "more"), 0), Added::Full);
        for at in 0..MAX_AUTOMATIC_ENTRIES - MAX_DRY_RUN_ENTRIES {
            assert_eq!(book.add(&enforced(&format!("e{at}")), 0), Added::Listed);
        }
        assert_eq!(book.add(&enforced("more"), 0), Added::Full);
        assert_eq!(book.add(&enforced("0"), 0), Added::Listed, "in place of a dry run");
        assert_eq!(book.add(&enforced("more"), 10 * MINUTE), Added::Listed, "the others have ended");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_entry_is_longer_than_the_longest_and_all_end(
            steps in prop::collection::vec((0_u8..4, any::<bool>(), 1_u64..40), 1..60),
        ) {
            let (mut book, mut now) = (AbuseBook::default(), 0);
            for (value, is_dry, minutes) in steps {
                let mode = if is_dry { AutomaticMode::DryRun } else { AutomaticMode::Enforce };
                book.add(&entry(mode, &value.to_string()), now);
                for active in book.active(now) {
                    let length = active.expires_at_ms - active.created_at_ms;
                    prop_assert!((10 * MINUTE..=60 * MINUTE).contains(&length));
                }
                now += minutes * MINUTE;
            }
            prop_assert!(book.active(now + 60 * MINUTE).is_empty());
            let forever = now + 100 * 60 * MINUTE;
            book.add(&enforced("last"), forever);
            prop_assert_eq!(book.records.len(), 1, "offences are forgotten");
        }
    }
}
