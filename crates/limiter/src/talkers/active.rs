//! Domains with recent requests. They are not sampled: a report that a domain has no traffic must be true.

use foldhash::quality::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::{MAX_TEXT_BYTES, collector};

/// Maximum number of reported domains.
const MAX_DOMAINS: usize = 100;

/// Ticks within which a thread reports a domain once.
pub(super) const REPORT_INTERVAL_TICKS: u32 = 5 * collector::TICKS_PER_SECOND;

/// Ticks for which a domain counts as active after a thread reported it: a minute after its last request.
const ACTIVE_TICKS: u32 = 60 * collector::TICKS_PER_SECOND + REPORT_INTERVAL_TICKS;

/// Tick of the last report of each domain. Only domains with rules, and a bounded number of others, are reported.
#[derive(Debug, Default)]
pub(super) struct Active(Mutex<HashMap<Box<str>, u32, RandomState>>);

impl Active {
    pub(super) fn record(&self, domain: &str, now: u32) {
        let mut reported = self.0.lock();
        match reported.get_mut(domain) {
            Some(last) => *last = now,
            None => {
                reported.insert(domain.into(), now);
            }
        }
    }

    /// Drops domains without recent requests.
    pub(super) fn expire(&self, now: u32) {
        self.0.lock().retain(|_, last| now.saturating_sub(*last) <= ACTIVE_TICKS);
    }

    /// Returns the domains with requests within the last minute, the latest first; domains with long names are omitted.
    pub(super) fn domains(&self, now: u32) -> Vec<String> {
        let reported = self.0.lock();
        let is_active = |last: u32| now.saturating_sub(last) <= ACTIVE_TICKS;
        let mut active: Vec<_> = reported
            .iter()
            .filter(|(name, last)| is_active(**last) && name.len() <= MAX_TEXT_BYTES)
            .collect();
        active.sort_unstable_by(|(a, earlier), (b, later)| later.cmp(earlier).then(a.cmp(b)));
        active.into_iter().take(MAX_DOMAINS).map(|(name, _)| name.clone().into_string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_active_for_a_minute_and_then_dropped() {
        let active = Active::default();
        active.record("early", 0);
        active.record("late", 100);
        assert_eq!(active.domains(600), ["late", "early"]);
        active.record("early", 601);
        assert_eq!(active.domains(601), ["early", "late"]);
        assert_eq!(active.domains(100 + ACTIVE_TICKS + 1), ["early"]);
        active.expire(100 + ACTIVE_TICKS + 1);
        assert_eq!(active.0.lock().len(), 1);
    }

    #[test]
    fn names_are_bounded_in_number_and_in_length() {
        let active = Active::default();
        active.record(&"x".repeat(MAX_TEXT_BYTES + 1), 0);
        assert!(active.domains(0).is_empty());
        (0..MAX_DOMAINS + 10).for_each(|at| active.record(&format!("{at}"), 0));
        active.record("the latest", 1);
        let domains = active.domains(1);
        assert_eq!((domains.len(), &*domains[0]), (MAX_DOMAINS, "the latest"));
    }
}
