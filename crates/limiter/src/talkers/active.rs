//! Which domains are asked about. Nothing of it is sampled: that a domain has no traffic has to be true.

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{LONGEST_TEXT, collector};

/// Domains that are told of at the most.
const MOST: usize = 100;

/// Ticks within which a thread tells of a domain once.
pub(super) const TOLD_EVERY: u32 = 5 * collector::TICKS_IN_A_SECOND;

/// Ticks for which a domain counts as asked about after a thread told of it: a minute after the last time that it was.
const MINUTE: u32 = 60 * collector::TICKS_IN_A_SECOND + TOLD_EVERY;

/// When each domain was last told of. Only those that have rules are, so there are not more than that.
#[derive(Debug, Default)]
pub(super) struct Active(Mutex<HashMap<Box<str>, u32, RandomState>>);

impl Active {
    pub(super) fn note(&self, domain: &str, now: u32) {
        let mut told = self.0.lock();
        match told.get_mut(domain) {
            Some(last) => *last = now,
            None => {
                told.insert(domain.into(), now);
            }
        }
    }

    /// Forgets those that were not asked about for long.
    pub(super) fn expire(&self, now: u32) {
        self.0.lock().retain(|_, last| now.saturating_sub(*last) <= MINUTE);
    }

    /// Those that were asked about within the last minute, the latest first; without those whose name is long.
    pub(super) fn domains(&self, now: u32) -> Vec<String> {
        let told = self.0.lock();
        let is_active = |last: u32| now.saturating_sub(last) <= MINUTE;
        let mut active: Vec<_> =
            told.iter().filter(|(name, last)| is_active(**last) && name.len() <= LONGEST_TEXT).collect();
        active.sort_unstable_by(|(a, earlier), (b, later)| later.cmp(earlier).then(a.cmp(b)));
        active.into_iter().take(MOST).map(|(name, _)| name.clone().into_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_active_for_a_minute_and_then_forgotten() {
        let active = Active::default();
        active.note("early", 0);
        active.note("late", 100);
        assert_eq!(active.domains(600), ["late", "early"]);
        active.note("early", 601);
        assert_eq!(active.domains(601), ["early", "late"]);
        assert_eq!(active.domains(100 + MINUTE + 1), ["early"]);
        active.expire(100 + MINUTE + 1);
        assert_eq!(active.0.lock().len(), 1);
    }

    #[test]
    fn names_are_bounded_in_number_and_in_length() {
        let active = Active::default();
        active.note(&"x".repeat(LONGEST_TEXT + 1), 0);
        assert!(active.domains(0).is_empty());
        (0..MOST + 10).for_each(|at| active.note(&format!("{at}"), 0));
        active.note("the latest", 1);
        let domains = active.domains(1);
        assert_eq!((domains.len(), &*domains[0]), (MOST, "the latest"));
    }
}
