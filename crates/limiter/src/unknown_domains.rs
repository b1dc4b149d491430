//! Requests for domains without rules, by name.
//!
//! Names are the callers' to choose, so that few are known at a time. A new one takes the place of one that has been idle for
//! longer than it was in use: names that were sent once make room after ten minutes, and the names of a misconfigured proxy
//! stay. Requests with names that made room are not added to the others, since a rate would count them twice.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use tollgate_core::clock::Timestamp;
use tollgate_metrics::{Computed, series::OTHER};
use tollgate_rules::{Rules, config::nearest};
use tollgate_runtime::{log_budget::LogBudget, redact::bounded};

/// Maximum number of names that are known.
const MAX_NAMES: usize = 32;

/// Time for which any name stays known. It bounds new label values, of which a caller causes 4,608 a day at most.
const MIN_IDLE: Duration = Duration::from_secs(600);

/// Maximum number of domains with rules that a name is compared with, which bounds the time for its line in the log.
const MAX_COMPARED: usize = 500;

/// New names in the log: as many as are known, and then one a minute.
static LINES: LogBudget = LogBudget::new(32, Duration::from_secs(60));

static NAMES: Mutex<Names> = Mutex::new(Names { known: BTreeMap::new(), others: 0, total: 0 });

pub(crate) static UNKNOWN_DOMAIN: Computed<1> = Computed::counter(
    "tollgate_unknown_domain_requests_total",
    &["domain"],
    "Requests for a domain without rules.",
    |[declared], page| {
        let names = NAMES.lock();
        page.begin(declared);
        // At zero, as any series that may appear.
        page.sample(declared, &[OTHER], names.others);
        for (name, domain) in &names.known {
            page.sample(declared, &[name], domain.requests);
        }
    },
);

/// Names of domains without rules.
#[derive(Debug)]
struct Names {
    known: BTreeMap<Box<str>, KnownDomain>,
    /// Requests whose names were not known.
    others: u64,
    total: u64,
}

#[derive(Clone, Copy, Debug)]
struct KnownDomain {
    requests: u64,
    first: Timestamp,
    last: Timestamp,
}

/// Counts a request, and logs its domain if that is new. Returns the name if it is known by now.
pub(crate) fn record(rules: &Rules, domain: &str, now: Timestamp) -> Option<String> {
    let name = bounded(domain);
    let is_new = NAMES.lock().count(&name, now)?;
    if is_new && let Some(suppressed) = LINES.take() {
        let known = rules.domains().take(MAX_COMPARED).map(|domain| &*domain.name);
        let did_you_mean = nearest(&name, known);
        tracing::warn!(domain = name, did_you_mean, suppressed, "domain without rules; nothing is limited");
    }
    Some(name)
}

/// Requests for domains without rules so far.
pub fn unknown_domains() -> u64 {
    NAMES.lock().total
}

impl Names {
    /// Counts a request. Returns whether its name is new; `None` if it is not known by now.
    fn count(&mut self, name: &str, now: Timestamp) -> Option<bool> {
        self.total = self.total.saturating_add(1);
        if let Some(domain) = self.known.get_mut(name) {
            domain.requests = domain.requests.saturating_add(1);
            domain.last = now;
            return Some(false);
        }
        if self.known.len() >= MAX_NAMES {
            let in_use = |domain: &KnownDomain| domain.last.since(domain.first).max(MIN_IDLE);
            self.known.retain(|_, domain| now.since(domain.last) <= in_use(domain));
        }
        if self.known.len() >= MAX_NAMES {
            self.others = self.others.saturating_add(1);
            return None;
        }
        self.known.insert(name.into(), KnownDomain { requests: 1, first: now, last: now });
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn names() -> Names {
        Names { known: BTreeMap::new(), others: 0, total: 0 }
    }

    #[test]
    fn random_names_make_room_and_those_in_use_stay() {
        let mut names = names();
        for second in 0..3_600 {
            let naming = names.count("edg", at(second));
            assert_eq!(naming, Some(second == 0));
            for one in 0..100 {
                let _ = names.count(&format!("{second} {one}"), at(second));
            }
            assert!(names.known.len() <= MAX_NAMES);
        }
        assert_eq!(names.known["edg"].requests, 3_600);
        assert_eq!(names.total, 3_600 * 101);
        let new = names.known.values().map(|domain| domain.first).filter(|first| *first > at(3_000)).count();
        assert!(new > 0, "names of an hour ago take the place of new ones");
    }

    #[test]
    fn a_name_stays_known_for_as_long_as_it_was_in_use() {
        let mut names = names();
        for second in [0, 6_000] {
            let _ = names.count("hour", at(second));
        }
        for one in 1..MAX_NAMES {
            let _ = names.count(&one.to_string(), at(6_000));
        }
        assert_eq!(names.count("new", at(6_600)), None, "all are known for ten minutes");
        assert_eq!(names.count("new", at(6_601)), Some(true));
        assert_eq!(names.count("hour", at(12_000)), Some(false));
        assert_eq!(names.others, 1);
    }
}
